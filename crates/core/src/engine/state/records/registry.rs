//! The records of locks, found by name and by database. A record has what the engine knows of a lock beside its key.

use std::cell::Cell;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use slotmap::SlotMap;

use crate::Name;
use crate::engine::state::ids::RecordId;
use crate::engine::state::records::attention::Attention;
use crate::engine::state::records::databases::Databases;
use crate::engine::state::records::record::Record;
use crate::engine::state::records::session_holds::SessionHolds;
use crate::engine::state::waiting::queue::Queue;

/// The events on a lock since its record was looked at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Nothing,
    /// An event may have been missed.
    Doubted,
    /// The record is void: its database was emptied or has changed places, or the slot of its key has moved.
    Void,
}

#[derive(Clone, Debug)]
pub(crate) struct Registry {
    /// Boxed, because the map keeps the places of removed records.
    records: SlotMap<RecordId, Box<Record>>,
    /// The ids of records by name. The hashes are kept, so that growing the table reads no record.
    names: HashTable<(u64, RecordId)>,
    databases: Databases,
    hasher: FixedState,
}

impl Registry {
    pub(crate) fn new(hasher: FixedState) -> Registry {
        Registry { records: SlotMap::with_key(), names: HashTable::new(), databases: Databases::default(), hasher }
    }

    /// Returns whether no lock has a record.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the id of a lock's record, if it has one.
    #[inline]
    pub(crate) fn find(&self, name: Name<'_>) -> Option<RecordId> {
        if self.is_empty() { None } else { self.find_by_hash(name) }
    }

    // Not inlined, so that `find` is small, and a command on a server without records calls no function.
    #[inline(never)]
    fn find_by_hash(&self, name: Name<'_>) -> Option<RecordId> {
        let hash = self.hash(name);
        let is_it = |id| self.records.get(id).is_some_and(|record| record.name() == name);
        self.names.find(hash, |(its, id)| *its == hash && is_it(*id)).map(|(_, id)| *id)
    }

    /// Returns the record of a lock, by its name.
    pub(crate) fn record_of(&self, name: Name<'_>) -> Option<&Record> {
        self.get(self.find(name)?)
    }

    pub(crate) fn get(&self, id: RecordId) -> Option<&Record> {
        self.records.get(id).map(|record| &**record)
    }

    pub(crate) fn get_mut(&mut self, id: RecordId) -> Option<&mut Record> {
        self.records.get_mut(id).map(|record| &mut **record)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.values().map(|record| &**record)
    }

    /// Returns a record to look at, and what has happened since the last look.
    pub(crate) fn look_at(&mut self, id: RecordId) -> Option<(&mut Record, Since)> {
        let record = self.records.get_mut(id)?;
        let since = match (self.databases.is_stale(record), self.databases.is_doubted(record)) {
            (true, _) => Since::Void,
            (false, true) => Since::Doubted,
            (false, false) => Since::Nothing,
        };
        record.epoch = self.databases.now();
        Some((record, since))
    }

    /// Returns whether the database of a record was emptied or has changed places since the last look, or the slot of
    /// its key has left or arrived.
    pub(crate) fn is_stale(&self, record: &Record) -> bool {
        self.databases.is_stale(record)
    }

    /// Adds a record for a lock that has none.
    pub(crate) fn add(&mut self, name: Name<'_>, ends_generation: u64) -> RecordId {
        debug_assert!(self.find(name).is_none(), "a lock has one record");
        let hash = self.hash(name);
        let epoch = self.databases.now();
        let databases = &mut self.databases;
        let id = self.records.insert_with_key(|id| {
            Box::new(Record {
                id,
                db: name.db,
                key: name.key.into(),
                hash,
                queue: Queue::default(),
                bound: SessionHolds::default(),
                queue_due: None,
                attention: Attention::None,
                renewal: Attention::None,
                has_ttl_grace: false,
                lost_last_waiter: false,
                epoch,
                index: databases.add(name.db, id),
                slot: Cell::new(None),
                ends_generation,
            })
        });
        self.names.insert_unique(hash, (hash, id), |(hash, _)| *hash);
        id
    }

    /// Removes a record that needs no visit.
    pub(crate) fn remove(&mut self, id: RecordId) {
        let Some(record) = self.records.remove(id) else { return debug_assert!(false, "a record is removed twice") };
        debug_assert_eq!((record.attention, record.renewal), (Attention::None, Attention::None));
        let moved = self.databases.remove(record.db, record.index);
        if let Some(moved) = moved.and_then(|moved| self.records.get_mut(moved)) {
            moved.index = record.index;
        }
        if let Ok(entry) = self.names.find_entry(record.hash, |(_, other)| *other == id) {
            entry.remove();
        }
        if self.names.len() < self.names.capacity() / 8 {
            self.names.shrink_to(self.names.len() * 2, |(hash, _)| *hash);
        }
    }

    /// Returns the databases with records, and those among them that were emptied.
    pub(crate) fn databases(&self) -> &Databases {
        &self.databases
    }

    pub(crate) fn databases_mut(&mut self) -> &mut Databases {
        &mut self.databases
    }

    fn hash(&self, name: Name<'_>) -> u64 {
        self.hasher.hash_one(name)
    }
}
