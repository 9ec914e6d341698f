//! A visit: everything that is due on one lock, in one order.

use super::keyspace::{Keyspace, OpenKey, OpenLock, Permission, Replication, WrongType};
use super::lanes::Lane;
use super::record::RecordId;
use super::{Engine, Fault, Output};
use crate::{Change, Effect, Name, Now, UnixMs};

/// What the server is, when a timer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A primary that may write.
    Primary,
    /// A primary that holds its data still: `CLIENT PAUSE`, `FAILOVER`, slot hand-over.
    HeldStill,
    /// A replica.
    Replica,
}

/// When to try again what the server does not allow for now, in ms.
const RETRY_MS: u64 = 20;
/// The same for the renewal of a long lease.
const MAX_RETRY_MS: u64 = 1000;
/// How long one tick may take before others have their turn, in µs.
const BUDGET_US: u64 = 2000;
/// The part of a busy server's time that ticks may take while there is more to do than fits into one: one in so many.
const BUSY_SHARE: u64 = 5;
/// How long a tick may take at most, in µs.
const MAX_BUDGET_US: u64 = 10_000;
/// How much a tick does at least if it is not large, so that a server with too little time does not make it crawl.
const STEPS: u32 = 16;
/// How many holds of ended sessions a visit releases, how many leases it extends, and how many waiters it answers.
pub(super) const PIECE: usize = 64;
/// How many waiters a tick answers before the caller sends the answers: to send one costs more than to decide on it.
const ANSWERS_AT_ONCE: usize = PIECE;
/// How many holds of a large lock are freed between two looks at the clock.
const FREED_AT_ONCE: usize = 128;
/// How much memory the list of keys that need another TTL keeps, in keys.
const TTLS_KEPT: usize = 64;
/// At how many locks of ended sessions, and of databases that were emptied, a step looks.
const LOOKED_AT_ONCE: usize = 16;

impl<T> Engine<T> {
    /// Does what is due, a turn at a time. A timer calls it at [`Engine::wake_at`].
    pub fn tick<S: Keyspace>(&mut self, space: &mut S, role: Role) {
        let start = space.now();
        self.not_before = UnixMs::ZERO;
        match role {
            Role::Primary => {}
            Role::HeldStill => {
                self.not_before = retry(start);
                self.behind_since = None;
                return;
            }
            Role::Replica => {
                self.ttls.clear();
                self.leaving.clear();
            }
        }
        let mut now = start;
        let budget_us = self.budget_us(start);
        let waiting = self.waiters.len();
        for steps in 1.. {
            self.is_large = self.has_large_rests();
            self.allowance = PIECE;
            let done = if role == Role::Replica && self.stand_down() { Some(()) } else { self.step(space, now) };
            if done.is_none() {
                self.behind_since = None;
                return;
            }
            now = space.now();
            let is_over = now.us().saturating_sub(start.us()) > budget_us && (self.is_large || steps >= STEPS);
            if is_over || waiting.saturating_sub(self.waiters.len()) >= ANSWERS_AT_ONCE {
                self.not_before = after(now, 1);
                self.behind_since = Some(now);
                return;
            }
        }
    }

    /// How long a tick may take, in µs. One that goes on with what the last one left gets a share of the time since then:
    /// the busier the server is with commands, the fewer ticks there are.
    fn budget_us(&self, now: Now) -> u64 {
        let since = self.behind_since.map_or(0, |since| now.us().saturating_sub(since.us()));
        (since / BUSY_SHARE).clamp(BUDGET_US, MAX_BUDGET_US)
    }

    /// A replica sees to no lock: forgets some of those that it saw to as a primary. Returns whether there were any.
    fn stand_down(&mut self) -> bool {
        for piece in 0..PIECE {
            let next = self.databases.next_unsettled().or_else(|| self.next_due(UnixMs::MAX).map(|(id, _)| id));
            let Some(id) = next else { return piece > 0 };
            self.refresh(id);
            self.unschedule(id);
            if let Some(record) = self.records.get_mut(id) {
                (record.has_grace, record.was_deserted, record.queue_due) = (false, false, None);
            }
            self.drop_if_idle(id);
        }
        self.is_large = true;
        true
    }

    fn has_large_rests(&self) -> bool {
        !self.old_bound.is_empty() || !self.memory.trash.is_empty() || !self.databases.are_settled()
    }

    /// Does one piece of what is due; `None` if nothing is.
    fn step<S: Keyspace>(&mut self, space: &mut S, now: Now) -> Option<()> {
        // Whoever makes one kind of work large keeps nobody's other work waiting.
        let has_tidied = self.tidy();
        let ttl = self.ttls.pop_front();
        if let Some((db, key)) = &ttl {
            self.correct_ttl(space, Name { db: *db, key }, now);
            if self.ttls.is_empty() {
                self.ttls.shrink_to(TTLS_KEPT);
            }
        }
        let Some((id, due)) = self.next_due(now.ms()) else { return (has_tidied || ttl.is_some()).then_some(()) };
        let begin = space.now();
        match due.lane {
            Lane::Queues | Lane::Ended => self.visit(space, id, begin),
            Lane::Renewals if self.leave_lapsed(id, due, begin.ms()) => {}
            Lane::Renewals | Lane::Lapsed => self.visit_to_extend(space, id, begin),
        }
        // A clock that jumps costs nobody more than a tick.
        self.lanes.charge(due, space.now().us().saturating_sub(begin.us()).min(BUDGET_US));
        Some(())
    }

