//! What other commands do to a key that is a lock, and what else ends a hold.

use super::{Client, Hold, Key, Model, Reply, Value};

impl Model {
    /// `DEL`. Who waits is served after the command, or by the next one for that lock.
    pub fn delete(&mut self, key: Key) -> Reply {
        Reply::Integer(self.keys.remove(&key).map_or(0, |_| 1))
    }

    /// `SET key text`.
    pub fn overwrite(&mut self, key: Key) -> Reply {
        self.keys.insert(key, Value::Text);
        Reply::Ok
    }

    /// `RENAME`, of two different keys.
    pub fn rename(&mut self, from: Key, to: Key) -> Reply {
        let Some(value) = self.take(from) else { return Reply::Error("ERR no such key") };
        self.keys.insert(to, value);
        Reply::Ok
    }

    /// `MOVE`.
    pub fn move_to(&mut self, from: Key, db: u8) -> Reply {
        let to = (db, from.1);
        if self.keys.contains_key(&to) {
            return Reply::Integer(0);
        }
        let Some(value) = self.take(from) else { return Reply::Integer(0) };
        self.keys.insert(to, value);
        Reply::Integer(1)
    }

    /// `SWAPDB 0 1`: the locks change places, the lines do not.
    pub fn swap(&mut self) -> Reply {
        let keys: Vec<Key> = self.keys.keys().copied().collect();
        let values: Vec<(Key, Value)> =
            keys.into_iter().filter_map(|(db, name)| Some(((1 - db, name), self.take((db, name))?))).collect();
        self.keys.extend(values);
        Reply::Ok
    }

    /// `FLUSHALL`, or `FLUSHDB` of one database.
    pub fn flush(&mut self, db: Option<u8>) -> Reply {
        self.keys.retain(|(of, _), _| db.is_some_and(|db| db != *of));
        Reply::Ok
    }

    /// A hold's lease has run out.
    pub fn lapse(&mut self, now: u64, key: Key, token: u64) {
        self.remove_holds(key, |hold| hold.token == token);
        self.serve(now, key);
    }

    /// A connection is gone: it leaves its line, and its holds go with it.
    pub fn disconnect(&mut self, now: u64, client: Client) {
        self.leave_lines(client);
        let keys: Vec<Key> = self.keys.keys().copied().collect();
        keys.into_iter().for_each(|key| self.remove_holds(key, |hold| hold.session == Some(client)));
        self.serve_all(now);
    }

    fn remove_holds(&mut self, key: Key, is_gone: impl Fn(&Hold) -> bool) {
        if let Some(Value::Lock(lock)) = self.keys.get_mut(&key) {
            lock.holds.retain(|hold| !is_gone(hold));
        }
        self.drop_empty(key);
    }

    /// A key's value, to be put elsewhere: its holds are bound no more.
    fn take(&mut self, key: Key) -> Option<Value> {
        let mut value = self.keys.remove(&key)?;
        if let Value::Lock(lock) = &mut value {
            lock.holds.iter_mut().for_each(|hold| hold.session = None);
        }
        Some(value)
    }
}
