//! A world as a server of a deployment: its clock may be set, it fails over, loads files, and applies the changes that
//! another server has replicated. Each step of a primary is still compared with the model.

use dlock_core::engine::Permission;
use dlock_core::engine::{Answer, Input, Role};
use dlock_core::{Lock, Token, UnixMs};

use super::held;
use super::naive::{Hold, Key, Naive, Request};
use super::ops::History;
use super::plain;
use super::world::World;
use crate::histories::values::{KEYS, KeyNo};
use crate::histories::world::Deployed;
use crate::keyspace::{KeyName, MemoryKeyspace, Replicated};

/// The state of a primary's model after the changes that it has replicated so far.
#[derive(Clone, Debug)]
pub struct Snapshot {
    keys: Vec<Key>,
    /// Holds that have lapsed and are still stored.
    lapsed: Vec<(KeyNo, Hold)>,
    /// The highest token that was replicated. A primary may have seen a higher one, of a grant that was lost.
    last_token: u64,
}

impl Default for Snapshot {
    /// Returns the state of a server without locks.
    fn default() -> Snapshot {
        Snapshot { keys: vec![Key::default(); KEYS.len()], lapsed: Vec::new(), last_token: 0 }
    }
}

/// The contents of a file or a full sync: the bytes of locks, the expiry of their keys, and the token clock.
#[derive(Clone, Debug, Default)]
pub struct SavedKeys {
    keys: Vec<(KeyName, Vec<u8>, Option<u64>)>,
    last_token: u64,
}

impl World {
    /// Returns a server without keys. Its clock, and its monotonic clock, are in µs.
    pub fn deployed((now_us, uptime_us): (u64, u64), default_lease: u64, role: Role) -> World {
        let mut world = World::new(&History::new(default_lease));
        world.deployed = Some(Deployed::default());
        world.server.role = role;
        world.server.space.keeps_expired = role == Role::Replica;
        // Sessions get other numbers than before a restart.
        (world.naive.openings, world.ran_at) = (uptime_us * 1000, uptime_us);
        world.set_server_clocks(now_us, uptime_us);
        world.naive.now_us = now_us;
        world
    }

    /// Returns the time of the server's clock, in µs.
    pub fn now_us(&self) -> u64 {
        self.naive.now_us
    }

    /// Returns the role of the server.
    pub fn role(&self) -> Role {
        self.server.role
    }

    /// Returns when the timer is due, in µs of the server's clock.
    pub fn wake_at_us(&self) -> Option<u64> {
        self.server.engine.wake_at().map(|at| at.get() * 1000)
    }

    /// Returns the model of the locks.
    pub fn model(&self) -> &Naive {
        &self.naive
    }

    /// Returns the highest token that the server has seen.
    pub fn last_token(&self) -> u64 {
        self.server.engine.memory().tokens.last()
    }

    fn set_server_clocks(&mut self, now_us: u64, uptime_us: u64) {
        self.server.space.set_now_us(now_us);
        self.server.space.set_uptime_us(uptime_us);
        self.naive.uptime_ahead_us = uptime_us.cast_signed() - now_us.cast_signed();
    }

    /// Sets the clock, forward or back, and the monotonic clock.
    pub fn set_clock(&mut self, now_us: u64, uptime_us: u64) {
        if self.server.role == Role::Replica {
            self.set_server_clocks(now_us, uptime_us);
            self.naive.now_us = now_us;
            return;
        }
        let (before, now) = (self.naive.now_us, now_us / 1000);
        for key in 0..KEYS.len() {
            let lapses = |hold: &&Hold| hold.ended.is_none() && hold.deadline <= now;
            let lapsed = self.naive.keys[key].holds.iter().filter(lapses);
            let lapsed: Vec<_> = lapsed.map(|hold| (key, hold.clone())).collect();
            self.remember_lapsed(lapsed);
        }
        self.set_server_clocks(now_us, uptime_us);
        self.naive.advance(now_us);
        if now_us < before {
            let deployed = self.deployed.as_mut().expect("a deployed server");
            deployed.late_until = deployed.late_until.max(before / 1000 + 50);
            self.forget_ends();
            self.revive();
        }
        self.notice_expired();
    }

    fn remember_lapsed(&mut self, lapsed: Vec<(KeyNo, Hold)>) {
        self.deployed.as_mut().expect("a deployed server").lapsed.extend(lapsed);
    }

    /// Lets holds whose sessions have ended end now: a clock that goes back does not revive a session.
    fn forget_ends(&mut self) {
        for hold in self.naive.keys.iter_mut().flat_map(|key| &mut key.holds) {
            hold.ended = hold.ended.map(|_| 0);
        }
    }

