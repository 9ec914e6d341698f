//! A lock that is held, and the task that keeps it.

mod held;
mod keeper;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;

use crate::backend::{Backend, no_stay};
use crate::cleanup;
use crate::error::Error;
use crate::heartbeat::Heartbeat;
use crate::holding::{Grant, Hold};
use crate::named::{Binding, WeakBinding};
use crate::options::{Mode, Terms, certain_lease, whole_millis};
use crate::renewal::Renewal;
use crate::validity::{State, Validity};
use held::{Held, Kept};

/// A lock that is held, until it is released, dropped or lost: one lock, permits of a semaphore, or several locks that
/// were acquired together. Threads and tasks may share a guard by reference. Each acquisition has a guard of its own,
/// and no guard changes another. A guard does not work in a forked process, which has no runtime.
///
/// Several locks are renewed and released together, and the guard is lost as soon as one of them is. The others then
/// stay held until the guard is dropped or released, or until their lease ends.
///
/// A task of the tokio runtime that acquired it renews the lease when a third of it has passed, so the runtime must run
/// for as long as the guard lives. Dropping the guard releases the lock in the background; if the runtime ends first,
/// the lock lapses with its lease.
///
/// A guard cannot stop work that goes on after the lock was [`lost`](Guard::lost). Give the [`token`](Guard::token) to
/// the resource that the lock protects, and let it refuse lower tokens.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    held: Arc<Held>,
    /// `None` until the guard leaves its hold; then whether it was the last one.
    last: Option<bool>,
    released: bool,
}

impl Guard {
    /// Begins to keep a granted lock. Must run inside a tokio runtime.
    pub(crate) fn new(backend: Backend, terms: Terms, grant: Grant) -> Self {
        let Grant { token, owner, slot, until, is_renewal_open, is_request_open, session, ticket, kept } = grant;
        let owner = owner.or_else(|| kept.as_ref().map(|kept| kept.owner())).unwrap_or_else(|| terms.owner.clone());
        let mut hold = Hold::granted(&terms, owner, (token, slot), session, kept);
        if let (Some(session), Some(ticket)) = (&terms.named, ticket) {
            hold.binding = Some(session.join(hold.bound(), ticket, until));
        }
        let now = Instant::now();
        let first = terms.first_lease();
        let validity = Validity::granted(until, first, is_renewal_open);
        let sent = now.min(until.checked_sub(first).unwrap_or(now));
        let mut heartbeat = Heartbeat::granted(now, sent, hold.lease, keeper::spread(&hold.owner), &validity);
        if let Some(at) = hold.kept.as_ref().and_then(|kept| kept.renewal_due()) {
            heartbeat.not_before(at);
        }
        let (state, kept) = (watch::Sender::new(State::Until(until)), Mutex::new(Kept { validity, heartbeat }));
        let (entries, runtime, keeper) = (AtomicUsize::new(1), Handle::current(), OnceLock::new());
        // Counted from now, which is after the grant, so the time is not too short.
        let stays_until = Mutex::new(terms.at_least.map(|time| Instant::now() + time));
        let hurry = Notify::new();
        let late = is_request_open.then(|| Terms {
            owner: hold.owner.clone(),
            upgrade: Some(terms.upgrade.clone().unwrap_or_default()),
            ..terms
        });
        let held = Arc::new(Held { backend, hold, state, kept, stays_until, hurry, entries, runtime, late, keeper });
        held.keeper.get_or_init(|| held.runtime.spawn(keeper::keep(held.clone())).abort_handle());
        Self { held, last: None, released: false }
    }

    /// Makes one more guard of the same hold.
    pub(crate) fn another(&self) -> Self {
        self.held.entries.fetch_add(1, Ordering::Relaxed);
        Self { held: self.held.clone(), last: None, released: false }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.held.backend
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.held.hold
    }

    /// Lets upgrades of the reader that this writer becomes wait until no late copy of the writer's request can come, and
    /// release the writer's hold if it stays.
    pub(crate) fn before(&self, reader: &Self) {
        let late = self.held.late.as_ref().and_then(|terms| terms.upgrade.clone());
        let earlier = late.or_else(|| self.held.stays_until().map(|_| Arc::default()));
        earlier.into_iter().for_each(|earlier| reader.held.hold.upgrades.follow(earlier));
    }

    pub(crate) fn lease(&self) -> Duration {
        self.held.kept().heartbeat.wanted
    }

    pub(crate) fn entries(&self) -> &AtomicUsize {
        &self.held.entries
    }

    /// Takes the guard from its hold. Returns whether it was the last one.
    fn leave(&mut self) -> bool {
        *self.last.get_or_insert_with(|| self.held.entries.fetch_sub(1, Ordering::AcqRel) == 1)
    }

