//! Every error a client can get, and its text. The first word is the code.

use std::borrow::Cow;

use dlock_core::args::Malformed;
use dlock_core::{DecodeError, Lease, Owner, Request, Token};

use crate::ffi::key::WrongType;

/// Why a command was not carried out. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The arguments say nothing.
    Malformed(Malformed),
    /// The key is of another type.
    WrongType,
    /// The owner holds both modes and names none.
    Ambiguous,
    /// Sent by a client to a replica.
    ReadOnly,
    /// `DLOCK.APPLY` from a client.
    NotForClients,
    /// The bytes of an effect are none.
    Effect(DecodeError),
    /// The owner has entered as often as can be counted.
    TooManyEntries,
    /// There is no fencing token left.
    NoToken,
    /// Waiting would be for ever; how.
    Deadlock(String),
    /// `SESSION` where there is no client connection.
    NoConnection,
    /// `dlock.max-waiters` wait already.
    TooManyWaiters,
    /// The key has left for another node of the cluster.
    TryAgain,
}

impl Error {
    /// The text as the client gets it, in Redis' wording where it has one. `command` names the command.
    pub fn text(&self, command: &str) -> Cow<'static, str> {
        let fixed = match self {
            Error::Malformed(what) => return malformed(*what, command),
            Error::Deadlock(how) => return format!("DEADLOCK {how}").into(),
            Error::Effect(error) => return format!("ERR effect cannot be applied: {error}").into(),
            Error::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Error::Ambiguous => "AMBIGUOUS owner holds the lock in both modes, say READ or WRITE",
            Error::ReadOnly => "READONLY You can't write against a read only replica.",
            Error::NotForClients => "NOPERM dlock.apply is taken from replication and from files only",
            Error::TooManyEntries => "ERR owner has entered the lock too often",
            Error::NoToken => "ERR fencing tokens are used up",
            Error::TooManyWaiters => "ERR max number of waiters reached",
            Error::NoConnection => "ERR SESSION needs a client connection",
            Error::TryAgain => "TRYAGAIN The lock has moved to another node while the client waited",
        };
        fixed.into()
    }
}

fn malformed(what: Malformed, command: &str) -> Cow<'static, str> {
    let fixed = match what {
        Malformed::Arity => return of_command("wrong number of arguments for", command),
        Malformed::ExpireTime => return of_command("invalid expire time in", command),
        Malformed::LeaseTooLong(max) => {
            return format!("ERR lease is longer than dlock.max-lease, which is {} ms", max.get()).into();
        }
        Malformed::Owner => return format!("ERR owner must have 1 to {} bytes", Owner::MAX_LEN).into(),
        Malformed::Token => return format!("ERR token must be between 1 and {}", Token::MAX.get()).into(),
        Malformed::RequestId => return format!("ERR request id must have 1 to {} bytes", Request::MAX_LEN).into(),
        Malformed::SessionLease => {
            return format!("ERR SESSION needs a lease of at least {} ms", Lease::MIN_BOUND.get()).into();
        }
        Malformed::Syntax => "ERR syntax error",
        Malformed::Integer => "ERR value is not an integer or out of range",
        Malformed::TokenAhead => "ERR token is more than a day ahead of the server's clock",
        Malformed::Count => "ERR COUNT can't be negative",
        Malformed::Timeout => "ERR timeout is not an integer or out of range",
        Malformed::NegativeTimeout => "ERR timeout is negative",
        Malformed::RequestOfFreshOwner => "ERR REQUEST needs an owner, '*' is another one each time",
    };
    fixed.into()
}

fn of_command(what: &str, command: &str) -> Cow<'static, str> {
    format!("ERR {what} '{}' command", command.to_lowercase()).into()
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Error {
        Error::WrongType
    }
}

impl From<Malformed> for Error {
    fn from(what: Malformed) -> Error {
        Error::Malformed(what)
    }
}