    /// Makes stored holds live again whose deadlines are in the future by the present clock.
    fn revive(&mut self) {
        let now = self.naive.now();
        for (key, mut hold) in self.take_lapsed() {
            if now < hold.deadline {
                // When a hold that has reached its cap lapses, its session forgets it.
                hold.session = hold.session.filter(|_| hold.cap != Some(hold.deadline));
                self.naive.keys[key].holds.push(hold);
            } else {
                self.remember_lapsed(vec![(key, hold)]);
            }
        }
    }

    /// Takes the holds that have lapsed and are still stored.
    fn take_lapsed(&mut self) -> Vec<(KeyNo, Hold)> {
        let lapsed = std::mem::take(&mut self.deployed.as_mut().expect("a deployed server").lapsed);
        let kept = std::mem::replace(&mut self.server.space.keeps_expired, true);
        let stored = lapsed.into_iter().filter(|(key, hold)| self.stores(*key, hold)).collect();
        self.server.space.keeps_expired = kept;
        stored
    }

    /// Returns whether the server still stores a hold.
    fn stores(&self, key: KeyNo, hold: &Hold) -> bool {
        let same = |stored: &dlock_core::Hold| {
            stored.token.get() == hold.token && stored.mode == hold.mode && stored.deadline.get() == hold.deadline
        };
        self.server.space.lock(&plain::key_name(key)).stored_holds().any(same)
    }

    // Requests.

    /// `DEL`.
    pub fn remove(&mut self, key: KeyNo) {
        self.delete(key);
        self.unlinked();
    }

    /// Ends the wait of a request. Returns whether it still waited.
    pub fn give_up(&mut self, ticket: u64) -> bool {
        let at = self.naive.waiting.iter().position(|waiter| waiter.ticket == ticket);
        at.map(|at| self.abandon(at)).is_some()
    }

    /// Ends a connection.
    pub fn disconnect(&mut self, client: u64) {
        self.close_client(client);
    }

    /// Removes all expired keys.
    pub fn expire_keys(&mut self) {
        self.server.space.expire_actively();
        self.unlinked();
    }

    /// Runs the timer if it is due, and compares the server with the model.
    pub fn end_turn(&mut self) {
        self.tick();
        if self.server.role != Role::Replica {
            self.compare();
        }
    }

    /// Takes the answers to waiters since the last call.
    pub fn take_answered(&mut self) -> Vec<(Request, Answer)> {
        std::mem::take(&mut self.deployed.as_mut().expect("a deployed server").answered)
    }

    // Replication.

    /// Takes the changes that the server has replicated since the last call.
    pub fn take_replicated(&mut self) -> Vec<(KeyName, Replicated)> {
        self.server.space.take_stream()
    }

    /// Applies the changes that a primary has replicated. `after` is the state of the primary's model after them.
    pub fn apply(&mut self, changes: &[(KeyName, Replicated)], after: &Snapshot) {
        self.observe_token(after.last_token);
        let kept = std::mem::replace(&mut self.server.space.keeps_expired, true);
        MemoryKeyspace::replay_on(changes.to_vec(), &mut self.server.space, self.server.engine.memory_mut());
        self.server.space.keeps_expired = kept;
        self.server.space.take_stream();
    }

    /// Returns the state of the model.
    pub fn snapshot(&mut self) -> Snapshot {
        let lapsed = self.take_lapsed();
        self.remember_lapsed(lapsed.clone());
        let (seen, carried) = self.deployed.as_ref().expect("a deployed server").inherited;
        // The server's own grants are all replicated.
        let last_token = if self.naive.last_token == seen { carried } else { self.naive.last_token };
        Snapshot { keys: self.naive.keys.clone(), lapsed, last_token }
    }

    fn observe_token(&mut self, token: u64) {
        self.naive.last_token = self.naive.last_token.max(token);
    }

    fn observe_tokens_of(&mut self, lock: &Lock) {
        lock.stored_holds().for_each(|hold| self.observe_token(hold.token.get()));
    }

    /// Returns the contents of a file or a full sync, with the token clock if the server saves it.
    pub fn save(&mut self, has_token_clock: bool) -> SavedKeys {
        let kept = std::mem::replace(&mut self.server.space.keeps_expired, true);
        let names = self.server.space.names();
        let keys = names.into_iter().filter_map(|name| {
            let (bytes, expiry) = (self.server.space.dump(&name)?, self.server.space.expiry(&name)?);
            Some((name, bytes, expiry))
        });
        let keys = keys.collect();
        self.server.space.keeps_expired = kept;
        SavedKeys { keys, last_token: if has_token_clock { self.last_token() } else { 0 } }
    }

