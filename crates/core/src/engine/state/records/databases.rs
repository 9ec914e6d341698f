//! The records of each database, and which of them a flush or a swap has made void.

use std::collections::BTreeMap;

use crate::cluster_slot::SLOTS;
use crate::engine::state::ids::RecordId;
use crate::engine::state::records::record::Record;

/// All databases that have records.
///
/// Emptying a database makes its records void in O(1): each record compares its epoch with that of its database when it
/// is looked up. The timer looks up the rest, a piece at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Databases {
    databases: BTreeMap<i32, Database>,
    /// The databases with records to be looked at.
    to_recheck: Vec<i32>,
    /// Counts flushes, swaps, and slots that leave or arrive.
    epoch: u64,
    /// When each slot of the cluster left or arrived last; empty before the first does.
    slots: Vec<u64>,
    /// The epoch of the last [`Databases::doubt`]: records of earlier epochs must be looked at again.
    doubted: u64,
}

#[derive(Clone, Debug, Default)]
struct Database {
    records: Vec<RecordId>,
    /// How many of the records, from the first on, wait for a check.
    to_recheck: usize,
    /// The epoch of the last flush or swap.
    epoch: u64,
}

impl Databases {
    /// Adds a record. Returns its place in the list of its database. O(1).
    pub(crate) fn add(&mut self, db: i32, id: RecordId) -> usize {
        let records = &mut self.databases.entry(db).or_default().records;
        records.push(id);
        records.len() - 1
    }

    /// Takes the record at this place out. Returns the record that has the place now. O(1).
    pub(crate) fn remove(&mut self, db: i32, index: usize) -> Option<RecordId> {
        let database = self.databases.get_mut(&db).filter(|database| index < database.records.len())?;
        database.records.swap_remove(index);
        database.to_recheck = database.to_recheck.min(database.records.len());
        let moved = database.records.get(index).copied();
        if database.records.is_empty() {
            self.databases.remove(&db);
        }
        moved
    }

    /// Returns whether a database has records.
    pub(crate) fn has(&self, db: i32) -> bool {
        self.databases.contains_key(&db)
    }

    /// Returns the current epoch: that of a new record, and of one that was just checked.
    pub(crate) fn now(&self) -> u64 {
        self.epoch
    }

    /// Returns the epoch of the last flush or swap of a database: records of earlier epochs are void.
    pub(crate) fn epoch(&self, db: i32) -> u64 {
        self.databases.get(&db).map_or(0, |database| database.epoch)
    }

    /// Returns whether what a record knew is void: since it was checked last, its database was emptied or has changed
    /// places, or the slot of its key has left or arrived.
    #[inline]
    pub(crate) fn is_stale(&self, record: &Record) -> bool {
        record.epoch < self.epoch(record.db) || (!self.slots.is_empty() && self.has_slot_moved(record))
    }

    #[inline(never)]
    fn has_slot_moved(&self, record: &Record) -> bool {
        self.slots.get(usize::from(record.slot_in_cluster())).is_some_and(|moved| record.epoch < *moved)
    }

    /// Records that every record must be looked at again. Nothing that they know is void.
    pub(crate) fn doubt(&mut self) {
        self.epoch += 1;
        self.doubted = self.epoch;
        self.recheck_all();
    }

    /// Returns whether a record was not looked at since [`Databases::doubt`].
    pub(crate) fn is_doubted(&self, record: &Record) -> bool {
        record.epoch < self.doubted
    }

    fn recheck_all(&mut self) {
        for (db, database) in &mut self.databases {
            database.to_recheck = database.records.len();
            if !self.to_recheck.contains(db) {
                self.to_recheck.push(*db);
            }
        }
    }

    /// Records that slots, from the first to the last of each range, left or arrived: the records of their keys must be
    /// checked. A cluster has one database with records, or a few.
    pub(crate) fn invalidate_slots(&mut self, ranges: &[(u16, u16)]) {
        if self.databases.is_empty() {
            return;
        }
        self.epoch += 1;
        self.slots.resize(usize::from(SLOTS), 0);
        for (first, last) in ranges {
            for slot in usize::from(*first)..=usize::from(*last) {
                if let Some(epoch) = self.slots.get_mut(slot) {
                    *epoch = self.epoch;
                }
            }
        }
        self.recheck_all();
    }

    /// Records that a database, or all (`None`), was emptied or changed places: its records must be checked. O(1) for
    /// each database that has records.
    pub(crate) fn invalidate(&mut self, db: Option<i32>) {
        self.epoch += 1;
        let touched = match db {
            Some(db) => self.databases.range_mut(db..=db),
            None => self.databases.range_mut(..),
        };
        for (db, database) in touched {
            (database.epoch, database.to_recheck) = (self.epoch, database.records.len());
            if !self.to_recheck.contains(db) {
                self.to_recheck.push(*db);
            }
        }
    }

    /// Returns whether every record was looked at.
    pub(crate) fn are_checked(&self) -> bool {
        self.to_recheck.is_empty()
    }

    /// Returns the next record to look at.
    pub(crate) fn next_to_recheck(&mut self) -> Option<RecordId> {
        while let Some(db) = self.to_recheck.last() {
            let database = self.databases.get_mut(db).filter(|database| database.to_recheck > 0);
            if let Some(database) = database {
                database.to_recheck -= 1;
                return database.records.get(database.to_recheck).copied();
            }
            self.to_recheck.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn every_record_of_an_emptied_database_is_looked_at_whatever_comes_and_goes() {
        let (mut ids, mut databases) = (SlotMap::<RecordId, usize>::with_key(), Databases::default());
        let add = |databases: &mut Databases, ids: &mut SlotMap<RecordId, usize>, db| {
            let id = ids.insert(0);
            ids[id] = databases.add(db, id);
            id
        };
        let mut left: Vec<_> = (0..100).map(|_| add(&mut databases, &mut ids, 1)).collect();
        let others: Vec<_> = (0..100).map(|_| add(&mut databases, &mut ids, 2)).collect();
        databases.invalidate(Some(1));
        let mut seen = Vec::new();
        for n in 0.. {
            // Records leave from any place, and new ones come, while the rest is looked at.
            if n < 60 {
                let gone = left.swap_remove(n * 7 % left.len());
                let index = ids[gone];
                if let Some(moved) = databases.remove(1, index) {
                    ids[moved] = index;
                }
                add(&mut databases, &mut ids, 1);
            }
            match databases.next_to_recheck() {
                Some(id) => seen.push(id),
                None => break,
            }
        }
        assert!(left.iter().all(|id| seen.contains(id)));
        assert!(others.iter().all(|id| !seen.contains(id)));
        assert!(databases.are_checked());
    }

    #[test]
    fn emptying_again_and_again_keeps_one_list() {
        let (mut ids, mut databases) = (SlotMap::<RecordId, ()>::with_key(), Databases::default());
        (0..10).for_each(|_| _ = databases.add(3, ids.insert(())));
        (0..1000).for_each(|_| databases.invalidate(Some(3)));
        (0..1000).for_each(|_| databases.invalidate(Some(9)));
        assert_eq!(std::iter::from_fn(|| databases.next_to_recheck()).count(), 10);
    }
}
