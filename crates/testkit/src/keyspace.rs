//! The keys of a server, in memory: what an [`Engine`](dlock_core::Engine) needs of a server, and what commands of the
//! server itself do to keys.
//!
//! A primary records what it replicates. [`MemoryKeyspace::replicate_to`] has another keyspace do the same, through the
//! bytes that a replication link carries.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::engine::{KeyEnd, NotOpen, OpenKey, Permission, Signal, UserState, WrongType, replay, replay_release};
use dlock_core::{
    Effect, Entries, Keyspace, Lock, Memory, Mode, Name, Now, Owner, Release, RequestId, Token, UnixMs, Uptime,
    decode_effect, decode_lock, encode_effect, encode_lock,
};

/// A database and the name of a key.
pub type KeyName = (i32, Vec<u8>);

/// Returns the name, as the engine wants it.
pub fn name(key: &KeyName) -> Name<'_> {
    Name { db: key.0, key: &key.1 }
}

/// The keys of a server, and its clock.
#[derive(Clone, Debug, Default)]
pub struct MemoryKeyspace {
    now_us: u64,
    /// How far the monotonic clock is ahead, in µs.
    uptime_ahead_us: i64,
    /// How much time passes with every look at the clock, in µs.
    pub us_per_look: std::cell::Cell<u64>,
    /// How much time passes with every key that is opened, in µs. A server's timers see the time pass.
    pub us_per_open: u64,
    looked_us: std::cell::Cell<u64>,
    looks: std::cell::Cell<u64>,
    keys: BTreeMap<KeyName, Key>,
    /// The permissions of timers for a key, where they are limited.
    pub permissions: BTreeMap<KeyName, Permission>,
    /// The server refuses to open a key for change, at random, once in this many times on average.
    pub refuses: Option<std::num::NonZeroU64>,
    refused: u64,
    /// Whether the client of the running command may read only the keys that it names.
    pub is_blind: bool,
    /// The user of the running command.
    pub user: Option<Vec<u8>>,
    /// Users that cannot log in.
    pub lost_users: BTreeMap<Vec<u8>, UserState>,
    /// Whether the server removes nothing by its own clock: it is a replica, or loads a file.
    pub keeps_expired: bool,
    /// The `RELEASE` that runs: it may be replicated as it came.
    pub running: Option<RunningRelease>,
    stream: Vec<(KeyName, Replicated)>,
    unlinked: Vec<KeyName>,
    has_removed: bool,
    /// The keys that `WATCH` and `CLIENT TRACKING` heard of.
    pub modified: BTreeSet<KeyName>,
}

/// A value, and when its key expires.
#[derive(Clone, Debug)]
struct Key {
    value: Value,
    expiry: Option<UnixMs>,
}

#[derive(Clone, Debug)]
enum Value {
    Lock(Lock),
    Other,
}

/// The words of a `RELEASE`.
#[derive(Clone, Debug)]
pub struct RunningRelease {
    /// The owner.
    pub owner: Owner,
    /// The mode, if the command names one.
    pub mode: Option<Mode>,
    /// How many entries.
    pub entries: Entries,
    /// Only the hold with this token.
    pub token: Option<Token>,
    /// `REQUEST`.
    pub request: Option<RequestId>,
}

impl RunningRelease {
    /// Returns the request, as the engine wants it.
    pub fn request(&self) -> Release<'_> {
        let RunningRelease { owner, mode, entries, token, request } = self;
        Release { owner, mode: *mode, entries: *entries, token: *token, request: request.as_ref() }
    }
}

/// A change on the replication link.
#[derive(Clone, Debug)]
pub enum Replicated {
    /// The bytes of an effect.
    Effect(Vec<u8>),
    /// A command as it came.
    Release(RunningRelease),
    /// The key was removed.
    Removed,
}

impl MemoryKeyspace {
    /// Returns a server without keys, at this time.
    pub fn at(ms: u64) -> MemoryKeyspace {
        MemoryKeyspace { now_us: ms * 1000, ..MemoryKeyspace::default() }
    }

