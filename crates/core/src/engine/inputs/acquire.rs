//! A request for one lock: it is granted, refused, or waits.

use crate::engine::inputs::command::{OnLock, Work};
use crate::engine::inputs::join::{Cycle, Decided, Entered, wait_or_refuse};
use crate::engine::keyspace::{Keyspace, OpenKey};
use crate::engine::state::call::Call;
use crate::engine::state::engine::Engine;
use crate::engine::state::fault::Fault;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::outbox::grant::Grant;
use crate::engine::state::sessions::Wanted;
use crate::engine::state::waiting::queue::Rank;
use crate::engine::visit::Visit;
use crate::lock::{Acquired, CountedReaders, Refusal};
use crate::{Lock, Mode, Now, Request, SessionKey, UnixMs, Want};

impl<T> Engine<T> {
    /// Decides on `ACQUIRE`, `RACQUIRE`, `RLOCK`, `WLOCK` and `SACQUIRE`. `wait` makes the ticket of a request that may
    /// wait; without it, the request gets an answer at once. O(log n), beside what is due on the lock.
    ///
    /// # Errors
    /// A [`Fault`]; the request has changed nothing.
    #[inline(always)]
    pub fn acquire<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        request: &Request,
        wait: Option<impl FnOnce(WaiterId) -> T>,
    ) -> Result<Entered, Fault> {
        let may_wait = wait.is_some();
        let mut budget = self.begin(call.now);
        let Call { name, now, .. } = call;
        let session = request.session_key(call.client);
        let command = OnLock { name, own: 0, now, owner: &request.owner, session: session.is_some() };
        let entering = Entering { call: &call, request, session, may_wait };
        let decided = self.on_lock(space, command, &mut budget, entering)??;
        match decided {
            Decided::Entered(entered) => Ok(entered),
            waits => self.carry_out(space, &call, &[name], request, waits, (wait, &mut budget)),
        }
    }
}

/// The work of a request.
struct Entering<'a> {
    call: &'a Call<'a>,
    request: &'a Request,
    session: Option<SessionKey>,
    may_wait: bool,
}

impl<T> Work<T> for Entering<'_> {
    type Done = Result<Decided, Fault>;

    #[inline(always)]
    fn run<K: OpenKey>(self, visit: &mut Visit<'_, T, K>) -> Self::Done {
        visit.enter(self.call, self.request, self.session, self.may_wait)
    }
}

