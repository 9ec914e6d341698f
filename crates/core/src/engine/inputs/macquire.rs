//! `MACQUIRE`: a request for several locks, which are granted together or not at all.

use smallvec::SmallVec;

use crate::engine::inputs::command::{Nothing, OnLock};
use crate::engine::inputs::join::{Decided, Entered, wait_or_refuse};
use crate::engine::inputs::several::{Granted, MAX_LOOKS, State};
use crate::engine::keyspace::Keyspace;
use crate::engine::state::budget::Budget;
use crate::engine::state::call::Call;
use crate::engine::state::engine::Engine;
use crate::engine::state::fault::Fault;
use crate::engine::state::ids::RecordId;
use crate::engine::state::ids::WaiterId;
use crate::engine::state::outbox::grant::Grant;
use crate::engine::state::sessions::Wanted;
use crate::lock::{Acquired, Refusal};
use crate::{BindTo, Lease, Lock, Name, Request};

impl<T> Engine<T> {
    /// Decides on `MACQUIRE`: `names` are its keys, each once, all in one database. `call.name` is the first.
    /// O(n log n) for n keys, beside what is due on the locks, the search for a deadlock, and the search for the same
    /// request among those of the owner that wait.
    ///
    /// # Errors
    /// A [`Fault`]; the request has changed nothing. A repeat that gets [`Fault::NotNow`] may have bound some of its
    /// holds to its session: another repeat binds all of them.
    pub fn acquire_all<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        names: &[Name<'_>],
        request: &Request,
        wait: Option<impl FnOnce(WaiterId) -> T>,
    ) -> Result<Entered, Fault> {
        let mut budget = self.begin(call.now);
        for (index, name) in names.iter().enumerate() {
            if self.remembers(*name) {
                let (name, now, owner) = (*name, call.now, &request.owner);
                let command = OnLock { name, own: index, now, owner, session: false };
                self.on_lock(space, command, &mut budget, Nothing)?;
            }
        }
        let decided = self.decide_on_all(space, &call, names, request, wait.is_some(), &mut budget)?;
        self.carry_out(space, &call, names, request, decided, (wait, &mut budget))
    }

    fn decide_on_all<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: &Call<'_>,
        names: &[Name<'_>],
        request: &Request,
        may_wait: bool,
        budget: &mut Budget,
    ) -> Result<Decided, Fault> {
        let now = call.now;
        let session = request.session_key(call.client);
        let (mut states, mut is_queued) = (SmallVec::<[State; 8]>::new(), false);
        for look in 1..=MAX_LOOKS {
            let mut has_removed = false;
            for name in names {
                let id = self.look_up(*name);
                is_queued |= self.head_of(id).is_some();
                states.push(self.state(space, id, *name, &request.owner, request.id.as_deref(), now)?);
                has_removed |= space.has_removed();
            }
            if !has_removed {
                break;
            }
            if look == MAX_LOOKS {
                return Err(Fault::NotNow);
            }
            states.clear();
        }
        let recorded: SmallVec<[_; 8]> = states.iter().filter_map(|state| state.recorded()).collect();
        if recorded.len() == names.len()
            && let Some((token, _)) = recorded.iter().max()
        {
            self.check_all(call, request, names.iter().copied().zip(recorded.iter().map(|(_, lease)| *lease)))?;
            if let Some(key) = session
                && !self.bind_all(space, names, &request.owner, key, (now, budget))
            {
                return Err(Fault::NotNow);
            }
            self.parts.outbox.stats.replays += 1;
            return Ok(Decided::Entered(Entered::Replayed(Grant::without_slot(*token))));
        }
        let is_owned = states.iter().any(|state| matches!(state, State::Recorded(..) | State::Owned));
        let refusal = if is_owned {
            Refusal::Owned
        } else if is_queued || states.contains(&State::Held) {
            Refusal::Held
        } else {
            match Lock::EMPTY.acquire(now.ms(), request, self.parts.terms(now, request)) {
                Acquired::Granted(hold, _) | Acquired::Replayed(hold) => {
                    self.check_all(call, request, names.iter().map(|name| (*name, hold.lease)))?;
                    if !self.are_all_open(space, names, (now, &mut *budget)) {
                        return Err(Fault::NotNow);
                    }
                    self.grant_all(space, names, &hold, session, Granted::Command, (now, budget));
                    return Ok(Decided::Entered(Entered::Granted(Grant::without_slot(hold.token))));
                }
                Acquired::Refused(refusal) => refusal,
            }
        };
        let known: Option<SmallVec<[RecordId; 1]>> = names.iter().map(|name| self.registry.find(*name)).collect();
        let first = known.and_then(|records| self.parts.waiters.repeated(request, &records));
        let locks = names.iter().map(|name| (self.registry.record_of(*name), name.key.len()));
        self.parts.check_waiting(call.client, request, None, locks)?;
        wait_or_refuse(&mut self.parts.outbox, refusal, call, request, may_wait, first)
    }

    /// Checks that a request can be bound on these locks.
    fn check_all<'n>(
        &self,
        call: &Call<'_>,
        request: &Request,
        holds: impl Iterator<Item = (Name<'n>, Lease)>,
    ) -> Result<(), Fault> {
        let wanted = |(name, lease): (Name<'n>, Lease)| {
            let record = if request.session != BindTo::Nothing { self.registry.record_of(name) } else { None };
            Wanted { record, key_len: name.key.len(), lease }
        };
        self.parts.sessions.check(call.client, request, holds.map(wanted))
    }
}
