//! When a lock is visited next, and for what.

use crate::{ClientId, UnixMs};

/// Where the engine finds a record that needs a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// The record needs no visit.
    None,
    /// In the agenda, at this time.
    At(UnixMs),
    /// In a lane of locks that are due.
    Due(Due),
}

/// The place of a lock that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub lane: Lane,
    pub position: Position,
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Requests wait: ended holds are released, and the queue is served. Paid by the head of the queue.
    Queues,
    /// Leases are extended. Paid by the client that has the hold.
    Renewals,
    /// Holds of ended sessions are released, and nobody waits.
    Ended,
    /// Bindings of lapsed holds are forgotten.
    Lapsed,
}

/// A position among the locks that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub client: ClientId,
    /// The earliest comes first.
    pub urgency: UnixMs,
    /// Orders positions of the same client and urgency: the lowest comes first.
    pub number: u64,
}
