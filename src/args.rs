//! Arguments of a command, read once from left to right into values that cannot be wrong.

use dlock_core::{Command, Lease, LeaseChoice, Mode, Owner, Request, Token, UnixMs};

use crate::error::Error;
use crate::ffi::command::Arguments;
use crate::ffi::context::{Context, Now};
use crate::ffi::key::Name;
use crate::sessions::is_long_enough;
use crate::state::state;

/// Reads arguments from left to right. The first three are the command, the key and, mostly, the owner.
pub struct Cursor<'call> {
    arguments: &'call Arguments<'call>,
    at: usize,
}

impl<'call> Cursor<'call> {
    /// Begins at the key.
    pub fn new(arguments: &'call Arguments<'call>) -> Cursor<'call> {
        Cursor { arguments, at: 1 }
    }

    /// The key.
    pub fn key(&mut self) -> Result<Name<'call>, Error> {
        self.at += 1;
        self.arguments.key().ok_or(Error::Arity)
    }

    /// The next argument, if there is one: an option's word.
    pub fn word(&mut self) -> Option<&'call [u8]> {
        let word = self.arguments.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// An argument that every call has.
    pub fn required(&mut self) -> Result<&'call [u8], Error> {
        self.word().ok_or(Error::Arity)
    }

    /// The value of the option whose word was read last.
    pub fn value(&mut self) -> Result<&'call [u8], Error> {
        self.word().ok_or(Error::Syntax)
    }

    /// The value of an option, an integer.
    pub fn integer(&mut self) -> Result<i64, Error> {
        integer(self.value()?)
    }

    /// The owner.
    pub fn owner(&mut self) -> Result<Owner, Error> {
        Owner::new(self.required()?).ok_or(Error::Owner)
    }
}

/// Whether `word` is `option`, in any case.
pub fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// Takes note of an option's value; a second one is an error.
pub fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Error> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::Syntax),
    }
}

/// A token: an integer from 1 to 2^53.
pub fn token(bytes: &[u8]) -> Result<Token, Error> {
    u64::try_from(integer(bytes)?).ok().and_then(Token::new).ok_or(Error::Token)
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

/// The lease an option names, if `word` is such an option: `EX`, `PX`, `EXAT` or `PXAT`, and the value after it.
pub fn lease(word: &[u8], cursor: &mut Cursor, now: Now) -> Result<Option<LeaseChoice>, Error> {
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
    let given = cursor.integer()?.checked_mul(unit).and_then(|ms| u64::try_from(ms).ok()).ok_or(Error::ExpireTime)?;
    let now = now.millis();
    let lease = if is_absolute { given.saturating_sub(now.get()) } else { given };
    let overflows = lease.checked_add(now.get()).is_none_or(|deadline| i64::try_from(deadline).is_err());
    if lease == 0 || overflows {
        return Err(Error::ExpireTime);
    }
    let max = state().settings.max_lease();
    let lease = Lease::new(lease).filter(|lease| *lease <= max).ok_or(Error::LeaseTooLong(max))?;
    Ok(Some(if is_absolute { LeaseChoice::Until(UnixMs::new(given)) } else { LeaseChoice::For(lease) }))
}

/// What makes a command known that is sent twice.
pub fn request(command: Command, id: &[u8]) -> Result<Request, Error> {
    Request::new(command, id).ok_or(Error::RequestId)
}

/// The client to bind a hold to, which must be connected. The lease must be one that can be moved on.
pub fn session(context: &Context, lease: LeaseChoice) -> Result<u64, Error> {
    match lease {
        LeaseChoice::Until(_) => return Err(Error::Syntax),
        LeaseChoice::For(lease) if !is_long_enough(lease) => return Err(Error::SessionLease),
        LeaseChoice::For(_) | LeaseChoice::Own => {}
    }
    context.connected_client().ok_or(Error::NoConnection)
}

/// For how long to wait, in ms; 0 is for ever.
pub fn timeout(bytes: &[u8]) -> Result<u64, Error> {
    let ms = integer(bytes).map_err(|_| Error::Timeout)?;
    match u64::try_from(ms) {
        Ok(ms) if ms <= UnixMs::MAX.get() => Ok(ms),
        Ok(_) => Err(Error::Timeout),
        Err(_) => Err(Error::NegativeTimeout),
    }
}

/// An integer as the server reads one: decimal, no plus sign, no leading zeros.
fn integer(bytes: &[u8]) -> Result<i64, Error> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let is_plain = match digits {
        [] => false,
        [b'0'] => digits.len() == bytes.len(),
        [first, ..] => (b'1'..=b'9').contains(first),
    };
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_plain);
    text.and_then(|text| text.parse().ok()).ok_or(Error::Integer)
}
