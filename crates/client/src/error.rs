//! The reasons why there is no lock, told apart by what the caller can do.

use std::fmt;
use std::sync::Arc;

use redis::RedisError;

/// Why a lock was not got, or is not held any more.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The lock was not free in time: another owner holds it, or waits before this request. A server has said so at
    /// some time during the wait.
    Contention,
    /// No server answered, or the one that did cannot serve now, such as a replica or a server that starts. The last
    /// command may or may not have been executed; if it was granted, the lock is released in the background, and lapses
    /// with its lease at the latest.
    Unreachable(Cause),
    /// No majority of the servers of a quorum answers. The text says how many do, and why the others do not. Grants are
    /// released in the background, and lapse with their leases at the latest.
    TooFew(String),
    /// Fewer replicas than asked for acknowledged the grant or the renewal in time. A grant is released; if the server
    /// does not answer, in the background.
    #[non_exhaustive]
    TooFewReplicas {
        /// The number of replicas that acknowledged.
        acknowledged: u32,
        /// The number that was asked for.
        wanted: u32,
    },
    /// The lock was held and is not any more: its lease or its session ended, it was deleted or broken, or a failover
    /// lost it.
    Lost,
    /// The [`Session`](crate::Session) of the acquisition is not open, and why. Nothing is held.
    SessionEnded(String),
    /// The server answered with an error. Nothing was changed.
    Refused(Cause),
    /// The URL or an argument makes no sense, or the call does not go with this client or guard. Nothing was sent.
    Invalid(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contention => f.write_str("the lock is held by somebody else"),
            Self::Unreachable(cause) => write!(f, "no server answers: {cause}"),
            Self::TooFew(why) => write!(f, "too few servers answer: {why}"),
            Self::TooFewReplicas { acknowledged, wanted } => {
                write!(f, "{acknowledged} of {wanted} replicas acknowledged in time")
            }
            Self::Lost => f.write_str("the lock was lost"),
            Self::SessionEnded(why) => write!(f, "the session is not open: {why}"),
            Self::Refused(cause) if cause.is_module_missing() => {
                write!(f, "the server refused: {cause} (is the dlock module loaded?)")
            }
            Self::Refused(cause) => write!(f, "the server refused: {cause}"),
            Self::Invalid(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable(cause) | Self::Refused(cause) => std::error::Error::source(cause),
            _ => None,
        }
    }
}

/// The reason of an [`Error`]: the server's answer, the failure of the connection, or the lack of a reply in time.
///
/// [`std::error::Error::source`] of the [`Error`] is the error of the crate `redis`, if there is one.
#[derive(Clone, Debug)]
pub struct Cause {
    code: Option<String>,
    message: String,
    source: Option<Arc<RedisError>>,
}

impl Cause {
    /// Returns the first word of the server's error, such as `WRONGTYPE`, `DEADLOCK` or `READONLY`; `None` if no server
    /// answered with an error.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Returns the server's error with its code, or what failed at the client.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether the server does not know the commands of dlock.
    pub fn is_module_missing(&self) -> bool {
        // The name of the command must be one of dlock: an agent says `unknown command` of other commands, too.
        let message = self.message.to_ascii_lowercase();
        ["unknown command 'dlock.", "unknown command `dlock."].iter().any(|unknown| message.contains(unknown))
    }

    /// Returns whether the connection or the server reported the failure, and not a timeout of the client. If the
    /// outcome of a command is unknown, the connection then ended, or the server ended the wait.
    pub(crate) fn is_end_of_connection(&self) -> bool {
        self.source.as_ref().is_some_and(|error| !error.is_timeout())
    }

    /// Adds the address of the server to the message.
    pub(crate) fn at(self, address: impl fmt::Display) -> Self {
        Self { message: format!("{address}: {}", self.message), ..self }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<RedisError> for Cause {
    fn from(error: RedisError) -> Self {
        let code = error.code().map(str::to_owned);
        let message = match (&code, error.detail()) {
            (Some(code), Some(detail)) => format!("{code} {detail}"),
            _ => error.to_string(),
        };
        Self { code, message, source: Some(Arc::new(error)) }
    }
}

impl From<String> for Cause {
    fn from(message: String) -> Self {
        Self { code: None, message, source: None }
    }
}

impl From<&str> for Cause {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}
