//! Every error a client can get, and its text. The first word is the code; the core words those about arguments.

use std::borrow::Cow;

use dlock_core::args::Malformed;
use dlock_core::engine::{Fault, MAX_BOUND_KEY, MAX_RENEWALS, WrongType};
use dlock_core::{DecodeError, NoSession};

use crate::ffi::command::ErrorReply;
use crate::state::Busy;

/// Why a command was not carried out. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The arguments are invalid.
    Malformed(Malformed),
    /// The engine refuses.
    Fault(Fault),
    /// A client sent it to a replica.
    ReadOnly,
    /// The running transaction or script has begun a pause of all writes.
    HeldStill,
    /// A client sent `DLOCK.APPLY`.
    NotForClients,
    /// The bytes are no effect.
    Effect(DecodeError),
    /// `SESSION` where there is no client connection.
    NoConnection,
    /// `LOG` has no such subcommand.
    Subcommand(String),
    /// The user may not see the log.
    NotForUser,
    /// The engine is at work.
    Busy,
}

impl ErrorReply for Error {
    /// In Redis' wording where it has one.
    fn text(&self, command: &str) -> Cow<'static, str> {
        let fixed = match self {
            Error::Malformed(what) => return what.text(command),
            Error::Fault(Fault::Deadlock(how)) => return format!("DEADLOCK {how}").into(),
            Error::Effect(error) => return format!("ERR invalid effect: {error}").into(),
            Error::Subcommand(name) => return format!("ERR unknown subcommand '{name}'. Try {command} HELP.").into(),
            Error::Fault(Fault::SessionLease) => return Malformed::SessionLease.text(command),
            Error::Fault(Fault::WrongType) => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Error::Fault(Fault::Ambiguous) => "AMBIGUOUS owner holds the lock in both modes: add READ or WRITE",
            Error::Fault(Fault::TooManyEntries) => {
                "ERR owner has entered the lock too often: 4294967295 entries at most"
            }
            Error::Fault(Fault::NoToken) => "ERR fencing tokens are used up",
            Error::Fault(Fault::TooManyWaiters) => "ERR max number of waiters reached: dlock.max-waiters",
            Error::Fault(Fault::SessionAbsolute) => "ERR a hold bound to a session cannot have an absolute lease",
            Error::Fault(Fault::SessionLoad) => return session_load().into(),
            Error::Fault(Fault::SessionKey) => {
                return format!("ERR SESSION needs a key name of at most {MAX_BOUND_KEY} bytes").into();
            }
            Error::Fault(Fault::NoSession(NoSession::Unknown)) => {
                "NOSESSION no such session, or it has ended: open it with DLOCK.SESSION id PX milliseconds"
            }
            Error::Fault(Fault::NoSession(NoSession::Foreign)) => "NOPERM this session belongs to another user",
            Error::Fault(Fault::NoSession(NoSession::Userless)) => {
                "NOPERM a named session needs a user, which a module's call does not have"
            }
            Error::Fault(Fault::TooManySessions) => "ERR max number of named sessions reached: dlock.max-sessions",
            Error::Fault(Fault::TryAgain) => "TRYAGAIN The lock has moved to another node while the client waited",
            Error::ReadOnly => "READONLY You can't write against a read only replica.",
            Error::HeldStill => "TRYAGAIN Writes are paused (CLIENT PAUSE, failover), repeat the command afterwards",
            Error::NotForClients => "NOPERM dlock.apply is accepted only from replication and from files",
            Error::NotForUser => {
                "NOPERM this user has no permissions to run SLOWLOG, which dlock.log needs on this server"
            }
            Error::NoConnection => "ERR SESSION needs a client connection",
            Error::Busy => "ERR dlock is busy: a module must not run its commands from a notification",
        };
        fixed.into()
    }
}

fn session_load() -> String {
    let limit = "the renewals for one connection, or for the named sessions of a user, may not exceed";
    format!("ERR SESSION needs a longer lease or fewer holds: {limit} {MAX_RENEWALS} a second")
}

impl From<WrongType> for Error {
    fn from(WrongType: WrongType) -> Error {
        Error::Fault(Fault::WrongType)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::Fault(fault)
    }
}

impl From<Malformed> for Error {
    fn from(what: Malformed) -> Error {
        Error::Malformed(what)
    }
}

impl From<Busy> for Error {
    fn from(Busy: Busy) -> Error {
        Error::Busy
    }
}
