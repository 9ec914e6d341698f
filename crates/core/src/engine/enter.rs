//! A request for one lock: it is granted, refused, or waits.

use smallvec::SmallVec;

use super::keyspace::{GRACE_MS, Keyspace, OpenKey, OpenLock};
use super::queue::{Place, Rank, Waiter, WaiterId};
use super::record::{Attention, RecordId};
use super::{Answer, Call, Engine, Event, Fault, LogEvent, Output};
use crate::holds::Sum;
use crate::lock::{Acquire, Acquired, Refusal};
use crate::{Change, Effect, LeaseChoice, Lock, Mode, Name, Now, Owner, Request, Token, UnixMs, Want};

/// What a request asks for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The owner.
    pub owner: Owner,
    /// Whether the server drew the owner (`*`), so that the client has to be told.
    pub is_owner_drawn: bool,
    /// What it wants of each lock.
    pub want: Want,
    /// The lease.
    pub lease: LeaseChoice,
    /// `REQUEST`.
    pub request: Option<Request>,
    /// `SESSION`: the hold is bound to the client.
    pub binds: bool,
    /// `MINTOKEN`: the token of a new hold is at least this.
    pub min_token: Option<Token>,
}

/// What a request leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The owner has entered; the token of the hold.
    Granted(Token),
    /// The same request was granted before; the token of the hold.
    Replayed(Token),
    /// The request waits: the caller blocks the client.
    Waiting(WaiterId),
    /// Nothing: the reply is nil.
    Refused,
}

impl Ask {
    /// Asks without any option: by an owner that the client knows, without `REQUEST`, `SESSION` and `MINTOKEN`.
    pub fn new(owner: Owner, want: Want, lease: LeaseChoice) -> Ask {
        Ask { owner, is_owner_drawn: false, want, lease, request: None, binds: false, min_token: None }
    }

    pub(super) fn acquire(&self) -> Acquire<'_> {
        Acquire { owner: &self.owner, want: self.want, lease: self.lease, request: self.request.as_ref() }
    }
}

