//! How the engine reaches one lock: its record, its key, and what the server lets a timer do to it.

use std::rc::Rc;

use crate::engine::keyspace::{Keyspace, NotOpen, OpenKey, OpenLock, Permission, WrongType};
use crate::engine::state::budget::Budget;
use crate::engine::state::due::retry;
use crate::engine::state::engine::Engine;
use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::parts::Parts;
use crate::engine::state::records::attention::Attention;
use crate::engine::state::records::record::Record;
use crate::engine::visit::Visit;
use crate::{Lock, Name, Now};

impl<T> Engine<T> {
    /// Returns the record of a lock, up to date with what happened to its database and to the clients of its holds.
    #[inline]
    pub(super) fn look_up(&mut self, name: Name<'_>) -> Option<RecordId> {
        let id = self.registry.find(name)?;
        self.refresh(id);
        Some(id)
    }

    /// Brings a record up to date.
    #[inline(never)]
    pub(super) fn refresh(&mut self, id: RecordId) -> Option<&mut Record> {
        let (record, since) = self.registry.look_at(id)?;
        self.parts.refresh(record, since);
        Some(record)
    }

    /// Returns the record of a lock, which gets one if it has none.
    #[inline(never)]
    pub(super) fn find_or_create(&mut self, name: Name<'_>) -> RecordId {
        match self.look_up(name) {
            Some(id) => id,
            None => self.registry.add(name, self.parts.sessions.ends_generation()),
        }
    }

    /// Changes a record, if it is still there.
    pub(super) fn with_record(&mut self, id: RecordId, change: impl FnOnce(&mut Parts<T>, &mut Record)) {
        if let Some(record) = self.registry.get_mut(id) {
            change(&mut self.parts, record);
        }
    }

    /// Schedules a visit of a record before the end of the turn.
    pub(super) fn mark_due(&mut self, id: RecordId) {
        self.with_record(id, |parts, record| parts.mark_due(record));
    }

    /// Forgets a lock: its key is gone, or has another value.
    #[inline(never)]
    pub(super) fn forget_lock(&mut self, id: RecordId) {
        self.with_record(id, |parts, record| parts.forget_lock(record));
    }

    /// Forgets a record that has nothing left to remember.
    #[inline(never)]
    pub(super) fn drop_if_idle(&mut self, id: RecordId) {
        if let Some(record) = self.registry.get_mut(id).filter(|record| record.is_idle()) {
            self.parts.backlog.unschedule(record);
            self.registry.remove(id);
        }
    }

    /// Opens a lock for change. `own` is the index of its key among those of the running command; `None` if it is not
    /// one of them.
    #[inline]
    pub(super) fn open<'e, 'k, S: Keyspace>(
        &'e mut self,
        space: &'k mut S,
        id: Option<RecordId>,
        name: Name<'_>,
        own: Option<usize>,
        (now, budget): (Now, &'e mut Budget),
    ) -> Result<Visit<'e, T, S::Key<'k>>, NotOpen> {
        let key = match space.open(name) {
            Ok(key) => key,
            Err(why) => {
                if why == NotOpen::NotNow {
                    self.try_later(id, now);
                }
                return Err(why);
            }
        };
        Ok(self.visit_open(key, id, own, (now, budget)))
    }

    /// Returns the visit of a lock whose key is open. `own`: see [`Engine::open`].
    #[inline(always)]
    pub(super) fn visit_open<'e, K: OpenKey>(
        &'e mut self,
        key: K,
        id: Option<RecordId>,
        own: Option<usize>,
        (now, budget): (Now, &'e mut Budget),
    ) -> Visit<'e, T, K> {
        let mut record = id.and_then(|id| self.registry.get_mut(id));
        if let Some(record) = &mut record
            && !record.is_idle()
            && (key.was_removed() || !record.bound.are_of(key.lock().unwrap_or(&Lock::EMPTY)))
        {
            self.parts.forget_lock(record);
        }
        Visit { open: OpenLock::new(key, own), record, parts: &mut self.parts, budget, now }
    }

    /// Has the timer visit a lock that the server does not open for now. The timer runs a little later.
    #[cold]
    fn try_later(&mut self, id: Option<RecordId>, now: Now) {
        id.into_iter().for_each(|id| self.mark_due(id));
        self.parts.backlog.not_before = retry(now);
    }

    /// Asks which access the server gives a timer to a lock.
    pub(super) fn query_permission<S: Keyspace>(&mut self, space: &mut S, id: RecordId, name: Name<'_>) -> Permission {
        let permission = space.permission(name);
        self.note_removal(space, Some(id));
        permission
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

    /// Forgets the lock if the server removed its expired key when it was asked about the key.
    fn note_removal<S: Keyspace>(&mut self, space: &S, id: Option<RecordId>) {
        if let Some(id) = id.filter(|_| space.has_removed()) {
            self.forget_lock(id);
        }
    }

    /// Prepares a lock that a request begins to wait for: sets that its queue is due when a hold ends, and lets the key
    /// outlive the last deadline a little, unless a client set its TTL.
    pub(super) fn begin_to_watch<S: Keyspace>(&mut self, space: &mut S, id: RecordId, now: Now, budget: &mut Budget) {
        let Some(record) = self.registry.get_mut(id) else { return debug_assert!(false, "a waiter has no record") };
        if matches!(record.attention, Attention::Due(_)) {
            self.parts.mark_due(record);
        }
        if record.has_ttl_grace && record.queue_due.is_some_and(|due| now.ms() < due) {
            return;
        }
        let (db, key) = (record.db, Rc::clone(&record.key));
        // If the key has another type, its queue is due already.
        let Ok(mut visit) = self.open(space, Some(id), Name { db, key: &key }, None, (now, budget)) else { return };
        visit.reschedule();
        visit.close_for_waiter();
    }

    /// Returns the head of the queue of a lock.
    pub(super) fn head_of(&self, id: Option<RecordId>) -> Option<WaiterId> {
        self.registry.get(id?)?.queue.head()
    }
}
