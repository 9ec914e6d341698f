//! A key that the engine has opened.

use dlock_core::engine::{KeyEnd, OpenKey, Signal};
use dlock_core::{Effect, Lock, Name, UnixMs};
use smallvec::SmallVec;

use crate::table::{Key, Value};
use crate::{Keys, Surroundings};

/// A key that is open for change. Borrows all keys, so the key keeps its place until it is closed.
#[derive(Debug)]
pub struct MemoryKey<'k, S> {
    keys: &'k mut Keys<S>,
    db: i32,
    name: SmallVec<[u8; 64]>,
    /// `None`: there is no such key.
    place: Option<usize>,
    was_removed: bool,
}

impl<'k, S> MemoryKey<'k, S> {
    pub(crate) fn new(keys: &'k mut Keys<S>, name: Name<'_>, place: Option<usize>, was_removed: bool) -> Self {
        MemoryKey { keys, db: name.db, name: SmallVec::from_slice(name.key), place, was_removed }
    }

    fn key(&self) -> Option<&Key> {
        self.keys.table.at(self.place?)
    }
}

impl<S: Surroundings> OpenKey for MemoryKey<'_, S> {
    fn name(&self) -> Name<'_> {
        Name { db: self.db, key: &self.name }
    }

    fn lock(&self) -> Option<&Lock> {
        self.key()?.lock()
    }

    fn lock_mut(&mut self) -> Option<&mut Lock> {
        match &mut self.keys.table.at_mut(self.place?)?.value {
            Value::Lock(lock) => Some(lock),
            Value::Other => None,
        }
    }

    fn expiry(&self) -> Option<UnixMs> {
        self.key()?.expiry
    }

    fn was_removed(&self) -> bool {
        self.was_removed
    }

    fn replicate(&mut self, effect: &Effect) {
        self.keys.around.replicate(Name { db: self.db, key: &self.name }, effect);
    }

    fn replicate_verbatim(&mut self) {
        self.keys.around.replicate_verbatim(Name { db: self.db, key: &self.name });
    }

    fn close(&mut self, end: KeyEnd, signal: Signal) {
        let name = Name { db: self.db, key: &self.name };
        match (end, self.place) {
            (KeyEnd::Untouched, _) | (KeyEnd::Deleted | KeyEnd::At(_), None) => {}
            (KeyEnd::Deleted, Some(place)) => {
                self.keys.table.remove(place);
                self.place = None;
            }
            (KeyEnd::At(at), Some(place)) => {
                if let Some(key) = self.keys.table.at_mut(place) {
                    key.expiry = Some(at);
                }
            }
            (KeyEnd::Created(..), Some(_)) => debug_assert!(false, "the key is there already"),
            (KeyEnd::Created(lock, expiry), None) => {
                let key = Key { db: name.db, name: name.key.into(), value: Value::Lock(lock), expiry };
                self.place = Some(self.keys.table.add(key));
            }
        }
        if signal == Signal::Modified {
            self.keys.around.modified(name);
        }
    }
}
