//! Requests for several locks at once: all or none.
//!
//! Such a request stands in the queue of every lock. It is granted when it is the head of all of them and none of the
//! locks is held; until then it holds nothing. It remembers which lock was in the way, and looks there first: nothing
//! else can have let it in.

use std::rc::Rc;

use smallvec::SmallVec;

use super::enter::{Ask, Entered};
use super::keyspace::{Keyspace, Permission};
use super::queue::WaiterId;
use super::record::{Attention, RecordId};
use super::{Answer, Call, Engine, Event, Fault};
use crate::lock::{Acquired, Entry, Refusal};
use crate::{ClientId, Hold, Lease, Lock, Mode, Name, Now, Owner, Request, Token};

/// How one of several locks is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// By the owner, with this request recorded.
    Recorded(Token, Lease),
    /// By the owner.
    Owned,
    /// By others.
    Held,
}

impl<T> Engine<T> {
    /// Decides on `MACQUIRE`: `names` are its keys, each once, all in one database. `call.name` is the first. O(n log n)
    /// for n keys, beside what is due on the locks.
    ///
    /// # Errors
    /// A [`Fault`]; the request has changed nothing.
    pub fn acquire_all<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        names: &[Name<'_>],
        ask: &Ask,
        wait: Option<impl FnOnce(WaiterId) -> T>,
    ) -> Result<Entered, Fault> {
        let now = call.now;
        self.begin(now);
        for (index, name) in names.iter().enumerate() {
            if self.remembers(*name) {
                self.on_lock(space, *name, index, now, &ask.owner, |_, _, _| ())?;
            }
        }
        let mut states: SmallVec<[State; 8]> = SmallVec::new();
        let mut is_queued = false;
        for name in names {
            let id = self.look_up(*name);
            is_queued |= id.and_then(|id| self.records.get(id)).is_some_and(|record| !record.queue.is_empty());
            states.push(self.state(space, id, *name, &ask.owner, ask.request.as_ref(), now)?);
        }
        let recorded = states.iter().filter_map(|state| match state {
            State::Recorded(token, lease) => Some((*token, *lease)),
            State::Free | State::Owned | State::Held => None,
        });
        if recorded.clone().count() == names.len()
            && let Some((token, _)) = recorded.clone().max()
        {
            self.check_session(call, ask, names.iter().copied().zip(recorded.clone().map(|(_, lease)| lease)))?;
            self.stats.replays += 1;
            if ask.binds {
                self.bind_all(space, names, &ask.owner, call.client, now);
            }
            return Ok(Entered::Replayed(token));
        }
        let is_owned = states.iter().any(|state| matches!(state, State::Recorded(..) | State::Owned));
        let refusal = if is_owned {
            Refusal::Owned
        } else if is_queued || states.iter().any(|state| matches!(state, State::Held)) {
            Refusal::Held
        } else {
            match Lock::EMPTY.acquire(now.ms(), &ask.acquire(), self.terms(now, None)) {
                Acquired::Granted(hold, _) => {
                    self.check_session(call, ask, names.iter().map(|name| (*name, hold.lease)))?;
                    let token = hold.token;
                    self.grant_all(space, names, hold, ask.binds.then_some(call.client), now, Granted::Command);
                    return Ok(Entered::Granted(token));
                }
                Acquired::Refused(refusal) => refusal,
                Acquired::Replayed(hold) => return Ok(Entered::Replayed(hold.token)),
            }
        };
        let known: Option<SmallVec<[RecordId; 1]>> = names.iter().map(|name| self.find(*name)).collect();
        let first = known.and_then(|records| self.repeated(ask, &records));
        self.check_waiting(call, names, ask, None)?;
        let decided = self.refuse(refusal, call, ask, wait.is_some(), first)?;
        self.carry_out(space, call, names, ask, decided, wait)
    }

