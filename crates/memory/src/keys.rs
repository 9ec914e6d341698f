//! The keyspace: reads, the changes that commands of the server make, and access for the engine.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use dlock_core::engine::{Keyspace, NotOpen, Permission, UserState, WrongType};
use dlock_core::{Lock, Name, Now, UnixMs, Uptime};

use crate::open::MemoryKey;
use crate::table::{Key, Table, Value};
use crate::{Gone, Surroundings};

/// The keys of a server. Dereferences to the [`Surroundings`].
#[derive(Clone, Debug)]
pub struct Keys<S> {
    pub(crate) table: Table,
    pub(crate) around: S,
    /// Whether the last `peek` or `permission` removed an expired key.
    has_removed: bool,
}

impl<S> Deref for Keys<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.around
    }
}

impl<S> DerefMut for Keys<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.around
    }
}

impl<S: Surroundings> Keys<S> {
    /// Returns an empty keyspace. A random `seed` protects the hash table against names that were chosen to collide.
    pub fn new(around: S, seed: u64) -> Keys<S> {
        Keys { table: Table::new(seed), around, has_removed: false }
    }

    // Reads.

    /// Returns how many keys there are, including expired keys that are not removed yet.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns how many keys a database has, including expired keys that are not removed yet.
    pub fn len_of(&self, db: i32) -> usize {
        self.table.len_of(db)
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the lock in a key. Without the key, or if the key holds another type, the lock is empty.
    pub fn lock<'n>(&self, name: impl Into<Name<'n>>) -> &Lock {
        self.live(name.into()).and_then(Key::lock).unwrap_or(&Lock::EMPTY)
    }