    /// Does a piece of what needs no key: ends of sessions, flushes, and memory to be freed. Returns whether there was any.
    fn tidy(&mut self) -> bool {
        let has_work = self.has_large_rests() || !self.leaving.is_empty();
        if has_work {
            self.end_leaving(LOOKED_AT_ONCE);
            for _ in 0..LOOKED_AT_ONCE {
                let Some(id) = self.databases.next_unsettled() else { break };
                self.refresh(id);
            }
            self.memory.trash.free_some(FREED_AT_ONCE);
            self.free_bound(FREED_AT_ONCE);
        }
        has_work
    }

    /// Gives a lock that was restored without a TTL its last deadline as TTL, and takes the grace from one that was
    /// swapped away from its waiters.
    fn correct_ttl<S: Keyspace>(&mut self, space: &mut S, name: Name<'_>, now: Now) {
        let id = self.look_up(name);
        let Ok(mut open) = self.open(space, id, name, None) else { return };
        if !open.has_expiry() && !open.lock().is_empty() {
            let sweep = Effect { clock: now.ms(), change: Change::Sweep };
            self.apply(id, &mut open, sweep, Replication::Effect);
        }
        let has_waiter = id.and_then(|id| self.records.get(id)).is_some_and(|record| !record.queue.is_empty());
        if open.has_grace() && !has_waiter {
            open.close_with_grace(0);
        } else {
            self.close(id, open);
        }
        if let Some(id) = id {
            self.mark_due(id);
        }
    }

    /// Releases what has ended on a lock, and serves its queue.
    fn visit<S: Keyspace>(&mut self, space: &mut S, id: RecordId, now: Now) {
        self.refresh(id);
        let Some(record) = self.records.get(id) else { return };
        let (db, key) = (record.db, std::rc::Rc::clone(&record.key));
        let name = Name { db, key: &key };
        // To release is always right. To grant is up to the server, which is asked before the key opens.
        let permission = if record.queue.is_empty() { Permission::ReleaseOnly } else { self.ask(space, id, name) };
        if permission == Permission::Elsewhere {
            self.dismiss(id, &Fault::TryAgain);
        }
        let several = match self.open(space, Some(id), name, None) {
            Err(WrongType) => {
                self.forget_bound(id);
                self.dismiss(id, &Fault::WrongType);
                // Another type shows nothing in `INFO`.
                self.note_deserted(id, false);
                None
            }
            Ok(mut open) => {
                self.forget_if_elsewhere(id, &open, permission);
                self.release_ended(id, &mut open, now);
                let several = match permission {
                    Permission::Full => self.serve(id, &mut open, now),
                    Permission::ReleaseOnly | Permission::Elsewhere => {
                        self.retry_later(id, now);
                        None
                    }
                };
                self.note_deserted(id, open.lock().lapsed(now.ms()) == open.lock().stored());
                self.close(Some(id), open);
                several
            }
        };
        if let Some(waiter) = several {
            self.try_several(space, waiter, now);
        }
        self.schedule(id);
        self.drop_if_idle(id);
    }

    /// Extends the leases of a lock that are due, and forgets those that have ended.
    fn visit_to_extend<S: Keyspace>(&mut self, space: &mut S, id: RecordId, now: Now) {
        self.refresh(id);
        let Some(record) = self.records.get(id) else { return };
        let (db, key) = (record.db, std::rc::Rc::clone(&record.key));
        let name = Name { db, key: &key };
        let permission = self.ask(space, id, name);
        match self.open(space, Some(id), name, None) {
            Err(WrongType) => self.forget_lock(id),
            Ok(mut open) => {
                self.forget_if_elsewhere(id, &open, permission);
                // The next in the queue may get in.
                let may_free = open.lock().has_lapsed(now.ms());
                match permission {
                    Permission::Full => self.extend(id, &mut open, now),
                    Permission::ReleaseOnly | Permission::Elsewhere => {
                        self.forget_lapsed(id, now);
                        self.put_renewals_off(id, now);
                    }
                }
                self.close(Some(id), open);
                if may_free {
                    self.mark_due(id);
                }
            }
        }
        self.schedule(id);
        self.drop_if_idle(id);
    }

    /// No hook tells of keys that a server drops with their slot. A lock that is being imported stays bound.
    fn forget_if_elsewhere<K: OpenKey>(&mut self, id: RecordId, open: &OpenLock<K>, permission: Permission) {
        if permission == Permission::Elsewhere && open.lock().is_empty() {
            self.forget_bound(id);
        }
    }

    /// The last waiter of a free lock has left: `INFO` shows that.
    fn note_deserted(&mut self, id: RecordId, is_free: bool) {
        let Some(record) = self.records.get_mut(id) else { return };
        let was_deserted = std::mem::take(&mut record.was_deserted);
        if was_deserted && is_free && record.queue.is_empty() {
            self.outbox.push(Output::Modified(record.db, std::rc::Rc::clone(&record.key)));
        }
    }

    /// Puts off serving a queue, because the server does not allow it now.
    pub(super) fn retry_later(&mut self, id: RecordId, now: Now) {
        let Some(record) = self.records.get_mut(id) else { return };
        if !record.queue.is_empty() {
            record.queue_due = Some(retry(now));
        }
    }

    /// Puts off renewals that the server does not allow now: the longer the lease still runs, the later they are tried
    /// again, because there may be very many.
    fn put_renewals_off(&mut self, id: RecordId, now: Now) {
        let Some(record) = self.records.get_mut(id) else { return };
        if let Some(renewal) = record.bound.next_renewal() {
            let left = renewal.deadline.since(now.ms());
            record.bound.put_off(after(now, (left / 4).clamp(RETRY_MS, MAX_RETRY_MS)));
        }
    }
}

/// When to try again what the server does not allow now.
pub(super) fn retry(now: Now) -> UnixMs {
    after(now, RETRY_MS)
}

pub(super) fn after(now: Now, ms: u64) -> UnixMs {
    UnixMs::new(now.ms().get() + ms)
}
