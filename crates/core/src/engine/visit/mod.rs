//! A visit: what happens to one lock while its key is open.

pub(crate) mod ended;
pub(crate) mod serve;
pub(crate) mod watchdog;

use std::rc::Rc;

use crate::engine::keyspace::{GRACE_MS, OpenKey, OpenLock, Replication};
use crate::engine::state::budget::Budget;
use crate::engine::state::outbox::log::{AT_ONCE, lapsed, sample};
use crate::engine::state::outbox::log_entry::held_us;
use crate::engine::state::outbox::{Event, Output};
use crate::engine::state::parts::Parts;
use crate::engine::state::records::record::Record;
use crate::holds::Sum;
use crate::lock::{CountedReaders, Entry};
use crate::{Applied, Change, Effect, Expiry, Hold, Mode, Now, Owner, SessionKey, UnixMs};

/// An open lock with its record, if it has one, and the parts of the engine that a change of the lock affects.
#[must_use = "an open lock is closed"]
pub(crate) struct Visit<'e, T, K: OpenKey> {
    pub open: OpenLock<K>,
    /// The record; `None` for a lock without waiters and bound holds.
    pub record: Option<&'e mut Record>,
    pub parts: &'e mut Parts<T>,
    pub budget: &'e mut Budget,
    pub now: Now,
}