    /// Returns whether there is a key of this name, of any type, that has not expired.
    pub fn exists<'n>(&self, name: impl Into<Name<'n>>) -> bool {
        self.live(name.into()).is_some()
    }

    /// Returns whether a key holds another type than a lock.
    pub fn is_other<'n>(&self, name: impl Into<Name<'n>>) -> bool {
        self.live(name.into()).is_some_and(|key| key.lock().is_none())
    }

    /// Returns when a key expires: `None` without the key, `Some(None)` if the key never expires.
    pub fn expiry<'n>(&self, name: impl Into<Name<'n>>) -> Option<Option<u64>> {
        self.live(name.into()).map(|key| key.expiry.map(UnixMs::get))
    }

    /// Returns whether a key has expired and is not removed yet.
    pub fn has_expired<'n>(&self, name: impl Into<Name<'n>>) -> bool {
        self.table.find(name.into()).and_then(|at| self.table.at(at)).is_some_and(|key| self.is_expired(key))
    }

    /// Returns the names of all keys that have not expired, in no order.
    pub fn names(&self) -> impl Iterator<Item = Name<'_>> {
        self.table.iter().filter(|key| !self.is_expired(key)).map(Key::name)
    }

    /// Returns the names in `most` places from `from` on, and the `from` of the next call, which is 0 at the end. A full
    /// scan returns every key that exists from its first call to its last.
    pub fn scan(&self, from: usize, most: usize) -> (Vec<Name<'_>>, usize) {
        let mut names = Vec::new();
        let end = self.table.places().min(from.saturating_add(most));
        for key in (from..end).filter_map(|at| self.table.at(at)).filter(|key| !self.is_expired(key)) {
            names.push(key.name());
        }
        (names, if end < self.table.places() { end } else { 0 })
    }

    // Changes by commands of the server.

    /// `DEL`. Returns whether there was such a key. An expired key is removed, but does not count.
    pub fn delete<'n>(&mut self, name: impl Into<Name<'n>>) -> bool {
        let Some(at) = self.find_live(name.into()) else { return false };
        self.remove(at, Gone::Deleted);
        true
    }

    /// Removes a key if it has expired, and reports it as [`Gone::Expired`].
    pub fn expire<'n>(&mut self, name: impl Into<Name<'n>>) {
        self.find_live(name.into());
    }

    /// Removes the expired keys in `most` places from `from` on. Returns the `from` of the next call, which is 0 at the
    /// end: a server goes through all places bit by bit.
    pub fn expire_some(&mut self, from: usize, most: usize) -> usize {
        let end = self.table.places().min(from.saturating_add(most));
        for at in from..end {
            if self.has_expired_at(at) {
                self.remove(at, Gone::Expired);
            }
        }
        if end < self.table.places() { end } else { 0 }
    }

    /// Removes a key without reporting it to the surroundings.
    pub fn vanish<'n>(&mut self, name: impl Into<Name<'n>>) {
        if let Some(at) = self.table.find(name.into()) {
            self.table.remove(at);
        }
    }

    /// `PEXPIREAT`, or `PERSIST` with `None`. A time in the past deletes the key.
    pub fn set_expiry<'n>(&mut self, name: impl Into<Name<'n>>, end: Option<u64>) {
        let Some(at) = self.find_live(name.into()) else { return };
        if end.is_some_and(|end| end <= self.around.now().ms().get()) {
            self.remove(at, Gone::Deleted);
        } else if let Some(key) = self.table.at_mut(at) {
            key.expiry = end.map(UnixMs::new);
        }
    }

    /// `SET`: the key gets a value of another type.
    pub fn set_other<'n>(&mut self, name: impl Into<Name<'n>>) {
        self.put(name.into(), Value::Other, None);
    }

    /// `RESTORE … REPLACE`, or a file: the key gets this lock.
    pub fn set_lock<'n>(&mut self, name: impl Into<Name<'n>>, lock: Lock, expiry: Option<u64>) {
        self.put(name.into(), Value::Lock(Box::new(lock)), expiry.map(UnixMs::new));
    }

    /// `RENAME`, `MOVE`. Returns whether there is such a key. The key keeps its TTL.
    pub fn rename<'n>(&mut self, from: impl Into<Name<'n>>, to: impl Into<Name<'n>>) -> bool {
        let Some(at) = self.find_live(from.into()) else { return false };
        let Some(key) = self.table.remove(at) else { return false };
        self.around.gone(key.name(), key.lock(), Gone::Renamed);
        self.put(to.into(), key.value, key.expiry);
        true
    }

    /// `FLUSHDB`, `FLUSHALL`. Does not report the keys to the surroundings.
    pub fn flush(&mut self, db: Option<i32>) {
        for at in 0..self.table.places() {
            if self.table.at(at).is_some_and(|key| db.is_none_or(|db| db == key.db)) {
                self.table.remove(at);
            }
        }
    }

    /// `SWAPDB`.
    pub fn swap(&mut self, first: i32, second: i32) {
        let of = |key: &&Key| key.db == first || key.db == second;
        let names: Vec<_> = self.table.iter().filter(of).map(|key| (key.db, key.name.clone())).collect();
        let places = names.iter().filter_map(|(db, key)| self.table.find(Name { db: *db, key })).collect::<Vec<_>>();
        let keys: Vec<_> = places.into_iter().filter_map(|at| self.table.remove(at)).collect();
        for key in keys {
            self.table.add(Key { db: if key.db == first { second } else { first }, ..key });
        }
    }

    fn put(&mut self, name: Name<'_>, value: Value, expiry: Option<UnixMs>) {
        if let Some(at) = self.find_live(name) {
            self.remove(at, Gone::Deleted);
        }
        self.table.add(Key { db: name.db, name: name.key.into(), value, expiry });
    }

    fn remove(&mut self, at: usize, how: Gone) {
        if let Some(key) = self.table.remove(at) {
            self.around.gone(key.name(), key.lock(), how);
        }
    }

    fn live(&self, name: Name<'_>) -> Option<&Key> {
        self.table.at(self.table.find(name)?).filter(|key| !self.is_expired(key))
    }

    fn has_expired_at(&self, at: usize) -> bool {
        self.table.at(at).is_some_and(|key| self.is_expired(key))
    }

    /// Returns whether a key has expired. As in Redis, a key still exists in the millisecond in which it expires.
    fn is_expired(&self, key: &Key) -> bool {
        key.expiry.is_some_and(|at| !self.around.keeps_expired() && at < self.around.now().ms())
    }

    /// Returns the place of a key. If the key has expired, removes it, reports it as [`Gone::Expired`], and returns
    /// `None`.
    fn find_live(&mut self, name: Name<'_>) -> Option<usize> {
        self.find_or_expire(name, Gone::Expired).0
    }

    /// Returns the place of a key. If the key has expired, removes it, reports it as `how`, and returns `None` and true.
    fn find_or_expire(&mut self, name: Name<'_>, how: Gone) -> (Option<usize>, bool) {
        match self.table.find(name) {
            Some(at) if self.has_expired_at(at) => {
                self.remove(at, how);
                (None, true)
            }
            found => (found, false),
        }
    }
}

