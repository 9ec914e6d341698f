//! The outcome of one renewal.

use std::time::{Duration, Instant};

use crate::server::fault::Fault;

/// How one renewal went.
pub(crate) enum Renewal {
    /// Executed, with the lease that was asked for.
    Executed,
    /// Executed, but a cap made the lease shorter: the server knows for how long.
    Capped,
    /// Held until this time, as a quorum counts.
    Until(Instant),
    /// The server was only asked: the hold lasts this long after the question was sent.
    Left(Duration),
    /// Not held any more.
    Gone,
    /// No usable answer: the hold is as it was, or was renewed although no answer came.
    Failed(Fault),
}