impl<T, K: OpenKey> Visit<'_, T, K> {
    /// Lets the owner in if it may enter now.
    #[inline(always)]
    fn enter(
        &mut self,
        call: &Call<'_>,
        request: &Request,
        session: Option<SessionKey>,
        may_wait: bool,
    ) -> Result<Decided, Fault> {
        self.free_slot(request.want);
        match self.decide(request) {
            Acquired::Granted(hold, entry) => {
                self.check_session(call, request, hold.lease)?;
                let grant = Grant::of(&hold, request.want);
                self.grant(hold, entry, session);
                // The same request, sent earlier, may wait: if it is the head of the queue, it is answered now.
                self.serve();
                Ok(Decided::Entered(Entered::Granted(grant)))
            }
            Acquired::Replayed(hold) => {
                self.check_session(call, request, hold.lease)?;
                self.parts.outbox.stats.replays += 1;
                if let Some(key) = session {
                    self.bind(&hold, key);
                }
                Ok(Decided::Entered(Entered::Replayed(Grant::of(&hold, request.want))))
            }
            Acquired::Refused(refusal) => self.refused(refusal, call, request, may_wait),
        }
    }

    /// Checks that the hold of a request, with this lease, can be bound to the session that the request names.
    #[inline]
    fn check_session(&self, call: &Call<'_>, request: &Request, lease: crate::Lease) -> Result<(), Fault> {
        let wanted = Wanted { record: self.record.as_deref(), key_len: call.name.key.len(), lease };
        self.parts.sessions.check(call.client, request, [wanted])
    }

    #[inline(always)]
    fn decide(&self, request: &Request) -> Acquired {
        if self.record.is_some() {
            return self.decide_in_queue(request);
        }
        self.open.lock().acquire(self.now.ms(), request, self.parts.terms(self.now, request))
    }

    /// Decides on a request for a lock that may have waiters, and holds whose sessions have ended.
    #[inline(never)]
    fn decide_in_queue(&self, request: &Request) -> Acquired {
        let (lock, now, terms) = (self.open.lock(), self.now, self.parts.terms(self.now, request));
        let readers = self.readers();
        let decision = lock.acquire_counting(now.ms(), request, terms, readers);
        if self.record.as_ref().is_none_or(|record| record.queue.is_empty()) {
            return decision;
        }
        // Nobody overtakes a waiter, except owners that hold the lock already; with permits, only the exclusive owner.
        // The lease and the token of a request count when its turn comes.
        match (&decision, request.want) {
            (Acquired::Granted(..), Want::Permits { .. } | Want::Slot { .. })
                if lock.live(&request.owner, Mode::Exclusive, now.ms()).is_none() =>
            {
                Acquired::Refused(only_holder(lock, request, now, readers))
            }
            (Acquired::Granted(..) | Acquired::Refused(Refusal::LeasePassed | Refusal::NoToken), _)
                if lock.live_holds_of(&request.owner, now.ms()).next().is_none() =>
            {
                Acquired::Refused(Refusal::Held)
            }
            _ => decision,
        }
    }

    /// Decides on a request that is not granted now.
    #[inline(never)]
    fn refused(
        &mut self,
        refusal: Refusal,
        call: &Call<'_>,
        request: &Request,
        may_wait: bool,
    ) -> Result<Decided, Fault> {
        let now = self.now.ms();
        // Lapsed permits are dropped, so that the next request does not count them again.
        if request.want.limit().is_some() && self.open.lock().has_lapsed(self.effect_clock()) {
            self.sweep();
        }
        let (lock, record) = (self.open.lock(), self.record.as_deref());
        let first = record.and_then(|record| self.parts.waiters.repeated(request, &[record.id]));
        let is_upgrade = is_upgrade(lock, request, now);
        let own = lock.live(&request.owner, request.want.mode(), now).map(|hold| hold.lease);
        let own = own.filter(|_| request.want.is_reentrant());
        self.parts.check_waiting(call.client, request, own, [(record, call.name.key.len())])?;
        match wait_or_refuse(&mut self.parts.outbox, refusal, call, request, may_wait, first)? {
            Decided::Join(..) if is_upgrade && self.is_upgrade_ahead(request) => {
                let why = "another owner waits to upgrade the lock already".to_owned();
                Err(self.parts.outbox.deadlock(call, request, why))
            }
            Decided::Join(_, cycle) if is_upgrade => Ok(Decided::Join(Rank::Upgrade, cycle)),
            Decided::Join(rank, _) if self.can_close_no_cycle(request) => Ok(Decided::Join(rank, Cycle::Impossible)),
            decided => Ok(decided),
        }
    }

    /// Returns whether a few steps show that the request closes no cycle: the holders are few, none of them is the
    /// owner of the request or waits for anything, and no request in the queue waits for other locks, too. The search
    /// for a deadlock would begin with the same steps, and find no cycle.
    fn can_close_no_cycle(&self, request: &Request) -> bool {
        let (lock, now) = (self.open.lock(), self.now.ms());
        let has_several = self.record.as_ref().is_some_and(|record| record.queue.has_several());
        !has_several
            && lock.live_count(now) <= FEW_HOLDERS
            && lock
                .live_by_deadline(now)
                .all(|hold| hold.owner != request.owner && self.parts.waiters.of_owner(&hold.owner).is_empty())
    }

    fn is_upgrade_ahead(&self, request: &Request) -> bool {
        let upgrades = self.record.iter().flat_map(|record| record.queue.upgrades());
        let mut upgrades = upgrades.filter_map(|id| self.parts.waiters.get(id));
        upgrades.any(|waiter| waiter.request.owner != request.owner)
    }
}

/// With at most this many holders, each is looked at before a search for a deadlock, which may then be left out.
const FEW_HOLDERS: usize = 4;

/// Returns why a request behind a waiter is refused. If the only holder asks for more permits, it would wait for a
/// waiter that waits for the holder.
fn only_holder(lock: &Lock, request: &Request, now: Now, readers: CountedReaders) -> Refusal {
    let is_holder = lock.live(&request.owner, Mode::Shared, now.ms()).is_some();
    if is_holder && !lock.is_held_by_others(&request.owner, readers) { Refusal::OnlyHolder } else { Refusal::Held }
}

/// Returns whether the request is for the write mode, by an owner that holds the lock shared.
fn is_upgrade(lock: &Lock, request: &Request, now: UnixMs) -> bool {
    request.want == Want::Exclusive && lock.live(&request.owner, Mode::Shared, now).is_some()
}
