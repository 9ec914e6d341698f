//! The words of a command, and the values that several commands have.

use std::num::NonZeroU32;

use super::{BadLease, CapBy, Excerpt, Limits, Malformed, Syntax};
use crate::{BindTo, Command, Lease, LeaseChoice, Mode, Owner, RequestId, SessionId, Token, UnixMs};

/// Reads words from left to right.
pub struct Words<I>(I);

impl<'call, I: Iterator<Item = &'call [u8]>> Words<I> {
    /// Returns a reader that begins at the first of these words.
    pub fn new(words: I) -> Words<I> {
        Words(words)
    }

    /// Returns the next word, if there is one.
    pub fn word(&mut self) -> Option<&'call [u8]> {
        self.0.next()
    }

    /// Returns the next word, which the command requires.
    pub fn required(&mut self) -> Result<&'call [u8], Malformed> {
        self.word().ok_or(Malformed::Arity)
    }

    /// Returns the value of `option`: the next word.
    pub fn value(&mut self, option: &'static str) -> Result<&'call [u8], Malformed> {
        self.word().ok_or(Malformed::Syntax(Syntax::NoValue(option)))
    }

    /// Returns the value of `option`, an integer.
    pub fn integer(&mut self, option: &'static str) -> Result<i64, Malformed> {
        integer(self.value(option)?, option)
    }

    /// Returns the next word as an integer, which the command requires. Errors call it `name`.
    pub fn required_integer(&mut self, name: &'static str) -> Result<i64, Malformed> {
        integer(self.required()?, name)
    }

    /// Returns the words that were not read yet.
    pub fn rest(self) -> I {
        self.0
    }

    /// Returns the limit of a semaphore: 1 to 2^32 - 1.
    pub fn limit(&mut self) -> Result<NonZeroU32, Malformed> {
        let limit = self.required_integer("limit")?;
        u32::try_from(limit).ok().and_then(NonZeroU32::new).ok_or(Malformed::Limit)
    }

    /// Returns the value of `PERMITS`: 1 to 2^32 - 1.
    pub fn permits(&mut self) -> Result<NonZeroU32, Malformed> {
        let permits = self.integer("PERMITS")?;
        u32::try_from(permits).ok().and_then(NonZeroU32::new).ok_or(Malformed::Permits)
    }

    /// Returns the value of `option`, a token.
    pub fn token(&mut self, option: &'static str) -> Result<Token, Malformed> {
        token(self.value(option)?, option)
    }

    /// Returns the value of `REQUEST`: the id of a command that may be sent twice.
    pub fn request(&mut self, command: Command) -> Result<RequestId, Malformed> {
        RequestId::new(command, self.value("REQUEST")?).ok_or(Malformed::RequestId)
    }

    /// Returns the value of `MAXHOLD`: how long the hold may last at most.
    pub fn cap(&mut self) -> Result<Lease, Malformed> {
        let ms = self.integer("MAXHOLD")?;
        u64::try_from(ms).ok().and_then(Lease::new).ok_or(Malformed::Cap)
    }

    /// Returns the value of `SESSIONID`: the id of a named session.
    pub fn session(&mut self) -> Result<SessionId, Malformed> {
        SessionId::new(self.value("SESSIONID")?).ok_or(Malformed::SessionId)
    }

    /// Returns the owner.
    pub fn owner(&mut self) -> Result<Owner, Malformed> {
        owner(self.required()?)
    }

    /// Returns the value of `BLOCK`: how long to wait, in ms; 0 is forever.
    pub fn timeout(&mut self) -> Result<u64, Malformed> {
        // The error for a word that is no integer is that of `XREAD BLOCK`.
        let ms = integer(self.value("BLOCK")?, "BLOCK").map_err(|_| Malformed::Timeout)?;
        match u64::try_from(ms) {
            Ok(ms) if ms <= UnixMs::MAX.get() => Ok(ms),
            Ok(_) => Err(Malformed::Timeout),
            Err(_) => Err(Malformed::NegativeTimeout),
        }
    }

    /// Returns the lease of the option `word`, which is `EX`, `PX`, `EXAT` or `PXAT`, and the option's name. Its value
    /// is the next word.
    pub fn lease(&mut self, word: &[u8], limits: Limits) -> Result<Given<LeaseChoice>, Malformed> {
        let (option, unit, is_absolute) = if is(word, "PX") {
            ("PX", 1, false)
        } else if is(word, "EX") {
            ("EX", 1000, false)
        } else if is(word, "PXAT") {
            ("PXAT", 1, true)
        } else if is(word, "EXAT") {
            ("EXAT", 1000, true)
        } else {
            return Err(unknown(word));
        };
        let invalid = |why| Malformed::ExpireTime(option, why);
        let number = self.integer(option)?;
        let given = number.checked_mul(unit).and_then(|ms| u64::try_from(ms).ok());
        let given =
            given.ok_or_else(|| invalid(if number > 0 { BadLease::TooLarge } else { too_early(is_absolute) }))?;
        let now = limits.now();
        let lease = if is_absolute { given.saturating_sub(now.get()) } else { given };
        if lease == 0 {
            return Err(invalid(too_early(is_absolute)));
        }
        // The server's own commands refuse a deadline that does not fit 64 bits with this error, too.
        if lease.checked_add(now.get()).is_none_or(|deadline| i64::try_from(deadline).is_err()) {
            return Err(invalid(BadLease::TooLarge));
        }
        let max = limits.max_lease;
        let lease = Lease::new(lease).filter(|lease| *lease <= max).ok_or(Malformed::LeaseTooLong(option, max))?;
        let choice = if is_absolute { LeaseChoice::Until(UnixMs::new(given)) } else { LeaseChoice::For(lease) };
        Ok((choice, option))
    }
}

