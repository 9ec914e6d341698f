//! `DLOCK.RENEW`.

use crate::engine::inputs::command::{OnLock, Work};
use crate::engine::keyspace::{Keyspace, OpenKey};
use crate::engine::state::call::Call;
use crate::engine::state::engine::Engine;
use crate::engine::state::fault::Fault;
use crate::engine::state::outbox::Event;
use crate::engine::visit::Visit;
use crate::lock::{Reach, Renew, Renewed};
use crate::{Binding, Hold, LeaseChoice, SessionKey};

impl<T> Engine<T> {
    /// Executes `RENEW`, which also binds the holds to `session`. Returns the reach of the renewal; `None` if the owner
    /// has no such hold. O(log n), beside the work that is due on the lock.
    ///
    /// # Errors
    /// [`Fault::WrongType`], [`Fault::NoSession`], [`Fault::SessionLease`] and [`Fault::SessionAbsolute`].
    #[inline(always)]
    pub fn renew<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        request: &Renew<'_>,
        session: Binding,
    ) -> Result<Option<Reach>, Fault> {
        let mut budget = self.begin(call.now);
        let key = session.key(call.client);
        let command = OnLock { name: call.name, own: 0, now: call.now, owner: request.owner, session: key.is_some() };
        self.on_lock(space, command, &mut budget, Renewing { call: &call, request, session, key })?
    }
}

/// The work of `RENEW` on its lock.
struct Renewing<'a> {
    call: &'a Call<'a>,
    request: &'a Renew<'a>,
    session: Binding,
    key: Option<SessionKey>,
}

impl<T> Work<T> for Renewing<'_> {
    type Done = Result<Option<Reach>, Fault>;

    #[inline(always)]
    fn run<K: OpenKey>(self, visit: &mut Visit<'_, T, K>) -> Self::Done {
        visit.renew(self.call, self.request, self.session, self.key)
    }
}

impl<T, K: OpenKey> Visit<'_, T, K> {
    #[inline(always)]
    fn renew(
        &mut self,
        call: &Call<'_>,
        request: &Renew<'_>,
        session: Binding,
        key: Option<SessionKey>,
    ) -> Result<Option<Reach>, Fault> {
        self.parts.sessions.check_open(session)?;
        let renewed = self.open.lock().renew(self.now.ms(), request);
        let Renewed::Moved(first, second, reach) = renewed else { return Ok(None) };
        // A lock without a record has no bindings. With a session, `on_lock` has made a record.
        if self.record.is_some() {
            for hold in [Some(&first), second.as_ref()].into_iter().flatten() {
                self.check_bound(call, hold, request.lease, key)?;
            }
        }
        self.put(first, key);
        if let Some(second) = second {
            self.put_second(second, key);
        }
        self.parts.outbox.stats.renewals += 1;
        self.emit(Event::Renew);
        self.reschedule();
        Ok(Some(reach))
    }

    /// Stores the second hold of an owner that holds both modes. Not inlined, to keep the usual renewal small.
    #[inline(never)]
    fn put_second(&mut self, hold: Hold, session: Option<SessionKey>) {
        self.put(hold, session);
    }

    /// Checks a hold that is bound to a session, or will be: its lease must be 300 ms or more and not absolute, and the
    /// session must be able to renew the hold often enough.
    #[inline(never)]
    fn check_bound(
        &self,
        call: &Call<'_>,
        hold: &Hold,
        lease: LeaseChoice,
        session: Option<SessionKey>,
    ) -> Result<(), Fault> {
        let record = self.record.as_deref();
        let bound_to = record.and_then(|record| record.bound.session_of(&hold.owner, hold.mode));
        let Some(key) = session.or(bound_to) else { return Ok(()) };
        match lease {
            LeaseChoice::Until(_) => Err(Fault::SessionAbsolute),
            LeaseChoice::Own | LeaseChoice::For(_) if !hold.lease.can_be_bound() => Err(Fault::SessionLease),
            LeaseChoice::Own | LeaseChoice::For(_) => {
                self.parts.sessions.check_renewed(key, record, call.name.key.len(), hold)
            }
        }
    }
}
