//! The keys of a server in memory, for tests, and their replication.
//!
//! A primary records the changes that it replicates. [`MemoryKeyspace::replicate_to`] applies them to another keyspace,
//! as the bytes that a replication link carries.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use dlock_core::engine::{Keyspace, NotOpen, Permission, UserState, WrongType, replay, replay_release};
use dlock_core::{
    Effect, Entries, Lock, Memory, Mode, Name, Now, Owner, Release, RequestId, Token, Uptime, decode_effect,
    decode_lock, encode_effect, encode_lock,
};
use dlock_memory::{Gone, Keys, MemoryKey, Surroundings};

/// A database and the name of a key.
pub type KeyName = (i32, Vec<u8>);

/// Returns the name in the form that the engine takes.
pub fn name(key: &KeyName) -> Name<'_> {
    Name { db: key.0, key: &key.1 }
}

/// The keys of a server. Dereferences to [`Keys`], and through them to [`MemorySurroundings`].
#[derive(Clone, Debug)]
pub struct MemoryKeyspace {
    keys: Keys<MemorySurroundings>,
}

/// The parts of a server besides its keys. A test sets how they behave.
#[derive(Clone, Debug, Default)]
pub struct MemorySurroundings {
    now_us: u64,
    /// How far the monotonic clock is ahead of the clock, in µs.
    uptime_ahead_us: i64,
    /// How much time passes with every look at the clock, in µs.
    pub us_per_look: std::cell::Cell<u64>,
    /// How much time passes with every key that is opened, in µs.
    pub us_per_open: u64,
    /// For how long the machine has run other programs instead of the server, in µs.
    pub others_us: u64,
    /// The time that looks at the clock have taken since the clock was set.
    looked_us: std::cell::Cell<u64>,
    /// The number of looks at the clock since the clock was set.
    looks: std::cell::Cell<u64>,
    /// The permissions of timers for the keys where they are limited.
    pub permissions: BTreeMap<KeyName, Permission>,
    /// Refuses to open a key at random, once in this many times on average.
    pub refuses: Option<std::num::NonZeroU64>,
    /// The state of the random generator of refusals.
    refusal_state: u64,
    /// Whether the client of the running command may read only the keys that it names.
    pub is_blind: bool,
    /// The user of the running command.
    pub user: Option<Vec<u8>>,
    /// The states of users that are not enabled.
    pub lost_users: BTreeMap<Vec<u8>, UserState>,
    /// A key that gets another type as soon as the engine's look at another one removes that one, because it has
    /// expired: a callback of another module does that.
    pub meddles_with: Option<KeyName>,
    /// Whether expired keys stay, as on a replica and while a file is loaded.
    pub keeps_expired: bool,
    /// The `RELEASE` that runs. It may be replicated verbatim.
    pub running: Option<RunningRelease>,
    /// The replicated changes, for [`MemorySurroundings::take_stream`].
    stream: Vec<(KeyName, Replicated)>,
    /// The names of locks that the server has removed, for [`MemorySurroundings::take_unlinked`].
    unlinked: Vec<KeyName>,
    /// The keys whose changes were reported to `WATCH` and `CLIENT TRACKING`.
    pub modified: BTreeSet<KeyName>,
}

/// The arguments of a `RELEASE`.
#[derive(Clone, Debug)]
pub struct RunningRelease {
    /// The owner.
    pub owner: Owner,
    /// The mode, if the command names one.
    pub mode: Option<Mode>,
    /// The number of entries to release.
    pub entries: Entries,
    /// `TOKEN`: releases only the hold with this token.
    pub token: Option<Token>,
    /// `REQUEST`.
    pub request: Option<RequestId>,
}

impl RunningRelease {
    /// Returns the request in the form that the engine takes.
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
    /// A verbatim command.
    Release(RunningRelease),
    /// The key was removed.
    Removed,
}

impl MemorySurroundings {
    /// Sets the clock.
    pub fn set_now_us(&mut self, us: u64) {
        self.now_us = us;
        self.looked_us.set(0);
        self.looks.set(0);
    }

    /// Sets the monotonic clock, which then advances with the clock.
    pub fn set_uptime_us(&mut self, us: u64) {
        self.uptime_ahead_us = us.cast_signed() - self.now_us.cast_signed();
    }

    /// Returns the time of the clock in Unix ms. Counts as a look at the clock.
    pub fn ms(&self) -> u64 {
        self.now().ms().get()
    }

