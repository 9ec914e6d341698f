//! Every error a client can get, and its text. The first word is the code. Errors of the core have their own texts.

use std::borrow::Cow;

use dlock_core::DecodeError;
use dlock_core::args::Malformed;
use dlock_core::engine::{Fault, NotOpen};

use crate::ffi::command::ErrorReply;
use crate::state::Busy;

/// Why a command was not carried out. The command has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The arguments are invalid.
    Malformed(Malformed),
    /// The engine refuses.
    Fault(Fault),
    /// A client sent the command to a replica.
    ReadOnly,
    /// The running transaction, script or module's call has begun a pause of writes, and this command would write.
    HeldStill,
    /// A client sent `DLOCK.APPLY`.
    NotForClients,
    /// The bytes are no effect.
    Effect(DecodeError),
    /// `SESSION` where there is no client connection.
    NoConnection,
    /// `LOG` has no such subcommand. The text is the whole error.
    Subcommand(String),
    /// The user may not read the log, because the log asks for the right to this command.
    NotForUser(&'static str),
    /// The user may not name the sessions of others.
    NotOperator,
    /// The engine is at work: another module runs a command from a notification.
    Busy,
}

impl ErrorReply for Error {
    /// Returns the text of the error, in Redis' wording where it has one.
    fn text(&self, command: &str) -> Cow<'static, str> {
        let fixed = match self {
            Error::Malformed(what) => return what.text(command),
            Error::Fault(fault) => return fault.to_string().into(),
            Error::NotForUser(command) => {
                let lacks = format!("NOPERM this user has no permissions to run {command}");
                return format!("{lacks}, which dlock.log needs on this server").into();
            }
            Error::Effect(error) => return format!("ERR invalid effect: {error}").into(),
            Error::Subcommand(text) => return text.clone().into(),
            Error::ReadOnly => "READONLY You can't write against a read only replica.",
            Error::HeldStill => "TRYAGAIN Writes are paused (CLIENT PAUSE, failover), repeat the command afterwards",
            Error::NotForClients => "NOPERM dlock.apply is accepted only from replication and from files",
            Error::NotOperator => {
                "NOPERM this user has no permissions to run CLIENT KILL, which USER needs for another user's sessions"
            }
            Error::NoConnection => "ERR SESSION needs a client connection",
            Error::Busy => "ERR dlock is busy: a module must not run its commands from a notification",
        };
        fixed.into()
    }
}

impl From<NotOpen> for Error {
    fn from(why: NotOpen) -> Error {
        Error::Fault(why.into())
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