    /// Sets the clock.
    pub fn set_now_us(&mut self, us: u64) {
        self.now_us = us;
        self.looked_us.set(0);
        self.looks.set(0);
    }

    /// Sets the monotonic clock, which goes on with the clock.
    pub fn set_uptime_us(&mut self, us: u64) {
        self.uptime_ahead_us = us.cast_signed() - self.now_us.cast_signed();
    }

    /// Returns the time in ms.
    pub fn ms(&self) -> u64 {
        self.now().ms().get()
    }

    /// Returns what was replicated since the last call.
    pub fn take_stream(&mut self) -> Vec<(KeyName, Replicated)> {
        std::mem::take(&mut self.stream)
    }

    /// Returns what was replicated since `take_stream`.
    pub fn stream(&self) -> &[(KeyName, Replicated)] {
        &self.stream
    }

    /// Returns the lock in a key; it is empty if there is none.
    pub fn lock(&self, key: &KeyName) -> &Lock {
        static EMPTY: Lock = Lock::EMPTY;
        match self.live(key) {
            Some(Key { value: Value::Lock(lock), .. }) => lock,
            Some(Key { value: Value::Other, .. }) | None => &EMPTY,
        }
    }

    /// Returns whether there is a key, of any type, that has not expired.
    pub fn exists(&self, key: &KeyName) -> bool {
        self.live(key).is_some()
    }

    /// Returns whether a key holds another type.
    pub fn is_other(&self, key: &KeyName) -> bool {
        matches!(self.live(key), Some(Key { value: Value::Other, .. }))
    }

    /// Returns when a key expires: `None` without a key, `Some(None)` if never.
    pub fn expiry(&self, key: &KeyName) -> Option<Option<u64>> {
        self.live(key).map(|key| key.expiry.map(UnixMs::get))
    }

    /// Returns whether there is a key that has expired and was not removed yet.
    pub fn has_expired(&self, key: &KeyName) -> bool {
        self.keys.contains_key(key) && self.live(key).is_none()
    }

    /// All names with a key.
    pub fn names(&self) -> Vec<KeyName> {
        self.keys.keys().filter(|key| self.exists(key)).cloned().collect()
    }

    /// The locks that went by commands of the server since the last call. A module hears of them.
    pub fn take_unlinked(&mut self) -> Vec<KeyName> {
        std::mem::take(&mut self.unlinked)
    }

    /// `DEL`.
    pub fn delete(&mut self, key: &KeyName) {
        if let Some(Key { value, .. }) = self.keys.remove(key) {
            self.stream.push((key.clone(), Replicated::Removed));
            self.unlink(key, &value);
        }
    }

    /// A slot leaves with this key, and no module hears of it.
    pub fn vanish(&mut self, key: &KeyName) {
        self.keys.remove(key);
    }

    /// `PEXPIREAT` or `PERSIST`. A time that has passed deletes.
    pub fn set_expiry(&mut self, key: &KeyName, at: Option<u64>) {
        if self.has_expired(key) || at.is_some_and(|at| at <= self.ms()) {
            self.delete(key);
        } else if let Some(key) = self.keys.get_mut(key) {
            key.expiry = at.map(UnixMs::new);
        }
    }

    /// `SET`: the key gets a value of another type.
    pub fn set_other(&mut self, key: &KeyName) {
        self.delete(key);
        self.keys.insert(key.clone(), Key { value: Value::Other, expiry: None });
    }

    /// `RENAME`, `MOVE`: whether there is such a key. It takes its TTL along.
    pub fn rename(&mut self, from: &KeyName, to: &KeyName) -> bool {
        if self.has_expired(from) {
            self.delete(from);
        }
        let Some(key) = self.keys.remove(from) else { return false };
        self.unlink(from, &key.value);
        self.delete(to);
        self.keys.insert(to.clone(), key);
        true
    }

    /// `RESTORE … REPLACE`, or what a dump file has. Returns the lock.
    pub fn restore(&mut self, key: &KeyName, bytes: &[u8], expiry: Option<u64>) -> Lock {
        self.delete(key);
        self.load(key, bytes, expiry)
    }

