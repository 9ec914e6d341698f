//! Why a hand-over ends without a new primary.

use dlock_client::Error;
use nix::sys::signal::Signal;

/// Why it did not come to a new primary.
pub enum Stop {
    /// The old primary is in charge, as before.
    Kept(String),
    /// Nothing was changed, since this could not be found out.
    Failed(Error),
    /// The command line does not go with the servers.
    Usage(String),
    /// Ended by a signal, with the old primary in charge.
    Ended(Signal),
    /// Nobody knows for sure which server is in charge: what is known, and what to do.
    Unclear(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