impl<S: Surroundings> Keyspace for Keys<S> {
    type Key<'k>
        = MemoryKey<'k, S>
    where
        S: 'k;

    fn open(&mut self, name: Name<'_>) -> Result<MemoryKey<'_, S>, NotOpen> {
        if self.around.refuses() { Err(NotOpen::NotNow) } else { self.open_at_last(name) }
    }

    fn open_at_last(&mut self, name: Name<'_>) -> Result<MemoryKey<'_, S>, NotOpen> {
        self.around.opens();
        let (place, was_removed) = self.find_or_expire(name, Gone::ExpiredForEngine);
        if place.and_then(|at| self.table.at(at)).is_some_and(|key| key.lock().is_none()) {
            return Err(NotOpen::WrongType);
        }
        Ok(MemoryKey::new(self, name, place, was_removed))
    }

    fn may_refuse(&self) -> bool {
        self.around.may_refuse()
    }

    fn peek<R>(&mut self, name: Name<'_>, look: impl FnOnce(&Lock) -> R) -> Result<R, WrongType> {
        let (place, has_removed) = self.find_or_expire(name, Gone::ExpiredForEngine);
        self.has_removed = has_removed;
        match place.and_then(|at| self.table.at(at)) {
            None => Ok(look(&Lock::EMPTY)),
            Some(key) => key.lock().map(look).ok_or(WrongType),
        }
    }

    fn permission(&mut self, name: Name<'_>) -> Permission {
        self.has_removed = self.find_or_expire(name, Gone::ExpiredForEngine).1;
        self.around.permission(name)
    }

    fn has_removed(&self) -> bool {
        self.has_removed
    }

    fn may_read(&mut self, name: Name<'_>) -> (bool, u64) {
        self.around.may_read(name)
    }

    fn user(&mut self) -> Option<Vec<u8>> {
        self.around.user()
    }

    fn user_state(&mut self, user: &[u8]) -> UserState {
        self.around.user_state(user)
    }

    fn now(&self) -> Now {
        self.around.now()
    }

    fn uptime(&self) -> Uptime {
        self.around.uptime()
    }

    fn worked(&self) -> Duration {
        self.around.worked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock, and the reasons why keys are gone.
    #[derive(Default)]
    struct Recorder {
        now: u64,
        gone: Vec<Gone>,
    }

    impl Surroundings for Recorder {
        fn now(&self) -> Now {
            Now::from_us(self.now * 1000)
        }

        fn uptime(&self) -> Uptime {
            Uptime::from_us(self.now * 1000)
        }

        fn user(&mut self) -> Option<Vec<u8>> {
            None
        }

        fn user_state(&mut self, _user: &[u8]) -> UserState {
            UserState::Unknown
        }

        fn gone(&mut self, _name: Name<'_>, _lock: Option<&Lock>, how: Gone) {
            self.gone.push(how);
        }
    }

    #[test]
    fn whatever_meets_an_expired_key_reports_it_as_expired() {
        type Change = fn(&mut Keys<Recorder>, Name<'_>);
        let changes: [Change; 7] = [
            |keys, name| assert!(!keys.delete(name)),
            |keys, name| keys.expire(name),
            |keys, name| keys.set_expiry(name, None),
            |keys, name| keys.set_expiry(name, Some(5)),
            |keys, name| assert!(!keys.rename(name, Name { db: 0, key: b"other" })),
            |keys, name| keys.set_other(name),
            |keys, name| keys.set_lock(name, Lock::EMPTY, None),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut keys = Keys::new(Recorder { now: 10, gone: Vec::new() }, 7);
            let name = Name { db: 0, key: b"job" };
            keys.set_lock(name, Lock::EMPTY, Some(20));
            keys.around.now = 21;
            change(&mut keys, name);
            assert_eq!(keys.around.gone, [Gone::Expired], "change {number}");
        }
    }
}
