//! The outcome of a request that is not granted at once: a refusal, an error, or a wait.

use smallvec::SmallVec;

use crate::engine::inputs::deadlock::Search;
use crate::engine::keyspace::Keyspace;
use crate::engine::state::budget::Budget;
use crate::engine::state::call::Call;
use crate::engine::state::engine::Engine;
use crate::engine::state::fault::Fault;
use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::outbox::grant::Grant;
use crate::engine::state::outbox::{Answer, Event, Outbox};
use crate::engine::state::parts::Parts;
use crate::engine::state::records::record::MAX_RECORDED_KEY;
use crate::engine::state::waiting::queue::Rank;
use crate::engine::state::waiting::{Sender, Waiters};
use crate::lock::Refusal;
use crate::settings::share;
use crate::{Name, Now, Request};

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The owner has entered.
    Granted(Grant),
    /// The request repeats one that was granted before.
    Replayed(Grant),
    /// The request waits: the caller blocks the client.
    Waiting(WaiterId),
    /// The request is not granted: the reply is nil.
    Refused,
}

/// The decision on a request, made while its key is open. The caller carries it out after the key is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision is carried out"]
pub(super) enum Decided {
    /// The outcome is known: there is nothing more to do.
    Entered(Entered),
    /// The request waits: at the end of the queue, or as an upgrade, ahead of all others that are no upgrades.
    Join(Rank, Cycle),
    /// The request takes the place of the request that it repeats.
    TakeOver(WaiterId),
}

/// Whether a request that begins to wait may close a cycle of owners that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cycle {
    Possible,
    /// No owner in the request's way waits for anything.
    Impossible,
}

/// Decides whether a request that is not granted waits, is refused, or is an error. `first` is a waiting request that
/// this one repeats.
pub(super) fn wait_or_refuse<T>(
    outbox: &mut Outbox<T>,
    refusal: Refusal,
    call: &Call<'_>,
    request: &Request,
    may_wait: bool,
    first: Option<WaiterId>,
) -> Result<Decided, Fault> {
    let mut refused = || {
        outbox.stats.refusals += 1;
        Ok(Decided::Entered(Entered::Refused))
    };
    let why = match (refusal, first) {
        (Refusal::TooManyEntries, _) => return Err(Fault::TooManyEntries),
        (Refusal::NoToken, _) => return Err(Fault::NoToken),
        (Refusal::LeasePassed, _) => return refused(),
        _ if !may_wait => return refused(),
        (Refusal::OverLimit, _) => "the owner's own permits and those it asks for exceed the limit",
        (Refusal::Held | Refusal::Owned | Refusal::OnlyHolder, Some(first)) => return Ok(Decided::TakeOver(first)),
        (Refusal::Held, None) => return Ok(Decided::Join(Rank::Arrival, Cycle::Possible)),
        (Refusal::Owned, None) if request.want.has_slot() => {
            "the owner has a shared hold already, and SLOT is for an owner that has none"
        }
        (Refusal::Owned, None) => {
            "the owner holds the lock already, and the request is not reentrant (DLOCK.RACQUIRE enters again)"
        }
        (Refusal::OnlyHolder, None) => "the owner holds the lock, and a waiter ahead waits for it",
    };
    Err(outbox.deadlock(call, request, why.to_owned()))
}

/// Returns the sender of the running command.
fn sender<T, S: Keyspace>(waiters: &Waiters<T>, space: &mut S, call: &Call<'_>) -> Sender {
    let user = space.user().map(|user| waiters.share_name(&user));
    Sender { client: call.client, user, since: call.now }
}

impl<T> Engine<T> {
    /// Carries out the decision on a request for these locks. The caller has closed their keys.
    pub(super) fn carry_out<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: &Call<'_>,
        names: &[Name<'_>],
        request: &Request,
        decided: Decided,
        (wait, budget): (Option<impl FnOnce(WaiterId) -> T>, &mut Budget),
    ) -> Result<Entered, Fault> {
        match (decided, wait) {
            (Decided::Entered(entered), _) => Ok(entered),
            (Decided::TakeOver(first), Some(wait)) => Ok(self.take_over(space, first, (call, request), wait)),
            (Decided::Join(rank, cycle), Some(wait)) => {
                self.join(space, call, names, request, (rank, cycle), (wait, budget))
            }
            (Decided::TakeOver(_) | Decided::Join(..), None) => {
                debug_assert!(false, "a request that may not wait is refused");
                Ok(Entered::Refused)
            }
        }
    }

