//! The words of a command, and the values that several commands have.

use std::num::NonZeroU32;

use super::{Limits, Malformed};
use crate::{Command, Lease, LeaseChoice, Mode, Owner, RequestId, Token, UnixMs};

/// Reads words from left to right.
pub struct Words<I>(I);

impl<'call, I: Iterator<Item = &'call [u8]>> Words<I> {
    /// Begins at the first of these.
    pub fn new(words: I) -> Words<I> {
        Words(words)
    }

    /// The next word, if there is one: an option's.
    pub fn word(&mut self) -> Option<&'call [u8]> {
        self.0.next()
    }

    /// A word that every call has.
    pub fn required(&mut self) -> Result<&'call [u8], Malformed> {
        self.word().ok_or(Malformed::Arity)
    }

    /// The value of the option whose word was read last.
    pub fn value(&mut self) -> Result<&'call [u8], Malformed> {
        self.word().ok_or(Malformed::Syntax)
    }

    /// The value of an option, an integer.
    pub fn integer(&mut self) -> Result<i64, Malformed> {
        integer(self.value()?)
    }

    /// An integer that every call has.
    pub fn required_integer(&mut self) -> Result<i64, Malformed> {
        integer(self.required()?)
    }

    /// The words that were not read yet.
    pub fn rest(self) -> I {
        self.0
    }

    /// The limit of a semaphore: 1 to 2^32 - 1.
    pub fn limit(&mut self) -> Result<NonZeroU32, Malformed> {
        let limit = self.required_integer()?;
        u32::try_from(limit).ok().and_then(NonZeroU32::new).ok_or(Malformed::Limit)
    }

    /// The value of `PERMITS`: 1 to 2^32 - 1.
    pub fn permits(&mut self) -> Result<NonZeroU32, Malformed> {
        let permits = self.integer()?;
        u32::try_from(permits).ok().and_then(NonZeroU32::new).ok_or(Malformed::Permits)
    }

    /// The value of an option, a token.
    pub fn token(&mut self) -> Result<Token, Malformed> {
        token(self.value()?)
    }

    /// The value of `REQUEST`: the id of a command that may be sent twice.
    pub fn request(&mut self, command: Command) -> Result<RequestId, Malformed> {
        RequestId::new(command, self.value()?).ok_or(Malformed::RequestId)
    }

    /// The owner.
    pub fn owner(&mut self) -> Result<Owner, Malformed> {
        owner(self.required()?)
    }

    /// The value of `BLOCK`: how long to wait, in ms; 0 is forever.
    pub fn timeout(&mut self) -> Result<u64, Malformed> {
        let ms = integer(self.value()?).map_err(|_| Malformed::Timeout)?;
        match u64::try_from(ms) {
            Ok(ms) if ms <= UnixMs::MAX.get() => Ok(ms),
            Ok(_) => Err(Malformed::Timeout),
            Err(_) => Err(Malformed::NegativeTimeout),
        }
    }

    /// The lease an option names, if `word` is such an option: `EX`, `PX`, `EXAT` or `PXAT`, and the value after it.
    pub fn lease(&mut self, word: &[u8], limits: Limits) -> Result<Option<LeaseChoice>, Malformed> {
        let (unit, is_absolute) = if is(word, "PX") {
            (1, false)
        } else if is(word, "EX") {
            (1000, false)
        } else if is(word, "PXAT") {
            (1, true)
        } else if is(word, "EXAT") {
            (1000, true)
        } else {
            return Ok(None);
        };
        let given = self.integer()?.checked_mul(unit).and_then(|ms| u64::try_from(ms).ok());
        let given = given.ok_or(Malformed::ExpireTime)?;
        let now = limits.now();
        let lease = if is_absolute { given.saturating_sub(now.get()) } else { given };
        let overflows = lease.checked_add(now.get()).is_none_or(|deadline| i64::try_from(deadline).is_err());
        if lease == 0 || overflows {
            return Err(Malformed::ExpireTime);
        }
        let max = limits.max_lease;
        let lease = Lease::new(lease).filter(|lease| *lease <= max).ok_or(Malformed::LeaseTooLong(max))?;
        Ok(Some(if is_absolute { LeaseChoice::Until(UnixMs::new(given)) } else { LeaseChoice::For(lease) }))
    }
}

/// Whether `word` is `option`, in any case.
pub fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// Sets an option's value; a second one is an error.
pub fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed::Syntax),
    }
}

/// Whether a call with this lease may say `SESSION`: a lease that ends at a fixed time cannot be extended.
pub fn may_bind(lease: LeaseChoice) -> Result<(), Malformed> {
    match lease {
        LeaseChoice::Until(_) => Err(Malformed::Syntax),
        LeaseChoice::For(lease) if !lease.can_be_bound() => Err(Malformed::SessionLease),
        LeaseChoice::For(_) | LeaseChoice::Own => Ok(()),
    }
}

/// The owner of these bytes.
pub fn owner(bytes: &[u8]) -> Result<Owner, Malformed> {
    Owner::new(bytes).ok_or(Malformed::Owner)
}

/// A token: an integer from 1 to 2^53.
pub fn token(bytes: &[u8]) -> Result<Token, Malformed> {
    u64::try_from(integer(bytes)?).ok().and_then(Token::new).ok_or(Malformed::Token)
}

/// The mode an option names: `READ` or `WRITE`.
pub fn mode(word: &[u8]) -> Option<Mode> {
    if is(word, "READ") {
        Some(Mode::Shared)
    } else if is(word, "WRITE") {
        Some(Mode::Exclusive)
    } else {
        None
    }
}

/// An integer as the server reads one: decimal, no plus sign, no leading zeros.
pub fn integer(bytes: &[u8]) -> Result<i64, Malformed> {
    let (is_negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // "0" stands alone: "00", "-0" and "01" are no integers.
    if !matches!(digits, [b'1'..=b'9', ..]) && bytes != b"0" {
        return Err(Malformed::Integer);
    }
    let mut value: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        // Downwards, because there is one more number below zero than above.
        let next = if digit <= 9 { value.checked_mul(10).and_then(|tens| tens.checked_sub(digit)) } else { None };
        value = next.ok_or(Malformed::Integer)?;
    }
    if is_negative { Ok(value) } else { value.checked_neg().ok_or(Malformed::Integer) }
}
