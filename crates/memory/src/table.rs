//! The table of keys: a hash table from names to places. A key keeps its place.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};

use dlock_core::{Lock, Name, UnixMs};
use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// A key.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub db: i32,
    pub name: Box<[u8]>,
    pub value: Value,
    pub expiry: Option<UnixMs>,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Lock(Box<Lock>),
    /// A value of another type.
    Other,
}

impl Key {
    pub fn name(&self) -> Name<'_> {
        Name { db: self.db, key: &self.name }
    }

    pub fn lock(&self) -> Option<&Lock> {
        match &self.value {
            Value::Lock(lock) => Some(lock),
            Value::Other => None,
        }
    }
}

/// The keys of all databases. A key keeps its place, so that places are a cursor of `SCAN`.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    hasher: FixedState,
    places: Vec<Option<Key>>,
    free: Vec<usize>,
    /// The places of the keys, hashed by name.
    names: HashTable<usize>,
    /// How many keys each database has.
    sizes: BTreeMap<i32, usize>,
}

impl Table {
    pub fn new(seed: u64) -> Table {
        let hasher = FixedState::with_seed(seed);
        Table { hasher, places: Vec::new(), free: Vec::new(), names: HashTable::new(), sizes: BTreeMap::new() }
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn len_of(&self, db: i32) -> usize {
        self.sizes.get(&db).copied().unwrap_or(0)
    }

    /// Returns the number of places; some are empty.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    pub fn find(&self, name: Name<'_>) -> Option<usize> {
        let is_it = |at: &usize| self.at(*at).is_some_and(|key| key.name() == name);
        self.names.find(hash(&self.hasher, name), is_it).copied()
    }

    pub fn at(&self, place: usize) -> Option<&Key> {
        self.places.get(place)?.as_ref()
    }

    pub fn at_mut(&mut self, place: usize) -> Option<&mut Key> {
        self.places.get_mut(place)?.as_mut()
    }

    /// Adds a key. There must be no key of this name. Returns its place.
    pub fn add(&mut self, key: Key) -> usize {
        let hashed = hash(&self.hasher, key.name());
        *self.sizes.entry(key.db).or_default() += 1;
        let place = self.free.pop().unwrap_or(self.places.len());
        match self.places.get_mut(place) {
            Some(free) => *free = Some(key),
            None => self.places.push(Some(key)),
        }
        let Table { hasher, places, names, .. } = self;
        let rehash = |at: &usize| places.get(*at).and_then(Option::as_ref).map_or(0, |key| hash(hasher, key.name()));
        names.insert_unique(hashed, place, rehash);
        place
    }

    pub fn remove(&mut self, place: usize) -> Option<Key> {
        let key = self.places.get_mut(place)?.take()?;
        if let Ok(entry) = self.names.find_entry(hash(&self.hasher, key.name()), |at| *at == place) {
            entry.remove();
        }
        if let Some(size) = self.sizes.get_mut(&key.db) {
            *size -= 1;
        }
        self.free.push(place);
        self.give_memory_back();
        Some(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.places.iter().flatten()
    }

    /// Frees the memory when the last key is gone, if there were many.
    fn give_memory_back(&mut self) {
        if self.names.is_empty() && self.places.len() > FEW {
            (self.places, self.free, self.names) = (Vec::new(), Vec::new(), HashTable::new());
        }
    }
}

/// The number of places for which an empty table keeps its memory.
const FEW: usize = 1024;

fn hash(hasher: &FixedState, name: Name<'_>) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_i32(name.db);
    hasher.write(name.key);
    hasher.finish()
}