    /// Gives the place of a waiting request to its repeat, whose arguments count from then on. The client that sent the
    /// request before gets nil.
    fn take_over<S: Keyspace>(
        &mut self,
        space: &mut S,
        id: WaiterId,
        (call, request): (&Call<'_>, &Request),
        wait: impl FnOnce(WaiterId) -> T,
    ) -> Entered {
        self.note_timeout(id, call.now);
        let Some(waiter) = self.parts.waiters.get(id) else { return Entered::Refused };
        let records = waiter.records.clone();
        let sender = sender(&self.parts.waiters, space, call);
        if let Some(first) = self.parts.waiters.take_over(id, request, sender, wait) {
            self.parts.outbox.stats.replays += 1;
            self.parts.outbox.answer_to(first, Answer::Nil);
        }
        records.into_iter().for_each(|record| self.mark_due(record));
        Entered::Waiting(id)
    }

    /// Puts a request into the queues of these locks, in one step.
    ///
    /// # Errors
    /// A [`Fault`]; the request has changed nothing.
    fn join<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: &Call<'_>,
        names: &[Name<'_>],
        request: &Request,
        (rank, cycle): (Rank, Cycle),
        (wait, budget): (impl FnOnce(WaiterId) -> T, &mut Budget),
    ) -> Result<Entered, Fault> {
        if names.iter().any(|name| name.key.len() > MAX_RECORDED_KEY) {
            return Err(Fault::WaitKey);
        }
        let records: SmallVec<[RecordId; 1]> = names.iter().map(|name| self.find_or_create(*name)).collect();
        let sender = sender(&self.parts.waiters, space, call);
        if self.parts.settings.max_waiters.is_some_and(|max| !self.has_room(max, records.len(), sender.user.as_deref()))
        {
            records.iter().for_each(|id| self.drop_if_idle(*id));
            return Err(Fault::TooManyWaiters);
        }
        let id = self.parts.waiters.add(request, sender, rank, records.clone(), wait);
        for record in &records {
            if let Some(record) = self.registry.get_mut(*record) {
                self.parts.waiters.join(id, &mut record.queue);
            }
        }
        if cycle == Cycle::Possible
            && let Some(cycle) = self.find_cycle(space, id, (call.now, records.len()))
        {
            self.undo_enqueue(id);
            records.iter().for_each(|id| self.drop_if_idle(*id));
            return Err(self.parts.outbox.deadlock(call, request, cycle));
        }
        for record in &records {
            self.begin_to_watch(space, *record, call.now, budget);
        }
        self.parts.outbox.stats.waits += 1;
        (0..records.len()).for_each(|index| self.parts.outbox.push_own_event(index, Event::Wait));
        Ok(Entered::Waiting(id))
    }

    /// Returns whether `wanted` places are free, both of the `max` places of all users and of the user's share of them.
    /// The share keeps one user from taking all places.
    fn has_room(&self, max: usize, wanted: usize, user: Option<&[u8]>) -> bool {
        let of_user = user.map_or(0, |user| self.parts.waiters.places_of(user) + wanted);
        self.parts.waiters.places() + wanted <= max && of_user <= share(max)
    }

    /// Searches for a cycle of waiting owners through a request that has just joined its queues. Returns the
    /// description of the cycle.
    fn find_cycle<S: Keyspace>(&mut self, space: &mut S, id: WaiterId, (now, locks): (Now, usize)) -> Option<String> {
        let Parts { waiters, searches, .. } = &mut self.parts;
        let budget = searches.begin(now, locks);
        let (cycle, removed, left) = Search::new(&self.registry, waiters, space, id, budget)?.run();
        searches.end(budget - left, locks);
        removed.into_iter().for_each(|id| self.forget_lock(id));
        cycle
    }

    /// Takes a request that has just joined out of its queues again, as if it had never joined.
    fn undo_enqueue(&mut self, id: WaiterId) {
        let Some(waiter) = self.parts.waiters.remove(id) else { return };
        for record in &waiter.records {
            if let Some(record) = self.registry.get_mut(*record) {
                self.parts.waiters.leave(&waiter, &mut record.queue);
            }
        }
    }
}
