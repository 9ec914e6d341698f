//! Why a failover ends without a new primary.

use dlock_client::Error;
use nix::sys::signal::Signal;

/// The end of a failover without a new primary, or without certainty about it.
pub enum Stop {
    /// The old primary is still the primary, for this reason.
    Kept(String),
    /// A server did not answer, or refused a command.
    Failed(Error),
    /// The command line does not fit the servers.
    Usage(String),
    /// A signal ended the failover. The old primary is still the primary.
    Ended(Signal),
    /// Nobody knows for sure which server is the primary. The text says what is known, and what to do.
    Unclear(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
