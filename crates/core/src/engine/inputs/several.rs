//! Requests for several locks at once: all or none.
//!
//! Such a request waits in the queue of every lock. It is granted when it is the head of all of them and none of the
//! locks is held; until then it holds nothing. It remembers which lock was held, and looks there first: while that lock
//! stays held, the request cannot be granted.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::engine::keyspace::{Keyspace, NotOpen, Permission};
use crate::engine::state::budget::Budget;
use crate::engine::state::due::retry;
use crate::engine::state::engine::Engine;
use crate::engine::state::fault::Fault;
use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::outbox::Answer;
use crate::engine::state::outbox::grant::Grant;
use crate::engine::state::records::attention::Attention;
use crate::lock::{Acquired, Entry};
use crate::{BindTo, Bond, Hold, Lease, Lock, Mode, Name, Now, Owner, Request, RequestId, SessionKey, Token, broken};

/// How one of several locks is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// By the owner, with this request recorded.
    Recorded(Token, Lease),
    /// By the owner.
    Owned,
    /// By others.
    Held,
}

impl State {
    /// Returns the token and the lease of the hold that records the request.
    pub(super) fn recorded(self) -> Option<(Token, Lease)> {
        match self {
            State::Recorded(token, lease) => Some((token, lease)),
            State::Free | State::Owned | State::Held => None,
        }
    }
}

/// The cause of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Granted {
    /// The running command.
    Command,
    /// The end of a wait.
    Wait,
}

/// The outcome for a request that was the head of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// The request waits.
    Waits,
    /// The request has its locks.
    Granted,
    /// The request has left its queues without the locks: the next waiter may get in.
    Left,
}

/// The result of a look at all locks of a request.
enum Found {
    /// All locks are free.
    Free,
    /// All locks were free, but the server has removed an expired key during the look.
    Unsure,
    /// The owner has all of them by this request: the highest token.
    Recorded(Token),
    /// The lock with this index is in the way.
    InTheWay(usize),
    /// The request gets this answer.
    Fault(Fault),
    /// A lock cannot be judged now: the request is tried again later.
    Later,
}

/// A timer looks at the clock after a request for more locks than this number.
const FEW: usize = 8;

/// How often the locks of a request are looked at, at most. If the server has removed an expired key meanwhile, a
/// callback of another module may have changed a lock that was looked at before.
pub(super) const MAX_LOOKS: u32 = 4;

impl<T> Engine<T> {
    /// Grants a request for several locks, if it is the head of this queue and of all its others. If it leaves its
    /// queues without the locks, the next head is tried. When the budget of answers is used up, the timer does the
    /// rest.
    pub(super) fn serve_several<S: Keyspace>(&mut self, space: &mut S, id: RecordId, now: Now, budget: &mut Budget) {
        while let Some(head) = self.head_of(Some(id))
            && let Some(waiter) = self.parts.waiters.get(head).filter(|waiter| waiter.is_multiple())
        {
            if budget.answers == 0 {
                return self.with_record(id, |parts, record| parts.leave_rest(record, budget));
            }
            let places = waiter.records.len();
            if self.try_several(space, head, now, budget) != Tried::Left {
                return;
            }
            budget.answers = budget.answers.saturating_sub(places);
        }
    }

