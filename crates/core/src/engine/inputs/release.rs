//! `RELEASE`.

use crate::engine::inputs::command::{OnLock, Work};
use crate::engine::keyspace::{Keyspace, NotOpen, OpenKey, OpenLock, Replication};
use crate::engine::state::call::Call;
use crate::engine::state::engine::Engine;
use crate::engine::state::fault::Fault;
use crate::engine::state::outbox::{Event, Outbox};
use crate::engine::visit::Visit;
use crate::lock::{Release, Released};
use crate::{Change, Effect, Expiry, Hold, Lock, Memory, Name, UnixMs};

/// The rest of a hold after a release.
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
    #[inline(always)]
    pub fn release<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        request: &Release<'_>,
    ) -> Result<Left, Fault> {
        let mut budget = self.begin(call.now);
        let command = OnLock { name: call.name, own: 0, now: call.now, owner: request.owner, session: false };
        self.on_lock(space, command, &mut budget, Releasing(&call, request, By::Owner))?
    }

    /// Decides on `RELEASE … BREAK`: the log says which client releases a hold that is not its own.
    ///
    /// # Errors
    /// [`Fault::WrongType`] and [`Fault::Ambiguous`].
    #[inline(never)]
    pub fn break_hold<S: Keyspace>(
        &mut self,
        space: &mut S,
        call: Call<'_>,
        request: &Release<'_>,
    ) -> Result<Left, Fault> {
        let mut budget = self.begin(call.now);
        let command = OnLock { name: call.name, own: 0, now: call.now, owner: request.owner, session: false };
        self.on_lock(space, command, &mut budget, Releasing(&call, request, By::Other))?
    }
}

/// The client that releases a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The owner of the hold.
    Owner,
    /// A client that is not the owner (`BREAK`).
    Other,
}

/// The work of a release.
struct Releasing<'a>(&'a Call<'a>, &'a Release<'a>, By);

impl<T> Work<T> for Releasing<'_> {
    type Done = Result<Left, Fault>;

    const RESCHEDULES: bool = true;

    #[inline(always)]
    fn run<K: OpenKey>(self, visit: &mut Visit<'_, T, K>) -> Self::Done {
        visit.release(self.0, self.1, self.2)
    }
}

impl<T, K: OpenKey> Visit<'_, T, K> {
    /// Releases the owner's hold, if it has the one that the request names.
    #[inline(always)]
    fn release(&mut self, call: &Call<'_>, request: &Release<'_>, by: By) -> Result<Left, Fault> {
        let (now, lock) = (self.now.ms(), self.open.lock());
        // Nearly every release ends one hold. The others are decided again in a function off the fast path.
        let Released::Fully(hold) = lock.release(now, request) else {
            return self.release_otherwise(call, request, by);
        };
        let replication = replication_of(lock, now, by);
        let outbox = &mut self.parts.outbox;
        outbox.note_release(call, hold);
        note_break(outbox, call, by, hold);
        let change = Change::Remove { owner: request.owner.clone(), mode: Some(hold.mode) };
        self.carry_out(Effect { clock: now, change }, replication);
        Ok(Left::Fully)
    }

    /// Decides on a release where the owner has no such hold, keeps entries, or releases both modes.
    #[inline(never)]
    fn release_otherwise(&mut self, call: &Call<'_>, request: &Release<'_>, by: By) -> Result<Left, Fault> {
        let (now, lock) = (self.now.ms(), self.open.lock());
        let replication = replication_of(lock, now, by);
        let released = lock.release(now, request);
        let outbox = &mut self.parts.outbox;
        let left = match released {
            Released::NotHeld | Released::Ambiguous | Released::Replayed => {
                outbox.stats.replays += u64::from(matches!(released, Released::Replayed));
                let left = match released {
                    Released::Ambiguous => Err(Fault::Ambiguous),
                    Released::Replayed => Ok(Left::Partly),
                    _ => Ok(Left::NotHeld),
                };
                self.reschedule();
                return left;
            }
            Released::Partly(_) => Left::Partly,
            Released::Fully(hold) => {
                outbox.note_release(call, hold);
                Left::Fully
            }
            Released::Both(exclusive, shared) => {
                outbox.note_release(call, exclusive);
                outbox.note_release(call, shared);
                Left::Fully
            }
        };
        released.holds().into_iter().flatten().for_each(|hold| note_break(outbox, call, by, hold));
        if let Some(effect) = effect_of(released, request, now) {
            self.carry_out(effect, replication);
        }
        Ok(left)
    }

    #[inline(always)]
    fn carry_out(&mut self, effect: Effect, replication: Replication) {
        self.apply(effect, replication);
        self.parts.outbox.stats.releases += 1;
        self.emit(Event::Release);
        self.serve();
    }
}

/// Returns how a release is replicated. A server that applies the command itself reads no clock, so there must be no
/// lapsed holds to drop; and it may be too old to know `BREAK`.
#[inline(always)]
fn replication_of(lock: &Lock, now: UnixMs, by: By) -> Replication {
    if !lock.has_lapsed(now) && by == By::Owner { Replication::Verbatim } else { Replication::Effect }
}

/// Logs the release of a hold by a client that is not its owner.
#[inline(always)]
fn note_break<T>(outbox: &mut Outbox<T>, call: &Call<'_>, by: By, hold: &Hold) {
    if by == By::Other {
        outbox.note_break(call, hold);
    }
}

/// Applies a `RELEASE` that a primary has carried out, and that came verbatim over the replication link or from a file.
/// Reads no clock.
///
/// # Errors
/// [`NotOpen`]; nothing was changed.
#[inline(never)]
pub fn replay_release<S: Keyspace>(
    space: &mut S,
    name: Name<'_>,
    request: &Release<'_>,
    memory: &mut Memory,
) -> Result<(), NotOpen> {
    let mut open = OpenLock::new(space.open_at_last(name)?, None);
    let released = open.lock().release(UnixMs::ZERO, request);
    if let Some(effect) = effect_of(released, request, UnixMs::ZERO) {
        open.apply(effect, Replication::Verbatim, memory);
    }
    open.close(0);
    Ok(())
}

fn effect_of(released: Released<'_>, request: &Release<'_>, clock: UnixMs) -> Option<Effect> {
    let change = match released {
        Released::NotHeld | Released::Ambiguous | Released::Replayed => return None,
        Released::Partly(hold) => Change::Put { hold, expiry: Expiry::Keep },
        Released::Fully(hold) => Change::Remove { owner: request.owner.clone(), mode: Some(hold.mode) },
        Released::Both(..) => Change::Remove { owner: request.owner.clone(), mode: None },
    };
    Some(Effect { clock, change })
}