    fn load(&mut self, key: &KeyName, bytes: &[u8], expiry: Option<u64>) -> Lock {
        let lock = decode_lock(bytes).expect("the bytes of a lock");
        self.keys.insert(key.clone(), Key { value: Value::Lock(lock.clone()), expiry: expiry.map(UnixMs::new) });
        lock
    }

    /// `DUMP`.
    pub fn dump(&self, key: &KeyName) -> Option<Vec<u8>> {
        let lock = self.lock(key);
        let mut bytes = Vec::new();
        encode_lock(lock, &mut bytes);
        (!lock.is_empty()).then_some(bytes)
    }

    /// `FLUSHDB`, `FLUSHALL`.
    pub fn flush(&mut self, db: Option<i32>) {
        self.keys.retain(|(of, _), _| db.is_some_and(|db| db != *of));
    }

    /// `SWAPDB`.
    pub fn swap(&mut self, first: i32, second: i32) {
        let keys = std::mem::take(&mut self.keys);
        let moved = keys.into_iter().map(|((db, key), value)| {
            let db = if db == first {
                second
            } else if db == second {
                first
            } else {
                db
            };
            ((db, key), value)
        });
        self.keys = moved.collect();
    }

    /// Saves and loads everything.
    pub fn reload(&mut self) {
        for name in self.names() {
            if let (Some(bytes), Some(expiry)) = (self.dump(&name), self.expiry(&name)) {
                self.load(&name, &bytes, expiry.map(UnixMs::new).map(UnixMs::get));
            }
        }
    }

    /// The server removes what has expired.
    pub fn expire_actively(&mut self) {
        let expired: Vec<KeyName> = self.keys.keys().filter(|key| self.has_expired(key)).cloned().collect();
        expired.iter().for_each(|key| self.delete(key));
    }

    fn unlink(&mut self, key: &KeyName, value: &Value) {
        if matches!(value, Value::Lock(_)) {
            self.unlinked.push(key.clone());
        }
    }

    /// Has a replica do what this server replicated since the last call.
    pub fn replicate_to(&mut self, replica: &mut MemoryKeyspace, memory: &mut Memory) {
        MemoryKeyspace::replay_on(self.take_stream(), replica, memory);
    }

    /// Has a replica do what a primary replicated.
    pub fn replay_on(stream: Vec<(KeyName, Replicated)>, replica: &mut MemoryKeyspace, memory: &mut Memory) {
        for (key, what) in stream {
            let done = match what {
                Replicated::Effect(bytes) => {
                    let effect = decode_effect(&bytes).expect("what a primary encoded");
                    replay(replica, name(&key), effect, memory)
                }
                Replicated::Release(release) => replay_release(replica, name(&key), &release.request(), memory),
                Replicated::Removed => {
                    replica.keys.remove(&key);
                    Ok(())
                }
            };
            done.expect("a replica has the primary's types");
        }
    }

    fn live(&self, key: &KeyName) -> Option<&Key> {
        // The server calls a key expired when its time has passed.
        let is_live = |found: &&Key| self.keeps_expired || found.expiry.is_none_or(|at| self.ms() <= at.get());
        self.keys.get(key).filter(is_live)
    }

    fn expire_lazily(&mut self, key: &KeyName) -> bool {
        let has_expired = self.has_expired(key);
        if has_expired {
            self.keys.remove(key);
            self.stream.push((key.clone(), Replicated::Removed));
        }
        has_expired
    }
}

impl Keyspace for MemoryKeyspace {
    type Key<'k> = MemoryKey<'k>;

