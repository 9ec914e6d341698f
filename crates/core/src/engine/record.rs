//! What the server remembers about one lock that needs attention: it has waiters, or holds that are bound to
//! connections. A lock without either has no record.

use std::rc::Rc;

use slotmap::new_key_type;

use super::bound::Bound;
use super::queue::Queue;
use crate::{Name, UnixMs};

new_key_type! {
    pub(super) struct RecordId;
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub hash: u64,
    pub queue: Queue,
    pub bound: Bound,
    /// When the queue is due next: a lease ends.
    pub queue_due: Option<UnixMs>,
    pub attention: Attention,
    /// Whether the TTL of the key is longer than its leases, because there was a waiter.
    pub has_grace: bool,
    /// The last waiter has left: if the lock is free, that shows in `INFO`.
    pub was_deserted: bool,
    /// Which flush of its database it has seen.
    pub epoch: u64,
}

/// Where the engine finds a record that needs a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attention {
    /// It needs none.
    None,
    /// In the agenda, at this time.
    At(UnixMs),
    /// Among those whose time has come; the most urgent has the earliest deadline.
    Overdue(UnixMs),
    /// Among those that are visited before the end of the turn.
    Now,
}

impl Record {
    pub(super) fn name(&self) -> Name<'_> {
        Name { db: self.db, key: &self.key }
    }

    /// Whether nothing is left to remember.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.bound.is_empty() && !self.has_grace && !self.was_deserted
    }
}
