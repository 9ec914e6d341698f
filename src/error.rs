//! Every error a client can get, and its text. The first word is the code.

use std::borrow::Cow;

use dlock_core::{DecodeError, Lease, Owner, Request, Token};

use crate::ffi::key::WrongType;
use crate::sessions::MIN_LEASE_MS;

/// Why a command was not carried out. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The number of arguments.
    Arity,
    /// An unknown, repeated or misplaced option, or one without its value.
    Syntax,
    /// Not an integer, or beyond 64 bits.
    Integer,
    /// A lease that is not positive, overflows, or has passed.
    ExpireTime,
    /// A lease over `dlock.max-lease`.
    LeaseTooLong(Lease),
    /// An owner of no bytes, or of too many.
    Owner,
    /// A token out of range.
    Token,
    /// A `MINTOKEN` more than a day ahead of the clock.
    TokenAhead,
    /// A negative `COUNT`.
    Count,
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
    /// `BLOCK` is not an integer, or too large.
    Timeout,
    /// `BLOCK` is negative.
    NegativeTimeout,
    /// Waiting would be for ever; how.
    Deadlock(String),
    /// A request id of no bytes, or of too many.
    RequestId,
    /// `REQUEST` with an owner that the server makes up.
    RequestOfFreshOwner,
    /// `SESSION` where there is no client connection.
    NoConnection,
    /// `SESSION` with too short a lease.
    SessionLease,
    /// `dlock.max-waiters` wait already.
    TooManyWaiters,
    /// The key has left for another node of the cluster.
    TryAgain,
}

impl Error {
    /// The text as the client gets it, in Redis' wording where it has one. `command` names the command.
    pub fn text(&self, command: &str) -> Cow<'static, str> {
        let fixed = match self {
            Error::Arity => return of_command("wrong number of arguments for", command),
            Error::ExpireTime => return of_command("invalid expire time in", command),
            Error::LeaseTooLong(max) => {
                return format!("ERR lease is longer than dlock.max-lease, which is {} ms", max.get()).into();
            }
            Error::Owner => return format!("ERR owner must have 1 to {} bytes", Owner::MAX_LEN).into(),
            Error::Token => return format!("ERR token must be between 1 and {}", Token::MAX.get()).into(),
            Error::RequestId => return format!("ERR request id must have 1 to {} bytes", Request::MAX_LEN).into(),
            Error::SessionLease => return format!("ERR SESSION needs a lease of at least {MIN_LEASE_MS} ms").into(),
            Error::Deadlock(how) => return format!("DEADLOCK {how}").into(),
            Error::Effect(error) => return format!("ERR effect cannot be applied: {error}").into(),
            Error::Syntax => "ERR syntax error",
            Error::Integer => "ERR value is not an integer or out of range",
            Error::TokenAhead => "ERR token is more than a day ahead of the server's clock",
            Error::Count => "ERR COUNT can't be negative",
            Error::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Error::Ambiguous => "AMBIGUOUS owner holds the lock in both modes, say READ or WRITE",
            Error::ReadOnly => "READONLY You can't write against a read only replica.",
            Error::NotForClients => "NOPERM dlock.apply is taken from replication and from files only",
            Error::TooManyEntries => "ERR owner has entered the lock too often",
            Error::NoToken => "ERR fencing tokens are used up",
            Error::Timeout => "ERR timeout is not an integer or out of range",
            Error::NegativeTimeout => "ERR timeout is negative",
            Error::TooManyWaiters => "ERR max number of waiters reached",
            Error::RequestOfFreshOwner => "ERR REQUEST needs an owner, '*' is another one each time",
            Error::NoConnection => "ERR SESSION needs a client connection",
            Error::TryAgain => "TRYAGAIN The lock has moved to another node while the client waited",
        };
        fixed.into()
    }
}

fn of_command(what: &str, command: &str) -> Cow<'static, str> {
    format!("ERR {what} '{}' command", command.to_lowercase()).into()
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Error {
        Error::WrongType
    }
}