fn too_early(is_absolute: bool) -> BadLease {
    if is_absolute { BadLease::Past } else { BadLease::NotPositive }
}

/// A value, and the option that has given it.
pub type Given<T> = (T, &'static str);

/// Returns the error for a word that is no option of the command.
#[cold]
pub fn unknown(word: &[u8]) -> Malformed {
    Malformed::Syntax(Syntax::Unknown(Excerpt::of(word)))
}

/// Returns whether `word` is `option`, in any case.
pub fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// Sets the value of `option`; a second one is an error.
pub fn once<T>(place: &mut Option<T>, value: T, option: &'static str) -> Result<(), Malformed> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed::Syntax(Syntax::Twice(option))),
    }
}

/// Sets the one value of a group of options that exclude each other.
pub fn one_of<T>(place: &mut Option<Given<T>>, (value, option): Given<T>) -> Result<(), Malformed> {
    match place.replace((value, option)) {
        None => Ok(()),
        Some((_, before)) => Err(exclude(option, before)),
    }
}

/// Returns the error for two options that exclude each other, or for one that was given twice. The order of the two is
/// that in the message, not always that in the command.
#[cold]
pub fn exclude(option: &'static str, other: &'static str) -> Malformed {
    Malformed::Syntax(if option == other { Syntax::Twice(option) } else { Syntax::Together(option, other) })
}

/// Returns the session that a command with this lease binds to. A lease that ends at a fixed time, and one that is too
/// short, are errors: the watchdog could not extend them.
pub fn binding(
    session: Option<Given<BindTo<SessionId>>>,
    lease: Option<Given<LeaseChoice>>,
) -> Result<BindTo<SessionId>, Malformed> {
    let Some((session, word)) = session else { return Ok(BindTo::Nothing) };
    match lease {
        Some((LeaseChoice::Until(_), option)) => Err(exclude(word, option)),
        Some((LeaseChoice::For(lease), _)) if !lease.can_be_bound() => Err(Malformed::SessionLease),
        Some((LeaseChoice::For(_) | LeaseChoice::Own, _)) | None => Ok(session),
    }
}

/// Returns how long the hold of a command with this lease and this session may last at most: `MAXHOLD` or
/// `dlock.max-hold`, the smaller of both. A given lease beyond that, and a cap that is too short for a session, are
/// errors.
pub fn cap(
    max_hold: Option<Lease>,
    limits: Limits,
    lease: Option<Given<LeaseChoice>>,
    session: &BindTo<SessionId>,
) -> Result<Option<Lease>, Malformed> {
    let (cap, by) = match (max_hold, limits.max_hold) {
        (Some(option), Some(max)) if max < option => (max, CapBy::Setting),
        (Some(option), _) => (option, CapBy::Option),
        (None, Some(max)) => (max, CapBy::Setting),
        (None, None) => return Ok(None),
    };
    if *session != BindTo::Nothing && !cap.can_be_bound() {
        return Err(Malformed::SessionCap(by));
    }
    let given = lease.and_then(|(lease, option)| match lease {
        LeaseChoice::Own => None,
        LeaseChoice::For(lease) => Some((lease.get(), option)),
        LeaseChoice::Until(end) => Some((end.since(limits.now()), option)),
    });
    match given {
        Some((ms, option)) if ms > cap.get() => Err(Malformed::LeaseOverCap(option, by, cap)),
        _ => Ok(Some(cap)),
    }
}

/// Checks that a `MINTOKEN` is not too far ahead of the clock.
pub fn check_lead(least: Token, limits: Limits) -> Result<(), Malformed> {
    if least.get() > limits.highest_min_token() { Err(Malformed::TokenAhead(limits.max_token_lead)) } else { Ok(()) }
}

/// Returns the owner of these bytes.
pub fn owner(bytes: &[u8]) -> Result<Owner, Malformed> {
    Owner::new(bytes).ok_or(Malformed::Owner)
}

/// Returns the token that is the value of `name`: an integer from 1 to 2^53.
pub fn token(bytes: &[u8], name: &'static str) -> Result<Token, Malformed> {
    u64::try_from(integer(bytes, name)?).ok().and_then(Token::new).ok_or(Malformed::Token(name))
}

/// Returns the mode an option names: `READ` or `WRITE`.
pub fn mode(word: &[u8]) -> Option<Given<Mode>> {
    if is(word, "READ") {
        Some((Mode::Shared, "READ"))
    } else if is(word, "WRITE") {
        Some((Mode::Exclusive, "WRITE"))
    } else {
        None
    }
}

/// Returns the value of `name`, an integer as the server reads one: decimal, no plus sign, no leading zeros.
pub fn integer(bytes: &[u8], name: &'static str) -> Result<i64, Malformed> {
    decimal(bytes).ok_or(Malformed::Integer(name))
}

fn decimal(bytes: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // "0" stands alone: "00", "-0" and "01" are no integers.
    if !matches!(digits, [b'1'..=b'9', ..]) && bytes != b"0" {
        return None;
    }
    let mut value: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        // Counts down from zero: `i64` has one more negative number than positive ones.
        value = if digit <= 9 { value.checked_mul(10)?.checked_sub(digit)? } else { return None };
    }
    if is_negative { Some(value) } else { value.checked_neg() }
}
