//! What the server remembers about one lock that needs attention: it has waiters, or holds that are bound to
//! connections. A lock without either has no record.

use std::rc::Rc;

use slotmap::new_key_type;

use super::Engine;
use super::bound::Bound;
use super::queue::{Queue, WaiterId};
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

impl<T> Engine<T> {
    #[inline]
    pub(super) fn find(&self, name: Name<'_>) -> Option<RecordId> {
        if self.records.is_empty() {
            return None;
        }
        let hash = self.hash(name);
        let is_it = |id: &RecordId| self.records.get(*id).is_some_and(|record| record.name() == name);
        self.names.find(hash, is_it).copied()
    }

    /// The record of a lock, up to date with what happened to its database and to the clients of its holds.
    #[inline]
    pub(super) fn look_up(&mut self, name: Name<'_>) -> Option<RecordId> {
        let id = self.find(name)?;
        self.refresh(id);
        Some(id)
    }

    pub(super) fn refresh(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(id) else { return };
        let db_epoch = self.db_epochs.get(&record.db).copied().unwrap_or(0);
        let is_stale = record.epoch < self.all_epoch.max(db_epoch);
        record.epoch = self.epoch;
        if is_stale {
            self.forget_bound(id);
            self.stir(id);
        }
        for index in 0..self.leaving.len() {
            let Some(leaving) = self.leaving.get_mut(index) else { break };
            if leaving.records.remove(&id) {
                let (client, end) = (leaving.client, leaving.end);
                self.end_session(id, client, end);
            }
        }
    }

    pub(super) fn find_or_create(&mut self, name: Name<'_>) -> RecordId {
        if let Some(id) = self.look_up(name) {
            return id;
        }
        let hash = self.hash(name);
        let id = self.records.insert(Box::new(Record {
            db: name.db,
            key: name.key.into(),
            hash,
            queue: Queue::default(),
            bound: Bound::default(),
            queue_due: None,
            attention: Attention::None,
            has_grace: false,
            was_deserted: false,
            epoch: self.epoch,
        }));
        let records = &self.records;
        self.names.insert_unique(hash, id, |id| records.get(*id).map_or(0, |record| record.hash));
        id
    }

    fn hash(&self, name: Name<'_>) -> u64 {
        use std::hash::BuildHasher;
        self.hasher.hash_one(name)
    }

    /// Forgets a record that has nothing left to remember.
    pub(super) fn drop_if_idle(&mut self, id: RecordId) {
        let Some(record) = self.records.get(id) else { return };
        if !record.is_idle() {
            return;
        }
        let hash = record.hash;
        self.set_attention(id, Attention::None);
        if let Ok(entry) = self.names.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        self.records.remove(id);
        let records = &self.records;
        if self.names.len() < self.names.capacity() / 8 {
            self.names.shrink_to(self.names.len() * 2, |id| records.get(*id).map_or(0, |record| record.hash));
        }
    }

    pub(super) fn head_of(&self, id: Option<RecordId>) -> Option<WaiterId> {
        self.records.get(id?)?.queue.head()
    }
}
