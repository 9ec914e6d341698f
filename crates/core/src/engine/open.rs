//! How a lock is opened, changed and closed, and what a command does there beside its own work.

use super::keyspace::{GRACE_MS, Keyspace, OpenKey, OpenLock, Permission, Replication, WrongType};
use super::record::RecordId;
use super::{Engine, Event};
use crate::{Applied, Effect, Lock, Name, Now, Owner};

/// How often a command begins anew because a request for several locks has become the head. Then it queues behind it.
const MAX_RESTARTS: u32 = 16;

impl<T> Engine<T> {
    /// Runs a command on one lock. It does what is due there, then the command's own work, `body`, then what has become
    /// due. `body` may give the lock a record. `own` is the index of the lock's key among those of the command.
    #[inline]
    pub(super) fn on_lock<S: Keyspace, R>(
        &mut self,
        space: &mut S,
        name: Name<'_>,
        own: usize,
        now: Now,
        owner: &Owner,
        body: impl FnOnce(&mut Self, &mut Option<RecordId>, &mut OpenLock<S::Key<'_>>) -> R,
    ) -> Result<R, WrongType> {
        let mut restarts = 0..MAX_RESTARTS;
        loop {
            let mut id = self.look_up(name);
            if let Some(found) = id {
                // A request for several locks that has become the head, and was not looked at since, comes first.
                self.serve_several(space, found, now);
                // A record that has nothing left to remember is gone.
                id = id.filter(|id| self.records.contains_key(*id));
            }
            let head = self.head_of(id);
            let mut open = self.open(space, id, name, Some(own))?;
            // What is due comes first: the command sees the lock after that.
            let several = id.and_then(|id| {
                self.release_ended(id, &mut open, now);
                self.release_ended_of(id, &mut open, now, owner);
                self.serve(id, &mut open, now)
            });
            // One that becomes the head now may get in, and comes before the command, too.
            if several.is_some() && several != head && restarts.next().is_some() {
                self.close(id, open);
                continue;
            }
            let done = body(self, &mut id, &mut open);
            self.close(id, open);
            if let Some(id) = id {
                self.serve_several(space, id, now);
                self.drop_if_idle(id);
            }
            return Ok(done);
        }
    }

    /// Opens a lock for change. `own` is the index of its key among those of the running command.
    pub(super) fn open<'k, S: Keyspace>(
        &mut self,
        space: &'k mut S,
        id: Option<RecordId>,
        name: Name<'_>,
        own: Option<usize>,
    ) -> Result<OpenLock<S::Key<'k>>, WrongType> {
        let key = space.open(name)?;
        if let Some(id) = id
            && key.was_removed()
        {
            self.forget_lock(id);
        }
        Ok(OpenLock::new(key, own))
    }

    /// Asks what the server lets a timer do to a lock.
    pub(super) fn ask<S: Keyspace>(&mut self, space: &mut S, id: RecordId, name: Name<'_>) -> Permission {
        let permission = space.permission(name);
        if space.has_removed() {
            self.forget_bound(id);
        }
        permission
    }

    /// Applies an effect, and keeps the bindings of the lock in step with it.
    pub(super) fn apply<K: OpenKey>(
        &mut self,
        id: Option<RecordId>,
        open: &mut OpenLock<K>,
        effect: Effect,
        replication: Replication,
    ) -> Applied {
        if open.lock().has_lapsed(effect.clock) {
            self.note_lapses(id, open, effect.clock);
        }
        if let Some(id) = id {
            self.follow(id, &effect);
        }
        let applied = open.apply(effect, replication, &mut self.memory);
        if applied.lapsed > 0 {
            self.stats.lapses += applied.lapsed;
            self.emit(id, open.own, Event::Lapse);
        }
        applied
    }

    /// Closes a lock.
    pub(super) fn close<K: OpenKey>(&mut self, id: Option<RecordId>, open: OpenLock<K>) {
        let is_changed = open.is_changed();
        match id.and_then(|id| self.records.get_mut(id)) {
            None => open.close(0),
            Some(record) if is_changed => {
                record.has_grace = !record.queue.is_empty();
                open.close(if record.has_grace { GRACE_MS } else { 0 });
            }
            // A key that was swapped here, or away and back, may have a grace that the record does not know.
            Some(record) if record.queue.is_empty() => {
                record.has_grace = false;
                // Another end is somebody else's.
                if open.has_grace() { open.close_with_grace(0) } else { open.close(0) }
            }
            Some(_) => open.close(0),
        }
    }

    /// Looks at a lock that is not opened.
    pub(super) fn peek<S: Keyspace, R>(
        &mut self,
        space: &mut S,
        id: Option<RecordId>,
        name: Name<'_>,
        look: impl FnOnce(&Lock) -> R,
    ) -> Result<R, WrongType> {
        let seen = space.peek(name, look);
        self.note_removal(space, id);
        seen
    }

    /// After a look at a lock: if the server has removed the key, what was bound is void, and its queue may move.
    pub(super) fn note_removal<S: Keyspace>(&mut self, space: &S, id: Option<RecordId>) {
        if let Some(id) = id
            && space.has_removed()
        {
            self.forget_lock(id);
        }
    }
}