    /// Replaces all keys with these.
    pub fn load(&mut self, saved: &SavedKeys) {
        let kept = std::mem::replace(&mut self.server.space.keeps_expired, true);
        self.server.space.flush(None);
        for (name, bytes, expiry) in &saved.keys {
            let lock = self.server.space.restore(name, bytes, *expiry);
            self.server.engine.memory_mut().tokens.observe_all(lock.stored_holds());
            self.observe_tokens_of(&lock);
        }
        self.observe_token(saved.last_token);
        if let Some(token) = Token::new(saved.last_token) {
            self.server.engine.memory_mut().tokens.observe(token);
        }
        self.server.space.take_stream();
        self.server.space.take_unlinked();
        self.server.space.keeps_expired = kept;
        self.input(Input::Loaded);
    }

    /// Returns the first difference between the locks that this server and another store.
    pub fn differs_from(&self, other: &World) -> Option<String> {
        let holds = |world: &World, key| {
            let lock = world.server.space.lock(&plain::key_name(key));
            held::sorted(lock.stored_holds().map(held::hold).collect())
        };
        (0..KEYS.len()).find_map(|key| {
            // The servers may remove an expired key at different times.
            if self.server.space.has_expired(&plain::key_name(key))
                || other.server.space.has_expired(&plain::key_name(key))
            {
                return None;
            }
            let (ours, theirs) = (holds(self, key), holds(other, key));
            (ours != theirs).then(|| format!("key {key}: {ours:?}, not {theirs:?}"))
        })
    }

    // Roles.

    /// Pauses writes, as `CLIENT PAUSE` and `FAILOVER` do: the server changes no locks by itself.
    pub fn hold_still(&mut self) {
        self.server.role = Role::HeldStill;
    }

    /// Ends a pause.
    pub fn go_on(&mut self) {
        self.server.role = Role::Primary;
    }

    /// Makes the server a replica. Waiters get `UNBLOCKED`.
    pub fn become_replica(&mut self) {
        self.demote();
        self.server.space.keeps_expired = true;
        self.deployed.as_mut().expect("a deployed server").lapsed.clear();
    }

    /// Makes the server a primary. Its model becomes the state that the former primary has replicated.
    ///
    /// # Errors
    /// Returns how the token clock differs from the tokens that the server has seen.
    pub fn promote(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        self.server.space.keeps_expired = false;
        self.server.role = Role::Primary;
        self.naive.keys.clone_from(&snapshot.keys);
        (0..KEYS.len()).for_each(|key| self.naive.unbind(key));
        let unbound = |(key, hold): &(KeyNo, Hold)| (*key, Hold { session: None, ended: None, ..hold.clone() });
        let (last, seen) = (self.last_token(), self.naive.last_token);
        let deployed = self.deployed.as_mut().expect("a deployed server");
        deployed.lapsed = snapshot.lapsed.iter().map(unbound).collect();
        if last != seen || seen < snapshot.last_token {
            let given = snapshot.last_token;
            return Err(format!("the token clock is at {last}, but {seen} was seen, and {given} replicated"));
        }
        deployed.inherited = (seen, snapshot.last_token);
        self.input(Input::RoleChanged);
        // By this server's clock, other holds may have lapsed than by the former primary's.
        self.revive();
        self.set_clock(self.naive.now_us, self.naive.uptime_us());
        Ok(())
    }

    // Slots.

    /// Moves the slot of a key to another server. Waiters for the key get an error.
    pub fn lose_slot(&mut self, key: KeyNo) {
        self.server.space.permissions.insert(plain::key_name(key), Permission::Elsewhere);
        self.delete(key);
        self.unlinked();
    }

    /// Lets the server serve a key.
    pub fn gain_slot(&mut self, key: KeyNo) {
        self.server.space.permissions.remove(&plain::key_name(key));
    }

    /// Copies a lock from another server, as `DUMP` and `RESTORE` with the TTL in ms do.
    pub fn import(&mut self, from: &World, key: KeyNo) {
        let name = plain::key_name(key);
        let Some(bytes) = from.server.space.dump(&name) else { return };
        let expiry = from.server.space.expiry(&name).flatten();
        let lock = self.server.space.restore(&name, &bytes, expiry);
        self.unlinked();
        self.server.engine.memory_mut().tokens.observe_all(lock.stored_holds());
        self.observe_tokens_of(&lock);
        self.naive.keys[key] = from.naive.keys[key].clone();
        self.naive.unbind(key);
        self.input(Input::Restored(crate::keyspace::name(&name)));
        let is_of_key = |(of, _): &&(KeyNo, Hold)| *of == key;
        let lapsed = &from.deployed.as_ref().expect("a deployed server").lapsed;
        let lapsed = lapsed.iter().filter(is_of_key).map(|(key, hold)| (*key, Hold { session: None, ..hold.clone() }));
        self.remember_lapsed(lapsed.collect());
        self.revive();
        self.set_clock(self.naive.now_us, self.naive.uptime_us());
    }

    /// Returns the last deadline of the holds that are stored in a key.
    pub fn last_deadline(&self, key: KeyNo) -> Option<u64> {
        self.server.space.lock(&plain::key_name(key)).last_deadline().map(UnixMs::get)
    }
}
