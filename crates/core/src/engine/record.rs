//! What the server remembers about one lock that needs attention: it has waiters, or holds that are bound to
//! connections. A lock without either has no record.

use std::rc::Rc;

use slotmap::new_key_type;
use smallvec::SmallVec;

use super::Engine;
use super::bound::Bound;
use super::lanes::Due;
use super::queue::{Queue, WaiterId};
use crate::{ClientId, Name, UnixMs};

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
    /// When holds are released and the queue is served.
    pub attention: Attention,
    /// When leases are extended.
    pub renewal: Attention,
    /// Whether the TTL of the key is longer than its leases, because there was a waiter.
    pub has_grace: bool,
    /// The last waiter has left: if the lock is free, that shows in `INFO`.
    pub was_deserted: bool,
    /// Which flush of its database it has seen.
    pub epoch: u64,
    /// Its place in the list of its database.
    pub index: usize,
    /// How many ends of large sessions it has seen.
    pub leaves: u64,
}

/// Where the engine finds a record that needs a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attention {
    /// It needs none.
    None,
    /// In the agenda, at this time.
    At(UnixMs),
    /// Among those that are due.
    Due(Due),
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
        let is_it = |id| self.records.get(id).is_some_and(|record| record.name() == name);
        self.names.find(hash, |(its, id)| *its == hash && is_it(*id)).map(|(_, id)| *id)
    }

    /// The record of a lock, up to date with what happened to its database and to the clients of its holds.
    #[inline]
    pub(super) fn look_up(&mut self, name: Name<'_>) -> Option<RecordId> {
        let id = self.find(name)?;
        self.refresh(id);
        Some(id)
    }

    pub(super) fn refresh(&mut self, id: RecordId) {
        self.notice_flush(id);
        self.notice_ends(id);
    }

    /// Forgets what was bound if the database was emptied or has changed places since.
    pub(super) fn notice_flush(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(id) else { return };
        let is_stale = record.epoch < self.databases.epoch(record.db);
        record.epoch = self.databases.now();
        if is_stale {
            self.forget_lock(id);
        }
    }

    /// Ends the sessions of this lock that have ended with more locks than were looked at so far. Each is looked for
    /// once, from the shorter list.
    fn notice_ends(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(id) else { return };
        let leaves = std::mem::replace(&mut record.leaves, self.leaves);
        if leaves == self.leaves || self.leaving.is_empty() {
            return;
        }
        let (bound, leaving) = (&record.bound, &self.leaving);
        let clients: SmallVec<[ClientId; 4]> = if bound.sessions() < leaving.len() {
            bound.clients().filter(|client| leaving.contains_key(client)).collect()
        } else {
            leaving.keys().copied().filter(|client| bound.has_client(*client)).collect()
        };
        for client in clients {
            let Some(leaving) = self.leaving.get_mut(&client) else { continue };
            if leaving.records.remove(&id) {
                let end = leaving.end;
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
            renewal: Attention::None,
            has_grace: false,
            was_deserted: false,
            epoch: self.databases.now(),
            index: 0,
            leaves: self.leaves,
        }));
        let index = self.databases.add(name.db, id);
        if let Some(record) = self.records.get_mut(id) {
            record.index = index;
        }
        self.names.insert_unique(hash, (hash, id), |(hash, _)| *hash);
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
        let (hash, db, index) = (record.hash, record.db, record.index);
        self.unschedule(id);
        if let Some(moved) = self.databases.remove(db, index).and_then(|moved| self.records.get_mut(moved)) {
            moved.index = index;
        }
        if let Ok(entry) = self.names.find_entry(hash, |(_, other)| *other == id) {
            entry.remove();
        }
        self.records.remove(id);
        if self.names.len() < self.names.capacity() / 8 {
            self.names.shrink_to(self.names.len() * 2, |(hash, _)| *hash);
        }
    }

    pub(super) fn head_of(&self, id: Option<RecordId>) -> Option<WaiterId> {
        self.records.get(id?)?.queue.head()
    }
}
