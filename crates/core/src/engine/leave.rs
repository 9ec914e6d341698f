//! `RELEASE` and `RENEW`.

use super::keyspace::{Keyspace, OpenKey, OpenLock, Replication, WrongType};
use super::record::RecordId;
use super::{Call, Engine, Event, Fault};
use crate::lock::{Release, Released, Renew, Renewed};
use crate::{Change, Effect, Expiry, Hold, LeaseChoice, Memory, Name, UnixMs};

/// What a release leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The owner had no such hold, or too few entries.
    NotHeld,
    /// The owner still holds that mode, or the same request was sent before.
    Partly,
    /// The owner does not hold that mode any more.
    Fully,
}

impl<T> Engine<T> {
    /// Decides on `RELEASE`. O(log n), beside what is due on the lock.
    ///
    /// # Errors
    /// [`Fault::WrongType`] and [`Fault::Ambiguous`].
    pub fn release<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        request: &Release<'_>,
    ) -> Result<Left, Fault> {
        self.begin(call.now);
        self.on_lock(space, call.name, 0, call.now, request.owner, |engine, id, open| {
            engine.leave(*id, open, call, request)
        })?
    }

    /// Takes the owner out if it holds the lock so.
    #[inline]
    fn leave<K: OpenKey>(
        &mut self,
        id: Option<RecordId>,
        open: &mut OpenLock<K>,
        call: Call<'_>,
        request: &Release<'_>,
    ) -> Result<Left, Fault> {
        let now = call.now;
        let released = open.lock().release(now.ms(), request);
        let left = match released {
            Released::NotHeld => return Ok(Left::NotHeld),
            Released::Ambiguous => return Err(Fault::Ambiguous),
            Released::Replayed => {
                self.stats.replays += 1;
                return Ok(Left::Partly);
            }
            Released::Partly(_) => Left::Partly,
            Released::Fully(mode) => {
                self.note_release(call, open.lock(), request.owner, mode);
                Left::Fully
            }
        };
        if let Some(effect) = effect_of(released, request, now.ms()) {
            // Whoever applies the command looks at no clock: it may not have to drop anything.
            let is_exact = !open.lock().has_lapsed(now.ms());
            let replication = if is_exact { Replication::Verbatim } else { Replication::Effect };
            self.apply(id, open, effect, replication);
        }
        self.stats.releases += 1;
        self.emit(id, Some(0), Event::Release);
        if let Some(id) = id {
            self.serve(id, open, now);
        }
        Ok(left)
    }

    /// Decides on `RENEW`; whether the owner has such a hold. `binds`: to the client. O(log n), beside what is due on
    /// the lock.
    ///
    /// # Errors
    /// [`Fault::WrongType`], [`Fault::SessionLease`] and [`Fault::SessionAbsolute`].
    pub fn renew<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        request: &Renew<'_>,
        binds: bool,
    ) -> Result<bool, Fault> {
        self.begin(call.now);
        self.on_lock(space, call.name, 0, call.now, request.owner, |engine, id, open| {
            let now = call.now;
            let Renewed::Moved(first, second) = open.lock().renew(now.ms(), request) else { return Ok(false) };
            for hold in std::iter::once(&first).chain(second.as_ref()) {
                engine.check_bound(*id, call, hold, request.lease, binds)?;
            }
            if binds {
                id.get_or_insert_with(|| engine.find_or_create(call.name));
            }
            for hold in std::iter::once(first).chain(second) {
                engine.put(*id, open, now, hold, binds.then_some(call.client));
            }
            engine.stats.renewals += 1;
            engine.emit(*id, Some(0), Event::Renew);
            if let Some(id) = *id {
                engine.watch(id, open, now);
            }
            Ok(true)
        })?
    }

    /// A hold that is bound, or will be, keeps a lease of 300 ms or more, and never an absolute one.
    fn check_bound(
        &self,
        id: Option<RecordId>,
        call: Call<'_>,
        hold: &Hold,
        lease: LeaseChoice,
        binds: bool,
    ) -> Result<(), Fault> {
        let record = id.and_then(|id| self.records.get(id));
        let bound_to = record.and_then(|record| record.bound.client_of(&hold.owner, hold.mode));
        let Some(client) = binds.then_some(call.client).or(bound_to) else { return Ok(()) };
        match lease {
            LeaseChoice::Until(_) => Err(Fault::SessionAbsolute),
            LeaseChoice::Own | LeaseChoice::For(_) if !hold.lease.can_be_bound() => Err(Fault::SessionLease),
            LeaseChoice::Own | LeaseChoice::For(_) => self.check_renewed(client, call.name, hold),
        }
    }
}

/// Applies a `RELEASE` that a primary has carried out: it came verbatim over the replication link, or from a file. No
/// clock is read.
///
/// # Errors
/// [`WrongType`] if the key holds another type.
pub fn replay_release<S: Keyspace>(
    space: &mut S,
    name: Name<'_>,
    request: &Release<'_>,
    memory: &mut Memory,
) -> Result<(), WrongType> {
    let mut open = OpenLock::new(space.open(name)?, None);
    let released = open.lock().release(UnixMs::ZERO, request);
    if let Some(effect) = effect_of(released, request, UnixMs::ZERO) {
        open.apply(effect, Replication::Verbatim, memory);
    }
    open.close(0);
    Ok(())
}

fn effect_of(released: Released, request: &Release<'_>, clock: UnixMs) -> Option<Effect> {
    let change = match released {
        Released::NotHeld | Released::Ambiguous | Released::Replayed => return None,
        Released::Partly(hold) => Change::Put { hold, expiry: Expiry::Keep },
        Released::Fully(mode) => Change::Remove { owner: request.owner.clone(), mode },
    };
    Some(Effect { clock, change })
}
