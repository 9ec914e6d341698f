//! The timer: it visits the locks that are due, and does the work that earlier turns left.

use std::rc::Rc;
use std::time::Duration;

use crate::engine::keyspace::{Keyspace, NotOpen, OpenKey, Permission};
use crate::engine::state::budget::{
    ANSWERS_AT_ONCE, Budget, FREED_AT_ONCE, LOOKED_AT_ONCE, MOVED_AT_ONCE, PIECE, REJECTED_AT_ONCE, TICK_US, TickBudget,
};
use crate::engine::state::due::{RETRY_MS, retry};
use crate::engine::state::engine::Engine;
use crate::engine::state::fault::Fault;
use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::outbox::Answer;
use crate::engine::state::records::attention::Attention;
use crate::engine::state::records::attention::{Due, Lane};
use crate::engine::visit::Visit;
use crate::{Name, Now, UnixMs};

/// The state of the server when a timer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A primary that may write.
    Primary,
    /// A primary whose data must not change now: `CLIENT PAUSE`, `FAILOVER`, slot hand-over.
    HeldStill,
    /// A replica.
    Replica,
}

/// How long the renewal of a long lease is put off at most, in ms.
const MAX_RETRY_MS: u64 = 1000;

impl<T> Engine<T> {
    /// Does what is due, in steps that are each as large as a turn. A timer calls this at [`Engine::wake_at`].
    pub fn tick<S: Keyspace>(&mut self, space: &mut S, role: Role) {
        let start = space.now();
        self.parts.backlog.not_before = UnixMs::ZERO;
        self.parts.sessions.sent_away = 0;
        match role {
            Role::Primary => {
                self.parts.sessions.named.advance(space.uptime(), start);
                self.check_users(space);
            }
            Role::HeldStill => {
                self.parts.sessions.named.stand_still(space.uptime());
                self.parts.backlog.not_before = retry(start);
                self.parts.backlog.behind_since = None;
                return;
            }
            Role::Replica => {
                self.parts.backlog.forget_ttls();
                self.forget_sessions();
            }
        }
        let mut now = start;
        let since =
            self.parts.backlog.behind_since.map_or(Duration::ZERO, |since| space.worked().saturating_sub(since));
        let mut tick = TickBudget::new(start, since);
        let waiting = self.parts.waiters.len();
        loop {
            let mut budget = Budget { should_yield: self.has_large_rests(), ..Budget::TURN };
            let has_worked =
                (role == Role::Replica && self.forget_some_locks(&mut budget)) || self.step(space, now, &mut budget);
            // `not_before` is set if the server does not open a key now: the next tick tries again.
            if !has_worked || self.parts.backlog.not_before > UnixMs::ZERO {
                self.parts.backlog.behind_since = None;
                return;
            }
            now = space.now();
            let answers = waiting.saturating_sub(self.parts.waiters.len());
            if tick.is_over(now, budget) || answers >= ANSWERS_AT_ONCE {
                // The server serves its clients before the next tick.
                self.parts.backlog.not_before = now.ms_later(1);
                self.parts.backlog.behind_since = Some(space.worked());
                return;
            }
        }
    }

    /// Forgets some of the locks that the server remembers from its time as a primary: a replica visits none. Returns
    /// whether there were any.
    fn forget_some_locks(&mut self, budget: &mut Budget) -> bool {
        for piece in 0..PIECE {
            let next = self.registry.databases_mut().next_to_recheck();
            let Some(id) = next.or_else(|| self.next_due(UnixMs::MAX).map(|(id, _)| id)) else { return piece > 0 };
            self.refresh(id);
            self.with_record(id, |parts, record| {
                parts.backlog.unschedule(record);
                (record.has_ttl_grace, record.lost_last_waiter, record.queue_due) = (false, false, None);
            });
            self.drop_if_idle(id);
        }
        budget.should_yield = true;
        true
    }

    /// Returns whether much memory is left to free, or databases that were emptied are left to look at. A step that
    /// does a piece of this is as large as a turn may be.
    fn has_large_rests(&self) -> bool {
        self.parts.sessions.has_discarded()
            || !self.parts.memory.trash.is_empty()
            || !self.registry.databases().are_checked()
    }

    /// Does one piece of each kind of work, so that none delays the others. Returns whether there was any.
    fn step<S: Keyspace>(&mut self, space: &mut S, now: Now, budget: &mut Budget) -> bool {
        let has_tidied = self.end_overdue(now, budget) | self.tidy();
        let ttl = self.parts.backlog.next_ttl();
        if let Some((db, key)) = &ttl {
            self.correct_ttl(space, Name { db: *db, key }, now, budget);
        }
        let Some((id, due)) = self.next_due(now.ms()) else { return has_tidied || ttl.is_some() };
        let begin = space.now();
        self.visit(space, id, due, begin, budget);
        // If the clock jumps, the visit costs its client a tick at most.
        self.parts.backlog.charge(due, space.now().us().saturating_sub(begin.us()).min(TICK_US));
        true
    }