    /// Takes the changes that were replicated since the last call.
    pub fn take_stream(&mut self) -> Vec<(KeyName, Replicated)> {
        std::mem::take(&mut self.stream)
    }

    /// Returns the changes that were replicated since the last call of `take_stream`.
    pub fn stream(&self) -> &[(KeyName, Replicated)] {
        &self.stream
    }

    /// Takes the names of the locks that the server has removed since the last call. A server reports their removal to
    /// its modules.
    pub fn take_unlinked(&mut self) -> Vec<KeyName> {
        std::mem::take(&mut self.unlinked)
    }
}

impl Surroundings for MemorySurroundings {
    fn now(&self) -> Now {
        self.looks.set(self.looks.get() + 1);
        assert!(self.looks.get() < MOST_LOOKS, "the engine loops without an end");
        self.looked_us.set(self.looked_us.get() + self.us_per_look.get());
        Now::from_us(self.now_us + self.looked_us.get())
    }

    fn uptime(&self) -> Uptime {
        Uptime::from_us((self.now_us + self.looked_us.get()).saturating_add_signed(self.uptime_ahead_us))
    }

    fn worked(&self) -> Duration {
        Duration::from_micros((self.now_us + self.looked_us.get()).saturating_sub(self.others_us))
    }

    fn user(&mut self) -> Option<Vec<u8>> {
        self.user.clone()
    }

    fn user_state(&mut self, user: &[u8]) -> UserState {
        self.lost_users.get(user).copied().unwrap_or(UserState::Enabled)
    }

    fn permission(&mut self, name: Name<'_>) -> Permission {
        self.permissions.get(&owned(name)).copied().unwrap_or(Permission::Full)
    }

    fn may_read(&mut self, _name: Name<'_>) -> (bool, u64) {
        (!self.is_blind, 0)
    }

    fn opens(&mut self) {
        self.now_us += self.us_per_open;
    }

    fn refuses(&mut self) -> bool {
        self.refuses.is_some_and(|every| {
            // A linear congruential generator, whose upper bits are random enough.
            self.refusal_state =
                self.refusal_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.refusal_state >> 33).is_multiple_of(every.get())
        })
    }

    fn may_refuse(&self) -> bool {
        self.refuses.is_some()
    }

    fn keeps_expired(&self) -> bool {
        self.keeps_expired
    }

    fn replicate(&mut self, name: Name<'_>, effect: &Effect) {
        let mut bytes = Vec::new();
        encode_effect(effect, &mut bytes);
        self.stream.push((owned(name), Replicated::Effect(bytes)));
    }

    fn replicate_verbatim(&mut self, name: Name<'_>) {
        // A replica that replays a `RELEASE` has no running command, and replicates nothing.
        if let Some(release) = self.running.clone() {
            self.stream.push((owned(name), Replicated::Release(release)));
        }
    }

    fn gone(&mut self, name: Name<'_>, lock: Option<&Lock>, how: Gone) {
        // The replica gets a rename as such: the test renames the key there, too.
        if how != Gone::Renamed {
            self.stream.push((owned(name), Replicated::Removed));
        }
        if lock.is_some() && how != Gone::ExpiredForEngine {
            self.unlinked.push(owned(name));
        }
    }

    fn modified(&mut self, name: Name<'_>) {
        self.modified.insert(owned(name));
    }
}

fn owned(name: Name<'_>) -> KeyName {
    (name.db, name.key.to_vec())
}

/// The seed of the tables of keys. Any seed will do, if it is always the same: then a test repeats its order of keys.
const SEED: u64 = 7;
/// How many looks at the clock, without a change of the clock, count as an endless loop of the engine.
const MOST_LOOKS: u64 = 100_000;

impl Default for MemoryKeyspace {
    fn default() -> MemoryKeyspace {
        MemoryKeyspace { keys: Keys::new(MemorySurroundings::default(), SEED) }
    }
}

impl Deref for MemoryKeyspace {
    type Target = Keys<MemorySurroundings>;

    fn deref(&self) -> &Keys<MemorySurroundings> {
        &self.keys
    }
}

impl DerefMut for MemoryKeyspace {
    fn deref_mut(&mut self) -> &mut Keys<MemorySurroundings> {
        &mut self.keys
    }
}