    /// Grants a request for several locks, if it is the head of all its queues. Looks at each lock at most once.
    pub(super) fn try_several<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: WaiterId,
        now: Now,
        budget: &mut Budget,
    ) -> Tried {
        let Some(waiter) = self.parts.waiters.get(id) else { return Tried::Left };
        if !waiter.records.iter().all(|record| self.head_of(Some(*record)) == Some(id)) {
            return Tried::Waits;
        }
        if let Err(fault) = self.parts.sessions.check_open(waiter.request.session) {
            self.answer(id, Answer::Fault(fault));
            return Tried::Left;
        }
        let (records, start, request) = (waiter.records.clone(), waiter.in_the_way, waiter.request.clone());
        budget.should_yield |= records.len() > FEW;
        match self.look_at_all(space, (id, &request), &records, start, (now, budget)) {
            Found::Later | Found::Unsure => Tried::Waits,
            Found::InTheWay(index) => {
                self.parts.waiters.set_in_the_way(id, index);
                if let Some(record) = records.get(index) {
                    self.begin_to_watch(space, *record, now, budget);
                }
                Tried::Waits
            }
            Found::Fault(fault) => {
                self.answer(id, Answer::Fault(fault));
                Tried::Left
            }
            Found::Free | Found::Recorded(_) if !self.has_rights(id) => {
                self.answer(id, Answer::Fault(Fault::NoRights));
                Tried::Left
            }
            Found::Recorded(token) => {
                let names = self.names(&records);
                if let Some(key) = self.parts.waiters.get(id).and_then(|waiter| waiter.session())
                    && !self.bind_all(space, &as_names(&names), &request.owner, key, (now, &mut *budget))
                {
                    return Tried::Waits;
                }
                self.parts.outbox.stats.replays += 1;
                self.answer(id, Answer::Granted(Grant::without_slot(token), None));
                Tried::Left
            }
            Found::Free => {
                let names = self.names(&records);
                if !self.are_all_open(space, &as_names(&names), (now, &mut *budget)) {
                    return Tried::Waits;
                }
                self.grant_several(space, id, &as_names(&names), now, budget)
            }
        }
    }

    /// Returns whether the client of a waiting request still has the rights to send it.
    fn has_rights(&self, id: WaiterId) -> bool {
        self.parts.waiters.get(id).is_none_or(|waiter| (self.parts.has_rights)(&waiter.ticket))
    }

    /// Looks at the locks of a request, beginning with the one at `start`.
    fn look_at_all<S: Keyspace>(
        &mut self,
        space: &mut S,
        (waiter, request): (WaiterId, &Request),
        records: &[RecordId],
        start: usize,
        (now, budget): (Now, &mut Budget),
    ) -> Found {
        for _ in 0..MAX_LOOKS {
            match self.look_once(space, (waiter, request), records, start, (now, &mut *budget)) {
                Found::Unsure => {}
                found => return found,
            }
        }
        records.iter().take(1).for_each(|id| self.mark_due(*id));
        Found::Later
    }

    fn look_once<S: Keyspace>(
        &mut self,
        space: &mut S,
        (waiter, request): (WaiterId, &Request),
        records: &[RecordId],
        start: usize,
        (now, budget): (Now, &mut Budget),
    ) -> Found {
        let mut has_removed = false;
        // The holds that the owner has by this request: the highest token, how many, and the index of one lock.
        let mut recorded: Option<(Token, usize, usize)> = None;
        let mut can_be_bound = true;
        for (index, id) in (0..).zip(records).cycle().skip(start).take(records.len()) {
            let Some(record) = self.refresh(*id) else { return Found::Later };
            let has_ended = record.bound.has_ended();
            let (db, key) = (record.db, Rc::clone(&record.key));
            let name = Name { db, key: &key };
            // Ended holds are released first. If there are many, the visit that finishes them comes back here.
            if has_ended && !self.release_all_ended(space, *id, name, now, budget) {
                self.mark_due(*id);
                return Found::Later;
            }
            let permission = self.query_permission(space, *id, name);
            has_removed |= space.has_removed();
            match permission {
                Permission::Full => {}
                Permission::ReleaseOnly => {
                    self.parts.waiters.set_in_the_way(waiter, index);
                    self.with_record(*id, |parts, record| {
                        record.queue_due = Some(retry(now));
                        parts.schedule(record);
                    });
                    return Found::Later;
                }
                Permission::Elsewhere => return Found::Fault(Fault::TryAgain),
            }
            let state = self.state(space, Some(*id), name, &request.owner, request.id.as_deref(), now);
            has_removed |= space.has_removed();
            match state {
                Err(fault) => return Found::Fault(fault),
                Ok(State::Free) => {}
                Ok(State::Recorded(token, lease)) => {
                    can_be_bound &= lease.can_be_bound();
                    let (highest, count, _) = recorded.unwrap_or((token, 0, index));
                    recorded = Some((highest.max(token), count + 1, index));
                }
                Ok(State::Owned | State::Held) => return Found::InTheWay(index),
            }
        }
        match recorded {
            None if has_removed => Found::Unsure,
            None => Found::Free,
            Some((_, count, _)) if count == records.len() && request.session != BindTo::Nothing && !can_be_bound => {
                Found::Fault(Fault::SessionLease)
            }
            Some((token, count, _)) if count == records.len() => Found::Recorded(token),
            // The owner holds only some of the locks by this request: through another connection, or after a `RENAME`.
            Some((_, _, index)) => Found::InTheWay(index),
        }
    }

    /// Releases holds whose sessions have ended, on a lock that is not open. Returns whether none is left, and opening
    /// the key has not removed it because it had expired.
    fn release_all_ended<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: RecordId,
        name: Name<'_>,
        now: Now,
        budget: &mut Budget,
    ) -> bool {
        // A key of another type is left to the visit that the caller schedules.
        let Ok(mut visit) = self.open(space, Some(id), name, None, (now, budget)) else { return false };
        visit.release_ended();
        let (mut has_ended, was_removed) = (false, visit.open.was_removed());
        if let Some(record) = &mut visit.record {
            has_ended = record.bound.has_ended();
            // A hold that was released may have been the next to be extended.
            visit.parts.backlog.schedule_renewal(record);
        }
        visit.close();
        !has_ended && !was_removed
    }

    pub(super) fn state<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: Option<RecordId>,
        name: Name<'_>,
        owner: &Owner,
        request: Option<&RequestId>,
        now: Now,
    ) -> Result<State, Fault> {
        let ended =
            id.and_then(|id| self.registry.get(id)).map(|record| &record.bound).filter(|bound| bound.has_ended());
        let has_grace = ended.is_some_and(|bound| bound.has_grace(now.ms()));
        let bond = ended.map_or(Bond::NONE, |bound| bound.bond());
        let ended = ended.filter(|_| !has_grace).map_or(0, |bound| bound.ended_sum(now.ms()).holds);
        let look = |lock: &Lock| {
            // If the bonds differ, the bindings belong to an earlier value of the key, and count for nothing.
            let (has_grace, ended) = if bond.is_same(lock.bond()) { (has_grace, ended) } else { (false, 0) };
            let (exclusive, shared) = lock.mine(owner, now.ms());
            match (exclusive, shared) {
                (Some(hold), _) if hold.repeats(request) => State::Recorded(hold.token, hold.lease),
                (Some(_), _) | (_, Some(_)) => State::Owned,
                // With a grace, a hold may outlive its lease.
                (None, None) if has_grace && !lock.is_empty() => State::Held,
                // A count above the live holds is stale: then none counts as released.
                (None, None) => {
                    let live = lock.live_count(now.ms());
                    if live == 0 || live == ended { State::Free } else { State::Held }
                }
            }
        };
        Ok(self.peek(space, id, name, look)?)
    }

    /// Binds the exclusive holds of an owner on these locks to a session. Returns whether the server has opened all of
    /// them.
    pub(super) fn bind_all<S: Keyspace>(
        &mut self,
        space: &mut S,
        names: &[Name<'_>],
        owner: &Owner,
        key: SessionKey,
        (now, budget): (Now, &mut Budget),
    ) -> bool {
        let mut are_open = true;
        for name in names {
            let id = self.find_or_create(*name);
            match self.open(space, Some(id), *name, None, (now, &mut *budget)) {
                Ok(mut visit) => {
                    let hold = visit.open.lock().live(owner, Mode::Exclusive, now.ms()).cloned();
                    hold.into_iter().for_each(|hold| visit.bind(&hold, key));
                    visit.close();
                }
                Err(NotOpen::NotNow) => are_open = false,
                Err(NotOpen::WrongType) => {}
            }
            self.drop_if_idle(id);
        }
        are_open
    }

    /// Returns whether the server opens all these locks for change now. A server that always does is not asked.
    pub(super) fn are_all_open<S: Keyspace>(
        &mut self,
        space: &mut S,
        names: &[Name<'_>],
        (now, budget): (Now, &mut Budget),
    ) -> bool {
        if !space.may_refuse() {
            return true;
        }
        for name in names {
            let id = self.look_up(*name);
            if self.open(space, id, *name, None, (now, &mut *budget)).is_err() {
                return false;
            }
        }
        true
    }

    /// Puts the same hold into every lock. They are free, and the request is the head of their queues.
    pub(super) fn grant_all<S: Keyspace>(
        &mut self,
        space: &mut S,
        names: &[Name<'_>],
        hold: &Hold,
        session: Option<SessionKey>,
        by: Granted,
        (now, budget): (Now, &mut Budget),
    ) {
        for (index, name) in names.iter().enumerate() {
            let id = if session.is_some() { Some(self.find_or_create(*name)) } else { self.look_up(*name) };
            let own = (by == Granted::Command).then_some(index);
            // The lock was open a moment ago, and nothing else has run since. If the server refuses now, `open_at_last`
            // asks again for a while: earlier locks have the hold already, and the request gets all or none.
            let Ok(key) = space.open_at_last(*name) else {
                broken("the server opens a lock that it has just opened");
                continue;
            };
            let mut visit = self.visit_open(key, id, own, (now, &mut *budget));
            if let (Granted::Wait, Some(record)) = (by, &mut visit.record) {
                // The request has left this queue, and nobody else can get in: the lock is taken in the same step.
                visit.parts.backlog.set_attention(record, Attention::None);
                record.lost_last_waiter = false;
            }
            visit.grant(hold.clone(), Entry::First, session);
            // The new head may be another request of the owner: a re-entry, which `serve` grants, or the same `REQUEST`
            // for other locks, which the next visit tries.
            let next = visit.serve();
            let next = next.and_then(|next| visit.parts.waiters.get(next));
            if next.is_some_and(|next| next.request.owner == hold.owner)
                && let Some(record) = &mut visit.record
            {
                visit.parts.mark_due(record);
            }
            visit.close();
            if let Some(id) = id {
                self.drop_if_idle(id);
            }
        }
    }

    fn grant_several<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: WaiterId,
        names: &[Name<'_>],
        now: Now,
        budget: &mut Budget,
    ) -> Tried {
        let (Some(waiter), Some(first)) = (self.parts.waiters.get(id), names.first()) else { return Tried::Left };
        let session = waiter.session();
        // Requests that waited for the same session may have been granted since this one came.
        let locks = names.iter().map(|name| (self.registry.record_of(*name), name.key.len()));
        if let Err(fault) = self.parts.check_waiting(waiter.client, &waiter.request, None, locks) {
            self.answer(id, Answer::Fault(fault));
            return Tried::Left;
        }
        let answer = match Lock::EMPTY.acquire(now.ms(), &waiter.request, self.parts.terms(now, &waiter.request)) {
            Acquired::Granted(hold, _) | Acquired::Replayed(hold) if session.is_none() || hold.lease.can_be_bound() => {
                self.parts.outbox.note_granted(waiter, *first, hold.token, now);
                self.answer(id, Answer::Granted(Grant::without_slot(hold.token), None));
                self.grant_all(space, names, &hold, session, Granted::Wait, (now, budget));
                return Tried::Granted;
            }
            Acquired::Granted(..) | Acquired::Replayed(_) => Answer::Fault(Fault::SessionLease),
            Acquired::Refused(refusal) => self.parts.outbox.refuse_waiter(waiter, *first, refusal, now),
        };
        self.answer(id, answer);
        Tried::Left
    }

    fn names(&self, records: &[RecordId]) -> SmallVec<[(i32, Rc<[u8]>); 8]> {
        let records = records.iter().filter_map(|id| self.registry.get(*id));
        records.map(|record| (record.db, Rc::clone(&record.key))).collect()
    }
}

fn as_names(names: &[(i32, Rc<[u8]>)]) -> SmallVec<[Name<'_>; 8]> {
    names.iter().map(|(db, key)| Name { db: *db, key }).collect()
}
