//! A visit: everything that is due on one lock, in one order.

use super::keyspace::{Keyspace, Permission, Replication, WrongType};
use super::record::{Attention, RecordId};
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
/// How long one tick may take before others have their turn, in µs.
const BUDGET_US: u64 = 2000;
/// How much a tick does at least if it is not large, so that a server with too little time does not make it crawl.
const STEPS: u32 = 16;
/// How many holds of ended sessions a visit releases, how many leases it extends, and how many waiters it answers.
pub(super) const PIECE: usize = 64;
/// How many waiters a tick answers before the caller sends the answers: to send one costs more than to decide on it.
const ANSWERS_AT_ONCE: usize = PIECE;
/// How many holds of a large lock are freed between two looks at the clock.
const FREED_AT_ONCE: usize = 512;

impl<T> Engine<T> {
    /// Does what is due, a turn at a time. A timer calls it at [`Engine::wake_at`].
    pub fn tick<S: Keyspace>(&mut self, space: &mut S, role: Role) {
        let start = space.now();
        self.not_before = UnixMs::ZERO;
        match role {
            Role::Primary => {}
            Role::HeldStill => {
                self.not_before = retry(start);
                return;
            }
            Role::Replica => {
                self.ttls.clear();
                self.leaving.clear();
            }
        }
        let mut now = start;
        let waiting = self.waiters.len();
        for steps in 1.. {
            self.is_large = self.has_large_rests();
            self.allowance = PIECE;
            let done = if role == Role::Replica && self.stand_down() { Some(()) } else { self.step(space, now) };
            let Some(()) = done else { return };
            now = space.now();
            let is_over = now.us().saturating_sub(start.us()) > BUDGET_US && (self.is_large || steps >= STEPS);
            if is_over || waiting.saturating_sub(self.waiters.len()) >= ANSWERS_AT_ONCE {
                self.not_before = after(now, 1);
                return;
            }
        }
    }

    /// A replica sees to no lock: forgets some of those that it saw to as a primary. Returns whether there were any.
    fn stand_down(&mut self) -> bool {
        for piece in 0..PIECE {
            let Some(id) = self.unsettled.pop().or_else(|| self.next_due(UnixMs::MAX)) else { return piece > 0 };
            self.refresh(id);
            self.set_attention(id, Attention::None);
            if let Some(record) = self.records.get_mut(id) {
                (record.has_grace, record.was_deserted, record.queue_due) = (false, false, None);
            }
            self.drop_if_idle(id);
        }
        self.is_large = true;
        true
    }

    fn has_large_rests(&self) -> bool {
        !self.old_bound.is_empty() || !self.memory.trash.is_empty() || !self.unsettled.is_empty()
    }

    /// Has some of the records visited whose databases were emptied or changed places.
    fn settle(&mut self) {
        for _ in 0..PIECE {
            let Some(id) = self.unsettled.pop() else { return };
            self.refresh(id);
        }
    }

    /// Does one piece of what is due; `None` if nothing is.
    fn step<S: Keyspace>(&mut self, space: &mut S, now: Now) -> Option<()> {
        if !self.leaving.is_empty() {
            self.end_leaving();
        } else if !self.unsettled.is_empty() {
            self.settle();
        } else if let Some((db, key)) = self.ttls.pop() {
            self.correct_ttl(space, Name { db, key: &key }, now);
        } else if let Some(id) = self.next_due(now.ms()) {
            self.visit(space, id, space.now());
        } else if !self.memory.trash.is_empty() {
            self.memory.trash.free_some(FREED_AT_ONCE);
        } else if !self.old_bound.is_empty() {
            self.free_bound(FREED_AT_ONCE);
        } else {
            return None;
        }
        Some(())
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

    fn visit<S: Keyspace>(&mut self, space: &mut S, id: RecordId, now: Now) {
        self.refresh(id);
        let Some(record) = self.records.get(id) else { return };
        let (db, key) = (record.db, std::rc::Rc::clone(&record.key));
        let name = Name { db, key: &key };
        // To release is always right. To grant and to extend is up to the server, which is asked before the key opens.
        let is_renewal_due = record.bound.next_renewal().is_some_and(|(at, _)| at <= now.ms());
        let permission = if record.queue.is_empty() && !is_renewal_due {
            Permission::ReleaseOnly
        } else {
            self.ask(space, id, name)
        };
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
                self.release_ended(id, &mut open, now);
                let mut several = None;
                match permission {
                    Permission::Full => {
                        self.extend(id, &mut open, now);
                        several = self.serve(id, &mut open, now);
                    }
                    Permission::ReleaseOnly | Permission::Elsewhere => self.retry_later(id, now),
                }
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

    /// The last waiter of a free lock has left: `INFO` shows that.
    fn note_deserted(&mut self, id: RecordId, is_free: bool) {
        let Some(record) = self.records.get_mut(id) else { return };
        let was_deserted = std::mem::take(&mut record.was_deserted);
        if was_deserted && is_free && record.queue.is_empty() {
            self.outbox.push(Output::Modified(record.db, std::rc::Rc::clone(&record.key)));
        }
    }

    /// Puts off what is due on a lock, because the server does not allow it now.
    pub(super) fn retry_later(&mut self, id: RecordId, now: Now) {
        let Some(record) = self.records.get_mut(id) else { return };
        if !record.queue.is_empty() {
            record.queue_due = Some(retry(now));
        }
        // A renewal that is due is tried again then, too, not in a busy loop.
        if record.bound.next_renewal().is_some_and(|(at, _)| at <= now.ms()) {
            record.bound.put_off(retry(now));
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