impl MemoryKeyspace {
    /// Returns a server without keys whose clock shows this time.
    pub fn at(ms: u64) -> MemoryKeyspace {
        let around = MemorySurroundings { now_us: ms * 1000, ..MemorySurroundings::default() };
        MemoryKeyspace { keys: Keys::new(around, SEED) }
    }

    /// Returns the names of all keys, sorted.
    pub fn names(&self) -> Vec<KeyName> {
        let mut names: Vec<_> = self.keys.names().map(owned).collect();
        names.sort();
        names
    }

    /// Sets a key from its bytes, as `RESTORE … REPLACE` and the loading of a dump file do. Returns the lock.
    pub fn restore(&mut self, key: &KeyName, bytes: &[u8], expiry: Option<u64>) -> Lock {
        let lock = decode_lock(bytes).expect("the bytes of a lock");
        self.keys.set_lock(key, lock.clone(), expiry);
        lock
    }

    /// Returns the bytes of a lock, as `DUMP` does; `None` if the key has no lock.
    pub fn dump(&self, key: &KeyName) -> Option<Vec<u8>> {
        let lock = self.lock(key);
        let mut bytes = Vec::new();
        encode_lock(lock, &mut bytes);
        (!lock.is_empty()).then_some(bytes)
    }

    /// Saves all keys and loads them again.
    pub fn reload(&mut self) {
        for name in self.names() {
            if let (Some(bytes), Some(expiry)) = (self.dump(&name), self.expiry(&name)) {
                self.keys.vanish(&name);
                self.restore(&name, &bytes, expiry);
            }
        }
    }

    fn meddle(&mut self) {
        if self.keys.has_removed()
            && let Some(other) = self.keys.meddles_with.take()
        {
            self.keys.set_other(&other);
        }
    }

    /// Removes all expired keys.
    pub fn expire_actively(&mut self) {
        self.keys.expire_some(0, usize::MAX);
    }

    /// Applies to a replica the changes that were replicated since the last call.
    pub fn replicate_to(&mut self, replica: &mut MemoryKeyspace, memory: &mut Memory) {
        MemoryKeyspace::replay_on(self.take_stream(), replica, memory);
    }

    /// Applies to a replica the changes that a primary has replicated.
    pub fn replay_on(stream: Vec<(KeyName, Replicated)>, replica: &mut MemoryKeyspace, memory: &mut Memory) {
        for (key, what) in stream {
            let done = match what {
                Replicated::Effect(bytes) => {
                    let effect = decode_effect(&bytes).expect("an effect that a primary encoded");
                    replay(replica, name(&key), effect, memory)
                }
                Replicated::Release(release) => replay_release(replica, name(&key), &release.request(), memory),
                Replicated::Removed => {
                    replica.keys.vanish(&key);
                    Ok(())
                }
            };
            done.expect("a replica has the primary's types");
        }
    }
}

impl Keyspace for MemoryKeyspace {
    type Key<'k> = MemoryKey<'k, MemorySurroundings>;

    fn open(&mut self, name: Name<'_>) -> Result<MemoryKey<'_, MemorySurroundings>, NotOpen> {
        self.keys.open(name)
    }

    fn open_at_last(&mut self, name: Name<'_>) -> Result<MemoryKey<'_, MemorySurroundings>, NotOpen> {
        self.keys.open_at_last(name)
    }

    fn may_refuse(&self) -> bool {
        Keyspace::may_refuse(&self.keys)
    }

    fn peek<R>(&mut self, name: Name<'_>, look: impl FnOnce(&Lock) -> R) -> Result<R, WrongType> {
        let seen = self.keys.peek(name, look);
        self.meddle();
        seen
    }

    fn permission(&mut self, name: Name<'_>) -> Permission {
        let permission = Keyspace::permission(&mut self.keys, name);
        self.meddle();
        permission
    }

    fn has_removed(&self) -> bool {
        self.keys.has_removed()
    }

    fn may_read(&mut self, name: Name<'_>) -> (bool, u64) {
        Keyspace::may_read(&mut self.keys, name)
    }

    fn user(&mut self) -> Option<Vec<u8>> {
        Keyspace::user(&mut self.keys)
    }

    fn user_state(&mut self, user: &[u8]) -> UserState {
        Keyspace::user_state(&mut self.keys, user)
    }

    fn now(&self) -> Now {
        Keyspace::now(&self.keys)
    }

    fn uptime(&self) -> Uptime {
        Keyspace::uptime(&self.keys)
    }

    fn worked(&self) -> Duration {
        Keyspace::worked(&self.keys)
    }
}
