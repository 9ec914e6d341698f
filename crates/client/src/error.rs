//! Why there is no lock, told apart by what the caller can do about it.

use std::fmt;

/// Why a lock was not got, or is not held any more.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else has the lock, or waits for it, and did not leave in time. Nothing went wrong.
    Contention,
    /// No server answered. Whether the last command was executed is not known; what it may have taken is released in
    /// the background, and lapses with its lease at the latest.
    Unreachable(String),
    /// Of the servers of a quorum, no majority answers: how many, and why not the others. What they may have granted is
    /// released in the background, and lapses with its lease at the latest.
    TooFew(String),
    /// The lock was held and is not any more: its lease ran out, it was deleted, or a failover lost it.
    Lost,
    /// The server answered with an error, which is this text. Nothing was changed.
    Refused(String),
    /// The URL or an argument makes no sense. Nothing was sent.
    Invalid(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contention => f.write_str("the lock is held by somebody else"),
            Self::Unreachable(why) => write!(f, "no server answers: {why}"),
            Self::TooFew(why) => write!(f, "too few servers answer: {why}"),
            Self::Lost => f.write_str("the lock was lost"),
            Self::Refused(why) => write!(f, "the server refused: {why}"),
            Self::Invalid(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}