    /// Does a piece of the work that needs no key: ends of sessions, flushes, and memory to be freed. Returns whether
    /// there was any.
    fn tidy(&mut self) -> bool {
        let has_work = self.has_large_rests() || !self.parts.sessions.is_idle();
        if has_work {
            self.end_on_some_locks();
            for _ in 0..LOOKED_AT_ONCE {
                let Some(id) = self.registry.databases_mut().next_to_recheck() else { break };
                self.refresh(id);
            }
            self.parts.memory.trash.free_some(FREED_AT_ONCE);
            let is_bound = |id, key| self.registry.get(id).is_some_and(|record| record.bound.has_session(key));
            self.parts.sessions.free_discarded(FREED_AT_ONCE, is_bound);
        }
        has_work
    }

    /// Ends a session on some of its locks, and schedules visits that release its holds there.
    fn end_on_some_locks(&mut self) {
        let Some(key) = self.parts.sessions.next_ended() else { return };
        for _ in 0..LOOKED_AT_ONCE {
            let Some((id, end)) = self.parts.sessions.pop_ended(key) else { return };
            self.with_record(id, |parts, record| parts.end_session_on(record, key, end));
        }
    }

    /// Takes the first record that is due at `now` out of the backlog, and returns it with the work that is due.
    fn next_due(&mut self, now: UnixMs) -> Option<(RecordId, Due)> {
        // First, records whose time has come move from the agendas to the lanes.
        for _ in 0..MOVED_AT_ONCE {
            let (queue, renewal) = self.parts.backlog.first_times(now);
            if queue.is_none() && renewal.is_none() {
                break;
            }
            queue.into_iter().for_each(|id| self.mark_due(id));
            if let Some(id) = renewal {
                self.with_record(id, |parts, record| parts.backlog.set_renewal_due(record, now));
            }
        }
        let (due, id) = self.parts.backlog.first_due()?;
        self.with_record(id, |parts, record| match due.lane {
            Lane::Queues | Lane::Ended => parts.backlog.set_attention(record, Attention::None),
            Lane::Renewals | Lane::Lapsed => parts.backlog.set_renewal(record, Attention::None),
        });
        Some((id, due))
    }

    /// Sets the TTL of a lock that was restored without one to its last deadline, and removes the grace of a key that
    /// was swapped away from its waiters.
    fn correct_ttl<S: Keyspace>(&mut self, space: &mut S, name: Name<'_>, now: Now, budget: &mut Budget) {
        let id = self.look_up(name);
        let mut visit = match self.open(space, id, name, None, (now, budget)) {
            Ok(visit) => visit,
            Err(NotOpen::NotNow) => return self.parts.backlog.correct_ttl(name.db, name.key.into()),
            // The TTL of a key of another type is not the module's.
            Err(NotOpen::WrongType) => return,
        };
        // A lock that an effect has changed gets its last deadline as its TTL when it is closed.
        if !visit.open.has_expiry() && !visit.open.lock().is_empty() {
            visit.sweep();
        }
        let has_waiter = visit.record.as_ref().is_some_and(|record| !record.queue.is_empty());
        if visit.open.has_ttl_grace() && !has_waiter {
            visit.open.close_with_grace(0);
        } else {
            visit.close();
        }
        if let Some(id) = id {
            self.mark_due(id);
        }
    }

    /// Visits a lock for what is due there.
    fn visit<S: Keyspace>(&mut self, space: &mut S, id: RecordId, due: Due, now: Now, budget: &mut Budget) {
        if let Some(record) = self.registry.get_mut(id)
            && self.parts.backlog.leave_lapsed(record, due, now.ms())
        {
            return;
        }
        let Some(record) = self.refresh(id) else { return debug_assert!(false, "a record that is gone is due") };
        let (db, key, has_queue) = (record.db, Rc::clone(&record.key), !record.queue.is_empty());
        let name = Name { db, key: &key };
        match due.lane {
            Lane::Queues | Lane::Ended => self.visit_queue(space, id, name, has_queue, (now, budget)),
            Lane::Renewals | Lane::Lapsed => self.visit_to_extend(space, id, name, (now, budget)),
        }
        self.with_record(id, |parts, record| parts.schedule(record));
        self.drop_if_idle(id);
    }

