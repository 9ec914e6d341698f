//! Changes to keys by commands of the server, in the engine's keyspace, in that of the replica and in the naive model.

use dlock_core::UnixMs;
use dlock_core::engine::{Input, Permission};

use super::{RETRY_US, World};
use crate::histories::held;
use crate::histories::naive::Key;
use crate::histories::ops::Op;
use crate::histories::plain;
use crate::histories::values::{KEYS, KeyNo};

impl World {
    pub(super) fn change_keys(&mut self, op: &Op) {
        self.sync_replica();
        let now = self.naive.now();
        match op {
            Op::Expire(key, ms) => {
                let name = plain::key_name(*key);
                if !self.server.space.exists(&name) || self.naive.keys[*key].is_other {
                    return;
                }
                let last = self.server.space.lock(&name).last_deadline().map(UnixMs::get);
                self.server.space.set_expiry(&name, Some(now + ms));
                // An expiry that has passed deletes the key.
                if self.unlinked() {
                    return self.naive.clear(*key);
                }
                self.replica.set_expiry(&name, Some(now + ms));
                let is_early = last.is_some_and(|last| now + ms < last);
                self.naive.keys[*key].early = is_early.then_some(now + ms);
                self.late.remove(key);
                if !is_early {
                    self.late.insert(*key);
                }
                self.reached.count_if("expiry before the deadline", is_early);
            }
            Op::Persist(key) => {
                let name = plain::key_name(*key);
                if self.server.space.exists(&name) {
                    self.server.space.set_expiry(&name, None);
                    self.replica.set_expiry(&name, None);
                    self.naive.keys[*key].early = None;
                    self.late.insert(*key);
                }
            }
            Op::Delete(key) => self.delete(*key),
            Op::Overwrite(key) => {
                let name = plain::key_name(*key);
                self.server.space.set_other(&name);
                self.drain();
                self.replica.set_other(&name);
                self.naive.overwrite(*key);
                if self.unlinked() {
                    self.overwritten.insert(*key);
                }
            }
            Op::MoveAway(key) => {
                self.server.space.permissions.insert(plain::key_name(*key), Permission::Elsewhere);
                self.delete(*key);
                let was_lock = self.unlinked();
                self.tick();
                assert!(!was_lock || self.naive.queue(*key).is_empty(), "{:?}", self.naive);
            }
            Op::Rename(from, to) if from != to => self.rename(*from, *to),
            Op::Restore(from, to, ttl) => self.restore(*from, *to, ttl.map(|ttl| now + ttl)),
            Op::Flush(db) => {
                self.server.space.flush(*db);
                self.replica.flush(*db);
                self.naive.flush(*db);
                self.overwritten.clear();
                self.input(Input::Flushed(*db));
            }
            Op::Swap => {
                self.server.space.swap(0, 1);
                self.replica.swap(0, 1);
                self.naive.swap();
                // KEYS has three names in database 0, then the same names in database 1.
                let swapped = |key: &KeyNo| if *key < 3 { key + 3 } else { key - 3 };
                self.late = self.late.iter().map(swapped).collect();
                self.overwritten.clear();
                self.input(Input::Swapped(0, 1));
            }
            Op::Reload => {
                self.server.space.reload();
                self.replica.reload();
                (0..KEYS.len()).for_each(|key| self.naive.unbind(key));
                self.input(Input::Loaded);
            }
            Op::ExpireActively => self.server.space.expire_actively(),
            Op::SetPermission(key, permission) => self.set_permission(*key, *permission),
            _ => {}
        }
        self.unlinked();
    }

    pub(in crate::histories) fn delete(&mut self, key: KeyNo) {
        let name = plain::key_name(key);
        self.server.space.delete(&name);
        self.overwritten.remove(&key);
        self.naive.clear(key);
        self.late.remove(&key);
    }

    /// Renames a key that exists. Its TTL moves along.
    fn rename(&mut self, from: KeyNo, to: KeyNo) {
        let (name, target) = (plain::key_name(from), plain::key_name(to));
        if !self.server.space.exists(&name) {
            return;
        }
        self.server.space.rename(&name, &target);
        self.drain();
        self.replica.rename(&name, &target);
        self.naive.rename(from, to);
        self.naive.advance(self.naive.now_us);
        self.late.insert(to);
        self.late.remove(&from);
        self.overwritten.remove(&from);
        self.overwritten.remove(&to);
        self.reached.count("renamed");
    }

    /// Restores a dump of `from` as `to`, with this expiry or, without one, that of the last deadline.
    fn restore(&mut self, from: KeyNo, to: KeyNo, expiry: Option<u64>) {
        let name = plain::key_name(to);
        let Some(bytes) = self.server.space.dump(&plain::key_name(from)) else { return };
        let lock = self.server.space.restore(&name, &bytes, expiry);
        self.drain();
        self.unlinked();
        self.server.engine.memory_mut().tokens.observe_all(lock.stored_holds());
        self.replica.restore(&name, &bytes, expiry);
        self.input(Input::Restored(crate::keyspace::name(&name)));
        let last = lock.last_deadline().map(UnixMs::get);
        let early = expiry.filter(|at| last.is_some_and(|last| *at < last));
        let holds = lock.stored_holds().map(held::hold).collect();
        self.naive.keys[to] = Key { holds, early, is_other: false, unnoticed: None };
        self.naive.advance(self.naive.now_us);
        self.late.insert(to);
        self.overwritten.remove(&to);
    }

    /// Sets what the server permits on a key. If everything is permitted again, waits until the timer has tried again.
    fn set_permission(&mut self, key: KeyNo, permission: Permission) {
        let name = plain::key_name(key);
        match permission {
            Permission::Full => {
                if self.server.space.permissions.remove(&name).is_some() {
                    self.wait(RETRY_US);
                }
            }
            Permission::ReleaseOnly | Permission::Elsewhere => {
                self.server.space.permissions.insert(name, permission);
            }
        }
    }
}