impl<T, K: OpenKey> Visit<'_, T, K> {
    /// Applies an effect, and keeps the bindings of the lock in step with it.
    #[inline(always)]
    pub(crate) fn apply(&mut self, mut effect: Effect, replication: Replication) -> Applied {
        effect.clock = effect.clock.min(self.effect_clock());
        if self.open.lock().has_lapsed(effect.clock) {
            self.note_lapses(effect.clock);
        }
        self.follow(&effect);
        let applied = self.open.apply(effect, replication, &mut self.parts.memory);
        if applied.lapsed > 0 {
            self.parts.outbox.stats.lapses += applied.lapsed;
            self.emit(Event::Lapse);
        }
        applied
    }

    /// Returns the latest clock of an effect: now, or an earlier time while holds in the grace of their ended sessions
    /// are not settled. The leases of these holds may have run out, and an effect must not drop them.
    #[inline]
    pub(crate) fn effect_clock(&self) -> UnixMs {
        let now = self.now.ms();
        self.record.as_ref().map_or(now, |record| record.bound.effect_clock(now))
    }

    /// Drops the lapsed holds.
    pub(crate) fn sweep(&mut self) {
        self.apply(Effect { clock: self.now.ms(), change: Change::Sweep }, Replication::Effect);
    }

    /// Counts and logs the holds that have lapsed at `now`: the lock is about to drop them.
    #[inline(never)]
    fn note_lapses(&mut self, now: UnixMs) {
        let (lock, Parts { outbox, sessions, .. }) = (self.open.lock(), &mut *self.parts);
        outbox.log.holds.record_all(&sample(lock, now), lock.lapsed(now) as u64);
        outbox.stats.caps += lock.lapsed_at_cap(now) as u64;
        for hold in lapsed(lock, now).take(AT_ONCE) {
            let key = self.record.as_ref().and_then(|record| record.bound.session_of(&hold.owner, hold.mode));
            outbox.log_end(self.open.name(), hold, (key, sessions.id_of(key)), now);
        }
    }

    /// Keeps the bindings in step with an effect.
    #[inline(always)]
    fn follow(&mut self, effect: &Effect) {
        if let Some(record) = &mut self.record
            && !record.bound.is_empty()
        {
            record.bound.sweep(effect.clock);
            self.follow_change(effect);
        }
    }

    #[inline(never)]
    fn follow_change(&mut self, effect: &Effect) {
        match &effect.change {
            Change::Put { hold, .. } => {
                if let Some(record) = &mut self.record {
                    self.parts.sessions.follow(record, hold);
                }
                if hold.mode == Mode::Exclusive {
                    self.evict_others(&hold.owner, effect.clock);
                }
            }
            Change::Remove { owner, mode } => {
                for gone in [Mode::Exclusive, Mode::Shared] {
                    if mode.is_none_or(|mode| mode == gone) {
                        self.unbind(owner, gone);
                    }
                }
            }
            Change::Sweep => {}
        }
    }

    /// Unbinds the holds of other owners after an exclusive grant: their sessions have ended, and no visit has settled
    /// them yet.
    fn evict_others(&mut self, owner: &Owner, now: UnixMs) {
        let Some(record) = &mut self.record else { return };
        let Some((others, ended)) = record.bound.split_others(owner) else { return };
        let outbox = &mut self.parts.outbox;
        outbox.stats.session_ends += ended.all;
        if ended.released > 0 {
            outbox.note_session_ends(others.released_tokens(), ended.released, now.get() * 1000);
            outbox.stats.releases += ended.released;
        }
        self.parts.backlog.note_unbound(record);
        self.parts.sessions.discard(record, others);
        if ended.released > 0 {
            self.parts.outbox.push(Output::Event(record.db, Rc::clone(&record.key), Event::Release));
        }
    }

    /// Gives an owner a hold, or more entries, and binds it to a session if there is one.
    #[inline(always)]
    pub(crate) fn grant(&mut self, hold: Hold, entry: Entry, session: Option<SessionKey>) {
        match entry {
            Entry::First => {
                self.parts.outbox.stats.grants += 1;
                if self.effect_clock() < self.now.ms() {
                    self.drop_lapsed_of(&hold.owner, hold.mode);
                }
                self.unbind(&hold.owner, hold.mode);
            }
            Entry::Again => self.parts.outbox.stats.reentries += 1,
        }
        self.put(hold, session);
        self.emit(Event::Acquire);
    }

    /// Drops the owner's hold of this mode if it has lapsed. Otherwise the grant that follows would replace it, unseen,
    /// while holds in a grace are not settled.
    #[inline(never)]
    fn drop_lapsed_of(&mut self, owner: &Owner, mode: Mode) {
        let (now, lock) = (self.now.ms(), self.open.lock());
        let Some(hold) = lock.live(owner, mode, UnixMs::ZERO).filter(|hold| !hold.is_live(now)) else { return };
        let Parts { outbox, sessions, .. } = &mut *self.parts;
        outbox.log.holds.record_all(&[held_us(hold.token, hold.deadline.get() * 1000)], 1);
        outbox.stats.caps += u64::from(hold.has_reached_cap());
        let key = self.record.as_ref().and_then(|record| record.bound.session_of(owner, mode));
        outbox.log_end(self.open.name(), hold, (key, sessions.id_of(key)), now);
        outbox.stats.lapses += 1;
        self.emit(Event::Lapse);
        let change = Change::Remove { owner: owner.clone(), mode: Some(mode) };
        self.apply(Effect { clock: now, change }, Replication::Effect);
    }

    /// Puts a hold into the lock, and binds it to a session if there is one. The TTL of the key becomes the last
    /// deadline.
    #[inline(always)]
    pub(crate) fn put(&mut self, hold: Hold, session: Option<SessionKey>) {
        if let Some(key) = session {
            return self.put_bound(hold, key);
        }
        let put = Effect { clock: self.now.ms(), change: Change::Put { hold, expiry: Expiry::Anew } };
        self.apply(put, Replication::Effect);
    }

    #[inline(never)]
    fn put_bound(&mut self, hold: Hold, key: SessionKey) {
        self.put(hold.clone(), None);
        self.bind(&hold, key);
    }

    /// Binds a hold to a session. The lock has a record.
    pub(crate) fn bind(&mut self, hold: &Hold, key: SessionKey) {
        debug_assert!(self.record.is_some(), "a lock with a bound hold has a record");
        if let Some(record) = &mut self.record {
            let bond = self.parts.sessions.bind(record, hold, key);
            self.open.set_bond(bond);
            self.parts.schedule(record);
        }
    }

    /// Unbinds a hold, if it is bound.
    #[inline]
    pub(crate) fn unbind(&mut self, owner: &Owner, mode: Mode) {
        if let Some(record) = &mut self.record
            && !record.bound.is_empty()
        {
            self.parts.sessions.unbind(record, owner, mode);
            self.parts.backlog.note_unbound(record);
        }
    }

    /// Returns which shared holds a decision counts: the live ones, those in the grace of their ended sessions, and not
    /// those that count as released because their sessions have ended.
    pub(crate) fn readers(&self) -> CountedReaders {
        let now = self.now.ms();
        let Some(record) = self.record.as_ref().filter(|record| record.bound.has_ended()) else {
            return CountedReaders::all(now);
        };
        let ended = record.bound.ended_sum(now);
        // A count above the stored holds is stale.
        let ended = if ended.holds <= self.open.lock().stored() { ended } else { Sum::default() };
        CountedReaders { live_at: self.effect_clock(), ended }
    }

    /// Sets when the lock is due next. Drops the lapsed holds first, if requests wait.
    #[inline]
    pub(crate) fn reschedule(&mut self) {
        if let Some(record) = &self.record {
            let must_sweep = !record.queue.is_empty() && self.open.lock().has_lapsed(self.effect_clock());
            self.reschedule_record(must_sweep);
        }
    }

    #[inline(never)]
    fn reschedule_record(&mut self, must_sweep: bool) {
        if must_sweep {
            self.sweep();
        }
        let Some(record) = &mut self.record else { return };
        record.queue_due = None;
        if !record.queue.is_empty() {
            let early = self.open.early_end().map(|end| UnixMs::new(end.get() + 1));
            record.queue_due = self.open.lock().first_deadline().into_iter().chain(early).min();
        }
        self.parts.schedule(record);
    }

    /// Emits a keyspace event on this lock.
    #[inline]
    pub(crate) fn emit(&mut self, event: Event) {
        match (self.open.own, &self.record) {
            (Some(index), _) => self.parts.outbox.push_own_event(index, event),
            (None, Some(record)) => {
                self.parts.outbox.push(Output::Event(record.db, Rc::clone(&record.key), event));
            }
            (None, None) => {}
        }
    }

    /// Closes the lock. Its key outlives the last deadline a little while requests wait.
    #[inline(always)]
    pub(crate) fn close(&mut self) {
        if self.record.is_some() {
            return self.close_with_record();
        }
        self.open.close(0);
    }

    #[inline(never)]
    fn close_with_record(&mut self) {
        let Some(record) = &mut self.record else {
            return debug_assert!(false, "a lock without a record is closed here");
        };
        if self.open.is_changed() {
            record.has_ttl_grace = !record.queue.is_empty();
            return self.open.close(if record.has_ttl_grace { GRACE_MS } else { 0 });
        }
        if record.queue.is_empty() {
            record.has_ttl_grace = false;
            // A key that was swapped here, or away and back, may have a grace that the record does not know. Any other
            // TTL was set by a client.
            if self.open.has_ttl_grace() {
                return self.open.close_with_grace(0);
            }
        }
        self.open.close(0);
    }

    /// Closes a lock whose queue has a new waiter: the key must outlive the last deadline a little, unless a client set
    /// its TTL.
    pub(crate) fn close_for_waiter(mut self) {
        match &mut self.record {
            Some(record) if !self.open.is_changed() && self.open.ends_with_last_lease() => {
                record.has_ttl_grace = true;
                self.open.close_with_grace(GRACE_MS);
            }
            _ => self.close(),
        }
    }
}