    /// Releases the holds of ended sessions on a lock, and serves its queue.
    fn visit_queue<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: RecordId,
        name: Name<'_>,
        has_queue: bool,
        (now, budget): (Now, &mut Budget),
    ) {
        // A release is always permitted. For a grant, the server is asked before the key opens.
        let permission = if has_queue { self.query_permission(space, id, name) } else { Permission::ReleaseOnly };
        if permission == Permission::Elsewhere {
            self.reject_all(id, &Fault::TryAgain, budget);
        }
        let several = match self.open(space, Some(id), name, None, (now, &mut *budget)) {
            Err(NotOpen::NotNow) => None,
            Err(NotOpen::WrongType) => {
                self.with_record(id, |parts, record| parts.forget_bound(record));
                self.reject_all(id, &Fault::WrongType, budget);
                // Clients that track the key were told when it got another type.
                self.with_record(id, |parts, record| parts.note_lost_waiter(record, false));
                None
            }
            Ok(visit) => visit.work_off(permission),
        };
        if let Some(waiter) = several {
            self.try_several(space, waiter, now, budget);
        }
    }

    /// Extends the leases of a lock that are due for it, and forgets the bindings of lapsed holds.
    fn visit_to_extend<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: RecordId,
        name: Name<'_>,
        (now, budget): (Now, &mut Budget),
    ) {
        let permission = self.query_permission(space, id, name);
        match self.open(space, Some(id), name, None, (now, budget)) {
            Err(NotOpen::NotNow) => {}
            Err(NotOpen::WrongType) => self.forget_lock(id),
            Ok(visit) => visit.keep_up(permission),
        }
    }

    /// Answers the requests in a queue with an error. If there are many, the timer does the rest.
    fn reject_all(&mut self, id: RecordId, fault: &Fault, budget: &mut Budget) {
        for _ in 0..REJECTED_AT_ONCE {
            let Some(head) = self.head_of(Some(id)) else { return };
            self.answer(head, Answer::Fault(fault.clone()));
        }
        self.with_record(id, |parts, record| parts.leave_rest(record, budget));
    }
}

impl<T, K: OpenKey> Visit<'_, T, K> {
    /// Releases the holds of ended sessions, serves the queue if the server permits it, and closes the lock. Returns
    /// the head, if it is a request for several locks.
    fn work_off(mut self, permission: Permission) -> Option<WaiterId> {
        self.forget_if_elsewhere(permission);
        self.release_ended();
        let several = match permission {
            Permission::Full => self.serve(),
            Permission::ReleaseOnly | Permission::Elsewhere => {
                self.retry_later();
                None
            }
        };
        // All stored holds have lapsed.
        let is_free = self.open.lock().lapsed(self.now.ms()) == self.open.lock().stored();
        if let Some(record) = &mut self.record {
            self.parts.note_lost_waiter(record, is_free);
        }
        self.close();
        several
    }

    /// Extends the leases that are due, if the server permits it, and closes the lock.
    fn keep_up(mut self, permission: Permission) {
        self.forget_if_elsewhere(permission);
        // If a hold has lapsed, the next waiter may get in.
        let may_free = self.open.lock().has_lapsed(self.now.ms());
        match permission {
            Permission::Full => {
                self.extend();
                // The leases end later now, so the queue is due later.
                if !may_free && self.record.as_ref().is_some_and(|record| !record.queue.is_empty()) {
                    self.reschedule();
                }
            }
            Permission::ReleaseOnly | Permission::Elsewhere => {
                self.forget_lapsed();
                self.put_renewals_off();
            }
        }
        if may_free && let Some(record) = &mut self.record {
            self.parts.mark_due(record);
        }
        self.close();
    }

    /// Unbinds the holds of a lock whose key has gone to another node: no hook tells of keys that a server drops with
    /// their slot. A lock that is still here, or is being imported, stays bound.
    fn forget_if_elsewhere(&mut self, permission: Permission) {
        if permission == Permission::Elsewhere
            && self.open.lock().is_empty()
            && let Some(record) = &mut self.record
        {
            self.parts.forget_bound(record);
        }
    }

    /// Puts off the renewals that the server does not allow now, by a quarter of the time that the next lease has left,
    /// within limits. There may be very many, so the timer does not try all of them every 20 ms.
    fn put_renewals_off(&mut self) {
        if let Some(record) = &mut self.record
            && let Some(renewal) = record.bound.next_renewal()
        {
            let left = renewal.deadline.since(self.now.ms());
            record.bound.put_off(self.now.ms_later((left / 4).clamp(RETRY_MS, MAX_RETRY_MS)));
        }
    }
}
