//! Changes to keys and to the server.

use dlock_core::Keyspace;
use dlock_core::engine::{Input, Lost, Role};
use dlock_testkit::keyspace::{KeyName, name};

use super::{Interpreter, key_name, new_engine};
use crate::options::Words;

impl Interpreter {
    /// Runs a command that changes keys, on the primary and on the replica. Returns the reply.
    pub(super) fn change_keys(&mut self, command: &str, words: &mut Words) -> String {
        let (now, key) = (self.space.ms(), self.key.clone());
        let was_there = u8::from(self.space.exists(&key));
        match command {
            "expire" => {
                let at = now + words.number();
                if at <= now {
                    self.lose(&key);
                }
                self.space.set_expiry(&key, Some(at));
                // A time in the past has deleted the key, which is replicated as such.
                if at > now {
                    self.replica.set_expiry(&key, Some(at));
                }
                was_there.to_string()
            }
            "persist" => {
                let had_end = self.space.expiry(&key).flatten().is_some();
                self.space.set_expiry(&key, None);
                self.replica.set_expiry(&key, None);
                u8::from(had_end).to_string()
            }
            "del" => {
                self.lose(&key);
                self.space.delete(&key);
                was_there.to_string()
            }
            "set" => {
                self.lose(&key);
                self.space.set_other(&key);
                self.replicate_removal();
                self.replica.set_other(&key);
                "OK".to_owned()
            }
            "rename" => {
                let to = key_name(words.word());
                if was_there == 0 {
                    return "ERR no such key".to_owned();
                }
                self.lose(&key);
                self.lose(&to);
                self.space.rename(&key, &to);
                self.replicate_removal();
                self.replica.rename(&key, &to);
                "OK".to_owned()
            }
            "restore" => {
                let from = key_name(words.word());
                let expiry = words.next().map(|ms| now + ms.parse::<u64>().expect("a number of ms"));
                let bytes = self.space.dump(&from).expect("a lock to restore");
                self.lose(&key);
                let lock = self.space.restore(&key, &bytes, expiry);
                self.replicate_removal();
                self.replica.restore(&key, &bytes, expiry);
                self.engine.memory_mut().tokens.observe_all(lock.stored_holds());
                self.engine.input(Input::Restored(name(&key)), self.space.now());
                "OK".to_owned()
            }
            "flush" => {
                let db = words.next().map(|db| db.parse().expect("a database"));
                if self
                    .space
                    .names()
                    .iter()
                    .any(|name| db.is_none_or(|db| db == name.0) && !self.space.lock(name).is_empty())
                {
                    self.engine.log_flush(db, self.space.now());
                }
                self.space.flush(db);
                self.replica.flush(db);
                self.engine.input(Input::Flushed(db), self.space.now());
                "OK".to_owned()
            }
            "swap" => {
                let dbs = [(); 2].map(|()| i32::try_from(words.number()).expect("a database"));
                self.space.swap(dbs[0], dbs[1]);
                self.replica.swap(dbs[0], dbs[1]);
                self.engine.input(Input::Swapped(dbs[0], dbs[1]), self.space.now());
                "OK".to_owned()
            }
            // The server removes the keys that have expired.
            "evict" => {
                self.space.expire_actively();
                "OK".to_owned()
            }
            _ => self.happen(command),
        }
    }

    /// Tells the engine of the lock that a command is about to remove. A server also tells it of locks whose keys have
    /// expired. The interpreter does not, so `counts` and `log` lack their holds.
    fn lose(&mut self, key: &KeyName) {
        if self.space.exists(key) {
            self.engine.lose(&Lost::of(name(key), self.space.lock(key), self.space.now()));
        }
    }

    /// Removes on the replica what a command has overwritten, before the replica runs that command, too.
    fn replicate_removal(&mut self) {
        self.space.replicate_to(&mut self.replica, &mut self.memory);
    }

    /// Runs a command that changes the server: its role, or the data and the engine by a reload or a restart.
    fn happen(&mut self, command: &str) -> String {
        let now = self.space.now();
        match command {
            "pause" => self.role = Role::HeldStill,
            "resume" => self.role = Role::Primary,
            "demote" => {
                self.role = Role::Replica;
                self.engine.input(Input::RoleChanged, now);
                let waiters: Vec<u64> = self.waiters.keys().copied().collect();
                waiters.into_iter().for_each(|ticket| drop(self.leave(&format!("w{ticket}"))));
            }
            "promote" => {
                self.role = Role::Primary;
                self.engine.input(Input::RoleChanged, now);
            }
            "reload" => {
                self.space.reload();
                self.engine.input(Input::Loaded, now);
            }
            "restart" => {
                self.space.reload();
                self.engine = new_engine(8, &self.configured);
                for key in self.space.names() {
                    self.engine.memory_mut().tokens.observe_all(self.space.lock(&key).stored_holds());
                }
                self.waiters.clear();
            }
            _ => panic!("{command}: no such command"),
        }
        "OK".to_owned()
    }
}