    fn open(&mut self, name: Name<'_>) -> Result<MemoryKey<'_>, NotOpen> {
        if let Some(every) = self.refuses {
            self.refused = self.refused.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (self.refused >> 33).is_multiple_of(every.get()) {
                return Err(NotOpen::NotNow);
            }
        }
        self.open_at_last(name)
    }

    fn may_refuse(&self) -> bool {
        self.refuses.is_some()
    }

    fn open_at_last(&mut self, name: Name<'_>) -> Result<MemoryKey<'_>, NotOpen> {
        let name = (name.db, name.key.to_vec());
        self.now_us += self.us_per_open;
        let was_removed = self.expire_lazily(&name);
        if self.is_other(&name) { Err(NotOpen::WrongType) } else { Ok(MemoryKey { space: self, name, was_removed }) }
    }

    fn peek<R>(&mut self, name: Name<'_>, look: impl FnOnce(&Lock) -> R) -> Result<R, WrongType> {
        let name = (name.db, name.key.to_vec());
        self.has_removed = self.expire_lazily(&name);
        if self.is_other(&name) { Err(WrongType) } else { Ok(look(self.lock(&name))) }
    }

    fn permission(&mut self, name: Name<'_>) -> Permission {
        let name = (name.db, name.key.to_vec());
        self.has_removed = self.expire_lazily(&name);
        self.permissions.get(&name).copied().unwrap_or(Permission::Full)
    }

    fn has_removed(&self) -> bool {
        self.has_removed
    }

    fn may_read(&mut self, _name: Name<'_>) -> (bool, u64) {
        (!self.is_blind, 0)
    }

    fn user(&mut self) -> Option<Vec<u8>> {
        self.user.clone()
    }

    fn user_state(&mut self, user: &[u8]) -> UserState {
        self.lost_users.get(user).copied().unwrap_or(UserState::Enabled)
    }

    fn now(&self) -> Now {
        self.looks.set(self.looks.get() + 1);
        assert!(self.looks.get() < MOST_LOOKS, "the engine goes round and round");
        self.looked_us.set(self.looked_us.get() + self.us_per_look.get());
        Now::from_us(self.now_us + self.looked_us.get())
    }

    fn uptime(&self) -> Uptime {
        Uptime::from_us((self.now_us + self.looked_us.get()).saturating_add_signed(self.uptime_ahead_us))
    }
}

/// How often the engine looks at the clock, while it stands still, before that is called a loop without end.
const MOST_LOOKS: u64 = 100_000;

/// A key that is open for change.
#[derive(Debug)]
pub struct MemoryKey<'k> {
    space: &'k mut MemoryKeyspace,
    name: KeyName,
    was_removed: bool,
}

impl OpenKey for MemoryKey<'_> {
    fn name(&self) -> Name<'_> {
        name(&self.name)
    }

    fn lock(&self) -> Option<&Lock> {
        match self.space.keys.get(&self.name)? {
            Key { value: Value::Lock(lock), .. } => Some(lock),
            Key { value: Value::Other, .. } => None,
        }
    }

    fn lock_mut(&mut self) -> Option<&mut Lock> {
        match self.space.keys.get_mut(&self.name)? {
            Key { value: Value::Lock(lock), .. } => Some(lock),
            Key { value: Value::Other, .. } => None,
        }
    }

    fn expiry(&self) -> Option<UnixMs> {
        self.space.keys.get(&self.name)?.expiry
    }

    fn was_removed(&self) -> bool {
        self.was_removed
    }

    fn replicate(&mut self, effect: &Effect) {
        let mut bytes = Vec::new();
        encode_effect(effect, &mut bytes);
        self.space.stream.push((self.name.clone(), Replicated::Effect(bytes)));
    }

    fn replicate_verbatim(&mut self) {
        // A replica replays by the effects that it gets, and replicates none.
        if let Some(release) = self.space.running.clone() {
            self.space.stream.push((self.name.clone(), Replicated::Release(release)));
        }
    }

    fn close(&mut self, end: KeyEnd, signal: Signal) {
        if signal == Signal::Modified {
            self.space.modified.insert(self.name.clone());
        }
        match end {
            KeyEnd::Untouched => {}
            KeyEnd::Deleted => drop(self.space.keys.remove(&self.name)),
            KeyEnd::At(at) => {
                if let Some(key) = self.space.keys.get_mut(&self.name) {
                    key.expiry = Some(at);
                }
            }
            KeyEnd::Created(lock, at) => {
                assert!(!self.space.keys.contains_key(&self.name), "the key is there already");
                self.space.keys.insert(self.name.clone(), Key { value: Value::Lock(*lock), expiry: at });
            }
        }
    }
}
