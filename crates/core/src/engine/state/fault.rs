//! The errors of the engine, with the texts that clients read. The first word is the code.

use std::error::Error;
use std::fmt;

use crate::NoSession;
use crate::args::Malformed;
use crate::engine::keyspace::{NotOpen, WrongType};
use crate::engine::state::load::MAX_RENEWALS;
use crate::engine::state::records::record::MAX_RECORDED_KEY;

/// Why a request is an error. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The key holds another type.
    WrongType,
    /// The owner holds both modes and names none.
    Ambiguous,
    /// The hold would count more entries than a hold can.
    TooManyEntries,
    /// No fencing token is left.
    NoToken,
    /// The request would wait forever; the text says why.
    Deadlock(String),
    /// The name of a key is too long for a request that waits: see [`MAX_RECORDED_KEY`].
    WaitKey,
    /// The request would take more places in queues than `dlock.max-waiters`.
    TooManyWaiters,
    /// A hold that is bound to a session, or would be, needs a lease of at least 300 ms.
    SessionLease,
    /// A hold that is bound to a session cannot have an absolute lease.
    SessionAbsolute,
    /// The watchdog would have to extend this client's leases too often: see [`MAX_RENEWALS`].
    SessionLoad,
    /// The name of the key is too long for a hold that is bound to a session: see [`MAX_RECORDED_KEY`].
    SessionKey,
    /// The named session cannot be used.
    NoSession(NoSession),
    /// `dlock.max-sessions` named sessions are open already.
    TooManySessions,
    /// The user has `dlock.max-sessions-per-user` named sessions open already.
    TooManySessionsOfUser,
    /// A disabled user opens a named session.
    DisabledUser,
    /// The key is leaving for another node of the cluster.
    TryAgain,
    /// The server takes no change of the key for now.
    NotNow,
    /// The user of a request that waited no longer may run the command, or write one of its keys; or is deleted or
    /// disabled.
    NoRights,
}

/// The text that the client reads: in Redis' wording where it has one.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Fault::Ambiguous => "AMBIGUOUS owner holds the lock in both modes: add READ or WRITE",
            Fault::TooManyEntries => "ERR owner has entered the lock too often: 4294967295 entries at most",
            Fault::NoToken => "ERR fencing tokens are used up",
            Fault::Deadlock(how) => return write!(f, "DEADLOCK {how}"),
            Fault::WaitKey => return write!(f, "ERR BLOCK needs a key name of at most {MAX_RECORDED_KEY} bytes"),
            Fault::TooManyWaiters => "ERR max number of waiters reached: dlock.max-waiters",
            Fault::SessionLease => return f.write_str(&Malformed::SessionLease.text("")),
            Fault::SessionAbsolute => "ERR a hold bound to a session cannot have an absolute lease",
            Fault::SessionLoad => {
                let limit = "the renewals for one connection, or for the named sessions of a user, may not exceed";
                return write!(f, "ERR SESSION needs a longer lease or fewer holds: {limit} {MAX_RENEWALS} a second");
            }
            Fault::SessionKey => return write!(f, "ERR SESSION needs a key name of at most {MAX_RECORDED_KEY} bytes"),
            Fault::NoSession(NoSession::Unknown) => {
                "NOSESSION no such session, or it has ended: open it with DLOCK.SESSION id PX milliseconds"
            }
            Fault::NoSession(NoSession::Userless) => {
                "NOPERM a named session needs a user, which a module's call does not have"
            }
            Fault::TooManySessions => "ERR max number of named sessions reached: dlock.max-sessions",
            Fault::TooManySessionsOfUser => {
                "ERR max number of named sessions of one user reached: dlock.max-sessions-per-user"
            }
            Fault::DisabledUser => "NOPERM this user is disabled and cannot open a session",
            Fault::NotNow => "TRYAGAIN The server saves this key and takes no change of it now, repeat the command",
            Fault::TryAgain => "TRYAGAIN The lock has moved to another node while the client waited",
            Fault::NoRights => {
                "NOPERM this user was deleted or disabled while the client waited, or lost its permissions to run the \
                 command or to access its keys"
            }
        })
    }
}

impl Error for Fault {}

impl From<NotOpen> for Fault {
    fn from(why: NotOpen) -> Fault {
        match why {
            NotOpen::WrongType => Fault::WrongType,
            NotOpen::NotNow => Fault::NotNow,
        }
    }
}

impl From<WrongType> for Fault {
    fn from(_: WrongType) -> Fault {
        Fault::WrongType
    }
}