impl<T> Engine<T> {
    /// Decides on `ACQUIRE`, `RACQUIRE`, `RLOCK`, `WLOCK` and `SACQUIRE`. `wait` makes the ticket of a request that may
    /// wait; without it, the request gets an answer at once. O(log n), beside what is due on the lock.
    ///
    /// # Errors
    /// A [`Fault`]; the request has changed nothing.
    pub fn acquire<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        ask: &Ask,
        wait: Option<impl FnOnce(WaiterId) -> T>,
    ) -> Result<Entered, Fault> {
        let may_wait = wait.is_some();
        self.begin(call.now);
        let decided = self.on_lock(space, call.name, 0, call.now, &ask.owner, |engine, id, open| {
            engine.enter(id, open, call, ask, may_wait)
        })??;
        self.carry_out(space, call, &[call.name], ask, decided, wait)
    }

    /// Carries out what was decided on a request for these locks, whose keys are closed now.
    #[inline]
    pub(super) fn carry_out<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        names: &[Name<'_>],
        ask: &Ask,
        decided: Decided,
        wait: Option<impl FnOnce(WaiterId) -> T>,
    ) -> Result<Entered, Fault> {
        match (decided, wait) {
            (Decided::Entered(entered), _) => Ok(entered),
            (Decided::TakeOver(_) | Decided::Join(_), None) => Ok(Entered::Refused),
            (Decided::TakeOver(first), Some(wait)) => Ok(self.take_over(first, call, ask, wait)),
            (Decided::Join(rank), Some(wait)) => self.join(space, call, names, ask, rank, wait),
        }
    }

    /// Lets the owner in if it may enter now.
    #[inline]
    fn enter<K: OpenKey>(
        &mut self,
        id: &mut Option<RecordId>,
        open: &mut OpenLock<K>,
        call: Call<'_>,
        ask: &Ask,
        may_wait: bool,
    ) -> Result<Decided, Fault> {
        let (name, now) = (call.name, call.now);
        match self.decide(*id, open, now, ask) {
            Acquired::Granted(hold, entry) => {
                self.check_session(call, ask, [(name, hold.lease)])?;
                let token = hold.token;
                if ask.binds {
                    id.get_or_insert_with(|| self.find_or_create(name));
                }
                self.grant(*id, open, now, hold, entry, ask.binds.then_some(call.client));
                self.emit(*id, Some(0), Event::Acquire);
                if let Some(id) = *id {
                    self.watch(id, open, now);
                }
                Ok(Decided::Entered(Entered::Granted(token)))
            }
            Acquired::Replayed(hold) => {
                self.check_session(call, ask, [(name, hold.lease)])?;
                self.stats.replays += 1;
                if ask.binds {
                    let bound = self.find_or_create(name);
                    self.bind(bound, &hold, call.client);
                    *id = Some(bound);
                }
                Ok(Decided::Entered(Entered::Replayed(hold.token)))
            }
            Acquired::Refused(refusal) => {
                // Nothing counts lapsed permits twice.
                if matches!(ask.want, Want::Permits { .. }) && open.lock().has_lapsed(now.ms()) {
                    let sweep = Effect { clock: now.ms(), change: Change::Sweep };
                    self.apply(*id, open, sweep, super::Replication::Effect);
                }
                let first = self.repeated(ask, id.as_slice());
                let is_upgrade = is_upgrade(open.lock(), ask, now.ms());
                let own = open.lock().live(&ask.owner, ask.want.mode(), now.ms()).map(|hold| hold.lease);
                let own = own.filter(|_| ask.want != Want::ExclusiveOnce);
                self.check_waiting(call, &[name], ask, own)?;
                match self.refuse(refusal, call, ask, may_wait, first)? {
                    Decided::Join(_) if is_upgrade && self.is_upgrade_ahead(*id, &ask.owner) => {
                        Err(self.deadlock(call, ask, "another owner waits to upgrade the lock already".to_owned()))
                    }
                    Decided::Join(_) if is_upgrade => Ok(Decided::Join(Rank::Upgrade)),
                    decided => Ok(decided),
                }
            }
        }
    }

    fn decide<K: OpenKey>(&self, id: Option<RecordId>, open: &OpenLock<K>, now: Now, ask: &Ask) -> Acquired {
        let (lock, request, terms) = (open.lock(), ask.acquire(), self.terms(now, ask.min_token));
        let Some(record) = id.and_then(|id| self.records.get(id)) else {
            return lock.acquire(now.ms(), &request, terms);
        };
        let departed = id.map_or(Sum::default(), |id| self.departed(id, open, now));
        let decision = lock.acquire_without(now.ms(), &request, terms, departed);
        if record.queue.is_empty() {
            return decision;
        }
        // Nobody overtakes a waiter, except owners that hold the lock already.
        match (&decision, ask.want) {
            (Acquired::Granted(..), Want::Permits { .. })
                if lock.live(&ask.owner, Mode::Exclusive, now.ms()).is_none() =>
            {
                Acquired::Refused(self.only_holder(lock, ask, now, departed))
            }
            (Acquired::Granted(..) | Acquired::Refused(Refusal::LeasePassed | Refusal::NoToken), _)
                if lock.live_holds_of(&ask.owner, now.ms()).next().is_none() =>
            {
                Acquired::Refused(Refusal::Held)
            }
            _ => decision,
        }
    }

    /// The only holder that asks for more permits behind a waiter waits for a waiter that waits for it.
    fn only_holder(&self, lock: &Lock, ask: &Ask, now: Now, departed: Sum) -> Refusal {
        let is_holder = lock.live(&ask.owner, Mode::Shared, now.ms()).is_some();
        if is_holder && !lock.is_held_by_others(now.ms(), &ask.owner, departed) {
            Refusal::OnlyHolder
        } else {
            Refusal::Held
        }
    }

    /// What becomes of a request that is not granted.
    pub(super) fn refuse(
        &mut self,
        refusal: Refusal,
        call: Call<'_>,
        ask: &Ask,
        may_wait: bool,
        first: Option<WaiterId>,
    ) -> Result<Decided, Fault> {
        let why = match refusal {
            Refusal::TooManyEntries => return Err(Fault::TooManyEntries),
            Refusal::NoToken => return Err(Fault::NoToken),
            _ if !may_wait || refusal == Refusal::LeasePassed => {
                self.stats.refusals += 1;
                return Ok(Decided::Entered(Entered::Refused));
            }
            Refusal::OverLimit => "the owner's own permits and those it asks for exceed the limit",
            Refusal::Held | Refusal::Owned | Refusal::OnlyHolder if first.is_some() => {
                return Ok(first.map_or(Decided::Join(Rank::Arrival), Decided::TakeOver));
            }
            Refusal::Held => return Ok(Decided::Join(Rank::Arrival)),
            Refusal::Owned => "the owner holds the lock already, and the request is not reentrant",
            Refusal::OnlyHolder => "the owner holds the lock, and a waiter ahead waits for it",
            Refusal::LeasePassed => return Ok(Decided::Entered(Entered::Refused)),
        };
        Err(self.deadlock(call, ask, why.to_owned()))
    }

    /// The same request, if it was sent before and still waits for exactly these locks.
    pub(super) fn repeated(&self, ask: &Ask, records: &[RecordId]) -> Option<WaiterId> {
        let request = ask.request.as_ref()?;
        let is_same = |id: &&WaiterId| {
            self.waiters.get(**id).is_some_and(|waiter| {
                waiter.request.as_deref() == Some(request)
                    && waiter.records.len() == records.len()
                    && records.iter().all(|record| waiter.records.contains(record))
            })
        };
        self.waits.get(&ask.owner)?.iter().find(is_same).copied()
    }

    /// The request that came again takes over the place of the first, with its own arguments. The first gets nil.
    fn take_over(&mut self, id: WaiterId, call: Call<'_>, ask: &Ask, wait: impl FnOnce(WaiterId) -> T) -> Entered {
        self.note_waited(id, LogEvent::Timeout, None, call.now);
        let Some(waiter) = self.waiters.get_mut(id) else { return Entered::Refused };
        let first = std::mem::replace(&mut waiter.ticket, wait(id));
        (waiter.want, waiter.lease, waiter.binds, waiter.client) = (ask.want, ask.lease, ask.binds, call.client);
        waiter.min_token = ask.min_token;
        let records = waiter.records.clone();
        self.stats.replays += 1;
        self.outbox.push(Output::Answer(first, Answer::Nil));
        for record in records {
            self.mark_due(record);
        }
        Entered::Waiting(id)
    }

    /// Puts a request into the queues of these locks, in one step.
    fn join<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        names: &[Name<'_>],
        ask: &Ask,
        rank: Rank,
        wait: impl FnOnce(WaiterId) -> T,
    ) -> Result<Entered, Fault> {
        let records: SmallVec<[RecordId; 1]> = names.iter().map(|name| self.find_or_create(*name)).collect();
        if self.settings.max_waiters.is_some_and(|max| self.places + records.len() > max) {
            records.iter().for_each(|id| self.drop_if_idle(*id));
            return Err(Fault::TooManyWaiters);
        }
        let id = self.stand(call, ask, records.clone(), rank, wait);
        if let Some(cycle) = self.find_cycle(space, id) {
            self.withdraw(id);
            records.iter().for_each(|id| self.drop_if_idle(*id));
            return Err(self.deadlock(call, ask, cycle));
        }
        for record in records.iter().copied() {
            self.begin_to_watch(space, record, call.now);
        }
        self.stats.waits += 1;
        for index in 0..records.len() {
            self.outbox.push(Output::Own(index, Event::Wait));
        }
        Ok(Entered::Waiting(id))
    }

    fn stand(
        &mut self,
        call: Call<'_>,
        ask: &Ask,
        records: SmallVec<[RecordId; 1]>,
        rank: Rank,
        wait: impl FnOnce(WaiterId) -> T,
    ) -> WaiterId {
        let place = Place { rank, arrival: self.arrivals };
        self.arrivals += 1;
        let id = self.waiters.insert_with_key(|id| Waiter {
            ticket: wait(id),
            owner: ask.owner.clone(),
            is_owner_drawn: ask.is_owner_drawn,
            want: ask.want,
            lease: ask.lease,
            request: ask.request.clone().map(Box::new),
            binds: ask.binds,
            min_token: ask.min_token,
            client: call.client,
            since: call.now,
            place,
            records: records.clone(),
            in_the_way: 0,
            search: 0,
        });
        self.waits.entry(ask.owner.clone()).or_default().push(id);
        let is_several = records.len() > 1;
        for record in records {
            let Some(record) = self.records.get_mut(record) else { continue };
            self.queues += usize::from(record.queue.is_empty());
            record.queue.join(place, id, ask.want.mode(), is_several);
            self.places += 1;
        }
        id
    }

    /// Takes out a request that has just joined: nothing has changed.
    fn withdraw(&mut self, id: WaiterId) {
        let records = self.waiters.get(id).map(|waiter| waiter.records.clone()).unwrap_or_default();
        let attention: SmallVec<[_; 1]> =
            records.iter().map(|id| self.records.get(*id).map(|record| (record.attention, record.queue_due))).collect();
        self.take_waiter(id, None);
        for (id, before) in records.into_iter().zip(attention) {
            if let (Some(record), Some((attention, due))) = (self.records.get_mut(id), before) {
                (record.was_deserted, record.queue_due) = (false, due);
                self.set_attention(id, attention);
            }
        }
    }

    /// Sees to a lock that a request waits for: its queue is due when a hold ends, and the key is to outlive the last
    /// deadline a little, unless somebody set its end.
    pub(super) fn begin_to_watch<S: Keyspace>(&mut self, space: &mut S, id: RecordId, now: Now) {
        let Some(record) = self.records.get(id) else { return };
        if matches!(record.attention, Attention::Due(_)) {
            self.mark_due(id);
        }
        let Some(record) = self.records.get(id) else { return };
        if record.has_grace && record.queue_due.is_some_and(|due| now.ms() < due) {
            return;
        }
        let (db, key) = (record.db, std::rc::Rc::clone(&record.key));
        let Ok(mut open) = self.open(space, Some(id), Name { db, key: &key }, None) else { return };
        self.watch(id, &mut open, now);
        if open.is_changed() || !open.ends_with_last_lease() {
            self.close(Some(id), open);
            return;
        }
        if let Some(record) = self.records.get_mut(id) {
            record.has_grace = true;
        }
        open.close_with_grace(GRACE_MS);
    }

    fn is_upgrade_ahead(&self, id: Option<RecordId>, owner: &Owner) -> bool {
        let Some(record) = id.and_then(|id| self.records.get(id)) else { return false };
        let mut upgrades = record.queue.upgrades().filter_map(|id| self.waiters.get(id));
        upgrades.any(|waiter| waiter.owner != *owner)
    }

    fn deadlock(&mut self, call: Call<'_>, ask: &Ask, how: String) -> Fault {
        self.stats.deadlocks += 1;
        self.log_deadlock(call, ask);
        Fault::Deadlock(how)
    }
}

/// The next step of a request once its key is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    /// Nothing more.
    Entered(Entered),
    /// It waits: at the end of the queue, or as an upgrade before all that do not hold the lock.
    Join(Rank),
    /// It takes the place of the same request, sent before.
    TakeOver(WaiterId),
}

/// Whether the request is for the write mode, by an owner that holds the lock shared.
fn is_upgrade(lock: &Lock, ask: &Ask, now: UnixMs) -> bool {
    ask.want == Want::Exclusive && lock.live(&ask.owner, Mode::Shared, now).is_some()
}