    fn state<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: Option<RecordId>,
        name: Name<'_>,
        owner: &Owner,
        request: Option<&Request>,
        now: Now,
    ) -> Result<State, Fault> {
        let departed = id.and_then(|id| self.records.get(id)).filter(|record| record.bound.has_ended());
        let has_grace = departed.is_some_and(|record| record.bound.has_grace(now.ms()));
        let departed = departed.map_or(0, |record| record.bound.departed(now.ms()).holds);
        let look = |lock: &Lock| {
            let (exclusive, shared) = lock.mine(owner, now.ms());
            match (exclusive, shared) {
                (Some(hold), _) if hold.repeats(request) => State::Recorded(hold.token, hold.lease),
                (Some(_), _) | (_, Some(_)) => State::Owned,
                // With a grace, a hold may outlive its lease.
                (None, None) if has_grace && !lock.is_empty() => State::Held,
                // More than there are cannot have departed: then none is taken for released.
                (None, None) => {
                    let live = lock.live_count(now.ms());
                    if live == 0 || live == departed { State::Free } else { State::Held }
                }
            }
        };
        Ok(self.peek(space, id, name, look)?)
    }

    /// Binds the exclusive holds of an owner on these locks to a client.
    fn bind_all<S: Keyspace>(&mut self, space: &mut S, names: &[Name<'_>], owner: &Owner, client: ClientId, now: Now) {
        for name in names {
            let look = |lock: &Lock| lock.live(owner, Mode::Exclusive, now.ms()).cloned();
            let id = self.look_up(*name);
            let hold = self.peek(space, id, *name, look).ok().flatten();
            if let Some(hold) = hold.filter(|hold| hold.lease.can_be_bound()) {
                let id = self.find_or_create(*name);
                self.bind(id, &hold, client);
            }
        }
    }

    /// Puts the same hold into every lock. They are free, and the request is the head of their queues.
    fn grant_all<S: Keyspace>(
        &mut self,
        space: &mut S,
        names: &[Name<'_>],
        hold: Hold,
        client: Option<ClientId>,
        now: Now,
        by: Granted,
    ) {
        for (index, name) in names.iter().enumerate() {
            let id = if client.is_some() { Some(self.find_or_create(*name)) } else { self.look_up(*name) };
            // It was looked at in this call, and nothing else runs meanwhile.
            let own = (by == Granted::Command).then_some(index);
            let Ok(mut open) = self.open(space, id, *name, own) else { continue };
            if by == Granted::Wait {
                self.settle_attention(id);
            }
            self.grant(id, &mut open, now, hold.clone(), Entry::First, client);
            self.emit(id, own, Event::Acquire);
            if let Some(id) = id {
                // Another request of the owner may be the head now: reentrant, or the same for other locks.
                let next = self.serve(id, &mut open, now);
                if next.and_then(|next| self.waiters.get(next)).is_some_and(|next| next.owner == hold.owner) {
                    self.mark_due(id);
                }
            }
            self.close(id, open);
            if let Some(id) = id {
                self.drop_if_idle(id);
            }
        }
    }

    /// The request has left the queue of this lock, and nobody else can get in: the lock is taken in the same step.
    fn settle_attention(&mut self, id: Option<RecordId>) {
        let Some(id) = id else { return };
        self.set_attention(id, Attention::None);
        if let Some(record) = self.records.get_mut(id) {
            record.was_deserted = false;
        }
    }

    /// Lets a request for several locks in, if it is the head of this queue and its turn has come everywhere. One that
    /// leaves without the locks makes room for the next. The timer does the rest, if many do.
    pub(super) fn serve_several<S: Keyspace>(&mut self, space: &mut S, id: RecordId, now: Now) {
        while let Some(head) = self.head_of(Some(id))
            && let Some(waiter) = self.waiters.get(head).filter(|waiter| waiter.is_multiple())
        {
            if self.allowance == 0 {
                return self.leave_rest(id);
            }
            let (places, granted) = (waiter.records.len(), self.stats.grants);
            self.try_several(space, head, now);
            if self.waiters.contains_key(head) || self.stats.grants != granted {
                return;
            }
            self.allowance = self.allowance.saturating_sub(places);
        }
    }

    /// Lets a request for several locks in, if its turn has come everywhere. At most one look at each lock.
    pub(super) fn try_several<S: Keyspace>(&mut self, space: &mut S, id: WaiterId, now: Now) {
        let Some(waiter) = self.waiters.get(id) else { return };
        let is_head =
            |record: &RecordId| self.records.get(*record).is_some_and(|record| record.queue.head() == Some(id));
        if !waiter.records.iter().all(is_head) {
            return;
        }
        let (records, start, owner) = (waiter.records.clone(), waiter.in_the_way, waiter.owner.clone());
        self.is_large |= records.len() > FEW;
        let request = waiter.request.clone();
        // Those that the owner has by this request: the highest token, how many, and the index of one.
        let mut recorded: Option<(Token, usize, usize)> = None;
        for (index, record_id) in (0..).zip(&records).cycle().skip(start).take(records.len()) {
            self.refresh(*record_id);
            let Some(record) = self.records.get(*record_id) else { return };
            let has_ended = record.bound.has_ended();
            let (db, key) = (record.db, Rc::clone(&record.key));
            let name = Name { db, key: &key };
            // What has ended is released first. If there is much of it, the visit that is done with it comes back here.
            if has_ended && !self.release_all_ended(space, *record_id, name, now) {
                return self.mark_due(*record_id);
            }
            match self.ask(space, *record_id, name) {
                Permission::Full => {}
                Permission::ReleaseOnly => {
                    self.remember_in_the_way(id, index);
                    self.retry_later(*record_id, now);
                    return self.schedule(*record_id);
                }
                Permission::Elsewhere => return self.answer(id, Answer::Fault(Fault::TryAgain), None),
            }
            match self.state(space, Some(*record_id), name, &owner, request.as_deref(), now) {
                Err(fault) => return self.answer(id, Answer::Fault(fault), None),
                Ok(State::Free) => {}
                Ok(State::Recorded(token, _)) => {
                    let (highest, count, _) = recorded.unwrap_or((token, 0, index));
                    recorded = Some((highest.max(token), count + 1, index));
                }
                Ok(State::Owned | State::Held) => {
                    self.remember_in_the_way(id, index);
                    return self.begin_to_watch(space, *record_id, now);
                }
            }
        }
        let names: SmallVec<[(i32, Rc<[u8]>); 8]> = records
            .iter()
            .filter_map(|id| self.records.get(*id))
            .map(|record| (record.db, Rc::clone(&record.key)))
            .collect();
        let names: SmallVec<[Name<'_>; 8]> = names.iter().map(|(db, key)| Name { db: *db, key }).collect();
        match recorded {
            Some((token, count, _)) if count == records.len() => {
                self.stats.replays += 1;
                if let Some(client) = self.client_to_bind(id) {
                    self.bind_all(space, &names, &owner, client, now);
                }
                self.answer(id, Answer::Granted(token, None), None);
            }
            // Another connection of the owner has some of the locks, or they got their names by `RENAME`.
            Some((_, _, index)) => {
                self.remember_in_the_way(id, index);
                if let Some(record) = records.get(index) {
                    self.begin_to_watch(space, *record, now);
                }
            }
            None => self.grant_several(space, id, &names, now),
        }
    }

    fn grant_several<S: Keyspace>(&mut self, space: &mut S, id: WaiterId, names: &[Name<'_>], now: Now) {
        let Some(waiter) = self.waiters.get(id) else { return };
        let hold = match Lock::EMPTY.acquire(now.ms(), &waiter.acquire(), self.terms(now, None)) {
            Acquired::Granted(hold, _) | Acquired::Replayed(hold) => hold,
            Acquired::Refused(refusal) => {
                let answer = self.refusal(refusal, id, now);
                return self.answer(id, answer, None);
            }
        };
        if waiter.binds && !hold.lease.can_be_bound() {
            return self.answer(id, Answer::Fault(Fault::SessionLease), None);
        }
        let (token, client) = (hold.token, self.client_to_bind(id));
        self.note_granted(id, token, now);
        self.answer(id, Answer::Granted(token, None), None);
        self.grant_all(space, names, hold, client, now, Granted::Wait);
    }

    /// Remembers which lock is in the way: the next look begins there.
    fn remember_in_the_way(&mut self, id: WaiterId, index: usize) {
        if let Some(waiter) = self.waiters.get_mut(id) {
            waiter.in_the_way = index;
        }
    }
}

/// A timer looks at the clock after a request for more locks than this.
const FEW: usize = 8;

/// What led to a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granted {
    /// The running command.
    Command,
    /// The end of a wait.
    Wait,
}
