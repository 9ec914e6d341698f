//! The engine's memory of one lock that has waiters, or holds that are bound to sessions. A lock without either loses
//! its record when a visit has cleaned up after the last waiter: see [`Record::is_idle`].

use std::cell::Cell;
use std::rc::Rc;

use crate::cluster_slot::cluster_slot;
use crate::engine::state::ids::RecordId;
use crate::engine::state::records::attention::Attention;
use crate::engine::state::records::session_holds::SessionHolds;
use crate::engine::state::waiting::queue::Queue;
use crate::{Name, UnixMs};

/// The longest name of a key, in bytes, that can have waiters or holds that are bound to sessions. Each visit of the
/// lock copies the name, and each renewal copies it to replicas and files: a client that pays for a long name once would
/// keep the server busy for as long as it waits or holds.
pub const MAX_RECORDED_KEY: usize = 65_536;

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub id: RecordId,
    pub db: i32,
    pub key: Rc<[u8]>,
    pub hash: u64,
    pub queue: Queue,
    pub bound: SessionHolds,
    /// When the queue is due next, because a lease ends.
    pub queue_due: Option<UnixMs>,
    /// When holds are released and the queue is served.
    pub attention: Attention,
    /// When leases are extended.
    pub renewal: Attention,
    /// Whether the TTL of the key is longer than its leases, because there was a waiter.
    pub has_ttl_grace: bool,
    /// Whether the last waiter has left and clients that track the key were not told yet: `INFO` of a free lock
    /// changes.
    pub lost_last_waiter: bool,
    /// The epoch (see [`Databases`](super::databases::Databases)) in which the record was checked last.
    pub epoch: u64,
    /// The place of the record in the list of its database.
    pub index: usize,
    /// The slot of its key in the cluster, once that was asked for.
    pub slot: Cell<Option<u16>>,
    /// The last generation of ends of large sessions that the record has seen.
    pub ends_generation: u64,
}

impl Record {
    pub(crate) fn name(&self) -> Name<'_> {
        Name { db: self.db, key: &self.key }
    }

    /// Returns the slot of its key in the cluster. Finding it takes a step for each byte of the name, once.
    pub(crate) fn slot_in_cluster(&self) -> u16 {
        let slot = self.slot.get().unwrap_or_else(|| cluster_slot(&self.key));
        self.slot.set(Some(slot));
        slot
    }

    /// Returns whether nothing is left to remember.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.bound.is_empty() && !self.has_ttl_grace && !self.lost_last_waiter
    }

    /// Returns whether holds must be released, or the queue served, before the end of the turn.
    pub(crate) fn is_due(&self) -> bool {
        matches!(self.attention, Attention::Due(_)) || self.bound.has_ended() || self.lost_last_waiter
    }
}