    /// Returns the name of the lock; the first one of several.
    pub fn name(&self) -> &[u8] {
        self.held.hold.name()
    }

    /// Returns the names of all locks that were acquired together, in the order in which they were given.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.held.hold.names.iter().map(Vec::as_slice)
    }

    /// Returns how many permits of a semaphore this guard has; 1 for a lock.
    pub fn permits(&self) -> u32 {
        if let Mode::Permits { permits, .. } = self.held.hold.mode { permits } else { 1 }
    }

    /// Returns the number of its place in the semaphore, if it was acquired with one
    /// ([`acquire_slot`](crate::Semaphore::acquire_slot)).
    pub fn slot(&self) -> Option<u32> {
        self.held.hold.slot
    }

    /// Returns the fencing token, which is higher than that of any earlier grant of this server.
    pub fn token(&self) -> u64 {
        self.held.hold.token
    }

    /// Returns the owner, made for this acquisition: host, process, a number and a random one, or a
    /// [label](crate::Acquire::owner_label) and a random number.
    pub fn owner(&self) -> &str {
        &self.held.hold.owner
    }

    /// Returns how much longer the lock is held if no further answer of the server comes. Zero once it is lost, and
    /// while the connection of a session is being replaced.
    ///
    /// By this machine's monotonic clock, counted from when the last successful renewal was *sent*, so it is never more
    /// than what the server has. That clock stands still while the machine is suspended.
    pub fn remaining(&self) -> Duration {
        match self.held.state() {
            State::Until(until) if !self.held.is_unbound() => until.saturating_duration_since(Instant::now()),
            State::Until(_) | State::Lost | State::Released => Duration::ZERO,
        }
    }

    /// Returns whether the lock is certainly held at this moment: whether some time [remains](Guard::remaining).
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Resolves as soon as the lock may be gone: the server said so, its lease would have ended, or the connection of
    /// its session broke and could not be replaced. Resolves when the guard is released or dropped, too.
    ///
    /// The future does not borrow the guard, so it can be raced with the work:
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example(guard: dlock_client::Guard) -> Result<(), dlock_client::Error> {
    /// tokio::select! {
    ///     () = guard.lost() => return Err(dlock_client::Error::Lost),
    ///     () = work() => {}
    /// }
    /// guard.release().await
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.held.state.subscribe();
        // The future must not keep the connection open.
        let session = self.held.hold.session.as_ref().map(Arc::downgrade);
        let binding = self.held.hold.binding.as_ref().map(Binding::downgrade);
        async move {
            while let State::Until(until) = { *state.borrow_and_update() } {
                let closed =
                    session.as_ref().and_then(Weak::upgrade).and_then(|session| Some(session.bound()?.closed()));
                let until = binding.as_ref().map_or(until, WeakBinding::until);
                let changed = state.changed();
                // The keeper reports the loss. If its runtime has ended, the timeout does.
                let heard = match closed {
                    Some(closed) => tokio::select! {
                        changed = changed => changed.is_ok(),
                        () = closed => true,
                    },
                    None => match timeout_at(until.into(), changed).await {
                        Ok(changed) => changed.is_ok(),
                        // A heartbeat may have extended it.
                        Err(_) => binding.as_ref().is_some_and(|binding| binding.until() > Instant::now()),
                    },
                };
                if !heard {
                    return;
                }
            }
        }
    }

    /// Renews the lease now and says whether the lock is held. Call it just before a step that cannot be undone. One
    /// round trip. The lease of a session is only read, because the server renews it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], or [`Error::Unreachable`] if there was no answer: the lock may still be held, see
    /// [`remaining`](Guard::remaining).
    pub async fn renew(&self) -> Result<(), Error> {
        if self.held.state() == State::Lost {
            return Err(Error::Lost);
        }
        match self.held.renew().await {
            // An answer that arrives after the end of the lease does not revive the hold.
            Renewal::Executed | Renewal::Capped | Renewal::Until(_) | Renewal::Left(_) => match self.held.state() {
                State::Until(_) => Ok(()),
                State::Lost | State::Released => Err(Error::Lost),
            },
            Renewal::Gone => Err(Error::Lost),
            Renewal::Failed(fault) => Err(fault.into()),
        }
    }

    /// Renews now, with this lease from now on; 3 ms to 365 days.
    ///
    /// # Errors
    ///
    /// Returns those of [`renew`](Guard::renew). Without an answer, the server may set the new lease now, later or
    /// never, so the guard counts on the shorter one from then on. [`Error::Invalid`] for a session or a quorum, whose
    /// lease is fixed.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let Hold { session, binding, kept, .. } = &self.held.hold;
        if session.is_some() || binding.is_some() || kept.is_some() {
            return Err(Error::Invalid("the lease of a session or of a quorum is fixed".to_owned()));
        }
        let lease = certain_lease(lease)?;
        self.held.kept().heartbeat.wanted = lease;
        self.renew().await
    }

    /// Releases the lock. The server grants it to the next in the queue before this returns, unless it [stays at
    /// least](crate::Acquire::at_least) some time longer. With [other guards](Guard::enter) of the same hold, only the
    /// last one releases it.
    ///
    /// Sent again if the connection breaks, for up to 5 s but not beyond the lease. If this future is dropped, or
    /// fails, the release goes on in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lock was not held any more, so another owner may have had it meanwhile.
    /// [`Error::Unreachable`]: no answer; the lock is freed by the lease at the latest.
    pub async fn release(mut self) -> Result<(), Error> {
        let last = self.leave();
        if last {
            self.held.stop();
        }
        let State::Until(until) = self.held.state() else { return Err(Error::Lost) };
        if !last {
            return Ok(());
        }
        let end_of_tries = until.min(Instant::now() + RELEASE);
        if let Some(end) = self.held.stays_until() {
            let outcome = self.held.backend.stay(&self.held.hold, end, end_of_tries).await;
            self.released = !matches!(outcome, Err(Error::Unreachable(_)));
            return outcome;
        }
        let was_held = !self.held.is_unbound();
        self.held.leave_session();
        let outcome = self.held.backend.release(&self.held.hold, was_held, end_of_tries).await;
        self.released = !matches!(outcome, Err(Error::Unreachable(_))) || self.held.hold.binding.is_some();
        self.held.released(&outcome);
        outcome
    }

    /// Ends the guard, but the server holds the lock for this time from now, and nothing renews it. Replaces the time
    /// of [`at_least`](crate::Acquire::at_least); zero releases the lock at once.
    ///
    /// A renewal that got no answer may still be executed, and would shorten that time: this method then first waits
    /// for a second, or for half of the lease that is left if that is less.
    ///
    /// # Errors
    ///
    /// Returns those of [`release`](Guard::release): without an answer, the lock may end earlier, with the lease that
    /// it had. [`Error::Refused`] if `dlock.max-lease` is shorter. [`Error::Invalid`] if the lock belongs to a session
    /// or a quorum; it is then released at once.
    pub async fn release_after(self, time: Duration) -> Result<(), Error> {
        let Hold { session, binding, kept, .. } = &self.held.hold;
        if kept.is_some() {
            return Err(no_stay());
        }
        if session.is_some() || binding.is_some() {
            return Err(Error::Invalid("a lock does not outlive its session".to_owned()));
        }
        let end = if time.is_zero() { None } else { Some(Instant::now() + whole_millis(time)?) };
        *self.held.stays_until.lock().unwrap_or_else(PoisonError::into_inner) = end;
        if end.is_some() && self.held.entries.load(Ordering::Acquire) == 1 {
            self.held.stop();
            self.held.outlast_renewals().await;
        }
        self.release().await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.leave() {
            return;
        }
        self.held.stop();
        self.held.leave_session();
        self.held.hold.upgrade.iter().for_each(|upgrade| upgrade.give_up());
        let last = self.held.state();
        self.held.change(|validity, _| validity.release());
        let end = Instant::now() + cleanup::LIMIT * 4 / 5;
        if self.released {
            if self.held.late.is_some() {
                self.held.backend.cleanups().spawn(&self.held.runtime, self.held.release_late(end));
            }
            return;
        }
        // Sends the release once, even if the lock is lost: the server then finds nothing.
        let until = match last {
            State::Until(_) if self.held.hold.binding.is_some() => Instant::now() + cleanup::LIMIT,
            State::Until(until) => until,
            State::Lost | State::Released => Instant::now() + ONCE,
        };
        let held = self.held.clone();
        self.held.backend.cleanups().spawn(&self.held.runtime, async move {
            let until = until.min(end);
            if let Some(stays_until) = held.stays_until() {
                // Without an answer, the lock lapses with its present lease.
                _ = held.backend.stay(&held.hold, stays_until, until).await;
            } else {
                held.released(&held.backend.release(&held.hold, true, until).await);
            }
            let late = held.release_late(end);
            drop(held);
            late.await;
        });
    }
}

/// How long the release of a lock that may be lost is tried.
const ONCE: Duration = Duration::from_secs(1);

/// How long a release is tried in the foreground.
const RELEASE: Duration = Duration::from_secs(5);
