//! The holds of one session on one lock, and the end of a session.

use crate::holds::Deadlines;
use crate::{Lease, UnixMs};

/// A session with holds on the lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub deadlines: Deadlines,
    pub end: Option<SessionEnd>,
    /// Whether the session has ended and its deadlines are also in the set that it shares with others.
    pub shares_deadlines: bool,
}

impl Session {
    pub(super) fn holds(&self) -> i64 {
        self.deadlines.total().holds.cast_signed() as i64
    }
}

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionEnd {
    /// When the session ended.
    pub at: UnixMs,
    /// How long the holds may stay after the end.
    pub grace: Option<Lease>,
}

impl SessionEnd {
    /// Returns the deadline that the end of the session gives to its holds.
    pub(crate) fn deadline(self) -> UnixMs {
        self.grace.map_or(self.at, |grace| self.at.plus(grace))
    }
}
