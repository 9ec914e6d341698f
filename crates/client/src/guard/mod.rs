//! A lock that is held, and the task that keeps it.

mod keeper;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

use crate::backend::{Backend, no_stay};
use crate::cleanup;
use crate::error::Error;
use crate::heartbeat::{Duty, Heartbeat, patience};
use crate::named::{Binding, WeakBinding};
use crate::options::{Grant, Hold, Mode, Renewal, Terms, up_to_millis, whole_millis};
use crate::server::{Fault, Link, Server};
use crate::session::Session;
use crate::validity::{Command, State, Validity};

/// A lock that is held, until it is released, dropped or lost: one lock, permits of a semaphore, or several locks that
/// were acquired together.
///
/// Several locks are renewed and released together, and the guard is lost as soon as one of them is. The others then
/// stay held until the guard is dropped or released, or until their lease ends.
///
/// A task of the tokio runtime that acquired it renews the lease when a third of it has passed, so the runtime must run
/// for as long as the guard lives. Dropping the guard releases the lock in the background; if the runtime ends first,
/// the lease does it.
///
/// A guard cannot stop work that goes on after the lock was [`lost`](Guard::lost). Give the [`token`](Guard::token) to
/// whatever the lock protects, and let that refuse lower ones.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    held: Arc<Held>,
    /// Whether it was the last guard of its hold, as soon as it has left.
    last: Option<bool>,
    released: bool,
}

struct Held {
    backend: Backend,
    hold: Hold,
    state: watch::Sender<State>,
    kept: Mutex<Kept>,
    /// Until when it stays at least, even if it is released earlier.
    stays_until: Mutex<Option<Instant>>,
    /// Something else is due, or earlier.
    hurry: Notify,
    /// The guards that have not left.
    entries: AtomicUsize,
    runtime: Handle,
    keeper: OnceLock<AbortHandle>,
}

/// What is known of a hold, and when it is to be renewed.
struct Kept {
    validity: Validity,
    heartbeat: Heartbeat,
}

impl Guard {
    /// Begins to keep what was granted. Must run inside a tokio runtime.
    pub(crate) fn new(backend: Backend, terms: Terms, grant: Grant) -> Self {
        let Grant { token, owner, slot, until, is_renewal_open, session, ticket, kept } = grant;
        let owner = owner.or_else(|| kept.as_ref().map(|kept| kept.owner())).unwrap_or_else(|| terms.owner.clone());
        let mut hold = Hold::granted(&terms, owner, (token, slot), session, kept);
        if let (Some(session), Some(ticket)) = (&terms.named, ticket) {
            hold.binding = Some(session.join(&hold, ticket, until));
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
        // The grant came before now.
        let stays_until = Mutex::new(terms.at_least.map(|time| Instant::now() + time));
        let hurry = Notify::new();
        let held = Arc::new(Held { backend, hold, state, kept, stays_until, hurry, entries, runtime, keeper });
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

    pub(crate) fn lease(&self) -> Duration {
        self.held.kept().heartbeat.wanted
    }

    pub(crate) fn entries(&self) -> &AtomicUsize {
        &self.held.entries
    }

    /// Leaves. True: no other guard of the hold is left.
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

    /// Returns how much longer the lock is held if no further answer of the server comes. Zero once it is lost.
    ///
    /// By this machine's monotonic clock, counted from when the last successful renewal was *sent*, so it is never more
    /// than what the server has. That clock stands still while the machine is suspended.
    pub fn remaining(&self) -> Duration {
        match self.held.state() {
            State::Until(until) => until.saturating_duration_since(Instant::now()),
            State::Lost | State::Released => Duration::ZERO,
        }
    }

    /// Returns whether the lock is held for certain at this moment: whether some time [remains](Guard::remaining).
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Resolves as soon as the lock may be gone: the server said so, or its lease would have ended, of a session whose
    /// connection broke and could not be replaced. Also once the guard is released or dropped.
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
                // The keeper says when it is over. Should its runtime be gone, time does.
                let heard = match closed {
                    Some(closed) => tokio::select! {
                        changed = changed => changed.is_ok(),
                        () = closed => true,
                    },
                    None => match timeout_at(until.into(), changed).await {
                        Ok(changed) => changed.is_ok(),
                        // A heartbeat may have prolonged it.
                        Err(_) => binding.as_ref().is_some_and(|binding| binding.until() > Instant::now()),
                    },
                };
                if !heard {
                    return;
                }
            }
        }
    }

    /// Renews the lease now and says whether the lock is held: for just before something that cannot be undone. One
    /// round trip. A session is only looked at, the server renews it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], or [`Error::Unreachable`] if there was no answer: it may still be held, see
    /// [`remaining`](Guard::remaining).
    pub async fn renew(&self) -> Result<(), Error> {
        if self.held.state() == State::Lost {
            return Err(Error::Lost);
        }
        match self.held.renew().await {
            // An answer that was read after the end revives nothing.
            Renewal::Executed | Renewal::Capped | Renewal::Until(_) | Renewal::Left(_) => match self.held.state() {
                State::Until(_) => Ok(()),
                State::Lost | State::Released => Err(Error::Lost),
            },
            Renewal::Gone => Err(Error::Lost),
            Renewal::Failed(fault) => Err(fault.into()),
        }
    }

    /// Renews the lease now, and makes it this long from now on; 1 ms to 365 days.
    ///
    /// # Errors
    ///
    /// Those of [`renew`](Guard::renew). Without an answer, the server may set the new lease now, later or never, so the
    /// guard counts on the shorter one from then on. [`Error::Invalid`] for a session or a quorum, whose lease is fixed.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let Hold { session, binding, kept, .. } = &self.held.hold;
        if session.is_some() || binding.is_some() || kept.is_some() {
            return Err(Error::Invalid("the lease of a session or of a quorum is fixed".to_owned()));
        }
        let lease = whole_millis(lease)?;
        self.held.kept().heartbeat.wanted = lease;
        self.renew().await
    }

    /// Releases the lock. The server grants it to the next in the queue before this returns, unless it [stays at
    /// least](crate::Acquire::at_least) some time longer. With [other guards](Guard::enter) of the same hold, the last
    /// one does that.
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
        let patience = until.min(Instant::now() + RELEASE);
        if let Some(end) = self.held.stays_until() {
            let outcome = self.held.backend.stay(&self.held.hold, end, patience).await;
            self.released = !matches!(outcome, Err(Error::Unreachable(_)));
            return outcome;
        }
        self.held.leave_session();
        let outcome = self.held.backend.release(&self.held.hold, patience).await;
        self.released = !matches!(outcome, Err(Error::Unreachable(_))) || self.held.hold.binding.is_some();
        if !matches!(outcome, Ok(()) | Err(Error::Lost)) {
            self.held.release_later();
        }
        if self.released {
            self.held.hold.upgrade.iter().for_each(|upgrade| upgrade.end());
        }
        outcome
    }

    /// Gives the lock up, but leaves it to a lease that ends so long from now, and that nothing renews. Takes the place
    /// of [`at_least`](crate::Acquire::at_least); zero releases the lock at once.
    ///
    /// # Errors
    ///
    /// Those of [`release`](Guard::release): without an answer, the lock may end earlier, with the lease that it had.
    /// [`Error::Refused`] if `dlock.max-lease` is shorter. [`Error::Invalid`] if the lock is one of a session or of a
    /// quorum, and is released.
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
        if self.released {
            return;
        }
        // Once even if it may be lost: then this finds nothing.
        let until = match last {
            State::Until(_) if self.held.hold.binding.is_some() => Instant::now() + cleanup::LIMIT,
            State::Until(until) => until,
            State::Lost | State::Released => Instant::now() + ONCE,
        };
        let held = self.held.clone();
        self.held.backend.cleanups().spawn(&self.held.runtime, async move {
            let until = until.min(Instant::now() + cleanup::LIMIT * 4 / 5);
            if let Some(end) = held.stays_until() {
                // Without an answer, it stays a lease longer at most.
                _ = held.backend.stay(&held.hold, end, until).await;
                return;
            }
            if !matches!(held.backend.release(&held.hold, until).await, Ok(()) | Err(Error::Lost)) {
                held.release_later();
            }
        });
    }
}

impl Held {
    /// Ends the task that keeps it.
    fn stop(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.abort();
        }
    }

    /// Tells its named session that it is about to be released.
    fn leave_session(&self) {
        self.hold.binding.iter().for_each(Binding::leave);
    }

    /// Has its named session release it, which would keep the hold.
    fn release_later(&self) {
        self.hold.binding.iter().for_each(|binding| binding.owe(Server::releases(&self.hold)));
    }

    /// Returns the state at this moment, even if the keeper has not recorded it yet.
    fn state(&self) -> State {
        match (*self.state.borrow(), &self.hold.binding) {
            (State::Until(_), Some(binding)) => match binding.until() {
                until if until <= Instant::now() => State::Lost,
                until => State::Until(until),
            },
            (state, _) => self.state_of(state),
        }
    }

    fn state_of(&self, state: State) -> State {
        match state {
            State::Until(until) if self.bound().is_none() && until <= Instant::now() => State::Lost,
            state => state,
        }
    }

    /// Returns the connection of a session, while it is open: then the server keeps the hold alive.
    fn bound(&self) -> Option<Link> {
        self.hold.session.as_ref()?.bound()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known at this moment, and tells whoever waits for it.
    fn change<R>(&self, change: impl FnOnce(&mut Validity, Instant) -> R) -> R {
        self.update(|kept, now| change(&mut kept.validity, now))
    }

    fn update<R>(&self, update: impl FnOnce(&mut Kept, Instant) -> R) -> R {
        let mut kept = self.kept();
        let now = Instant::now();
        // While the connection of a session is open, the server renews.
        let is_bound = self.bound().is_some() || self.hold.binding.is_some();
        if !is_bound {
            kept.validity.lapse(now);
        }
        let duty = kept.heartbeat.duty();
        let output = update(&mut kept, now);
        if !is_bound {
            kept.validity.lapse(now);
        }
        let (state, is_other_duty) = (kept.validity.state(), kept.heartbeat.duty() != duty);
        self.state.send_if_modified(|known| std::mem::replace(known, state) != state);
        drop(kept);
        if is_other_duty {
            self.hurry.notify_one();
        }
        output
    }

    fn duty(&self) -> Duty {
        self.kept().heartbeat.duty()
    }

    /// Returns whether it is neither lost nor released.
    fn is_kept(&self) -> bool {
        self.change(|validity, _| matches!(validity.state(), State::Until(_)))
    }

    /// Notes a command with this lease that is about to be sent.
    fn sends(&self, lease: Duration) -> Command {
        self.update(|Kept { validity, heartbeat }, now| {
            let command = validity.sends(now, lease);
            heartbeat.sends(now, validity);
            command
        })
    }

    /// A renewal got no answer.
    fn failed(&self) {
        self.update(|Kept { validity, heartbeat }, now| heartbeat.failed(now, validity));
    }

    /// Notes what became of a command.
    fn answered(&self, command: Command, renewal: &Renewal) {
        self.update(|Kept { validity, heartbeat }, now| {
            let sent = command.sent;
            match renewal {
                Renewal::Executed => validity.ok(command),
                Renewal::Until(until) => validity.ok_at_most(command, Some(*until)),
                Renewal::Capped => {
                    validity.refused(command);
                    return heartbeat.capped();
                }
                Renewal::Gone => validity.gone(),
                Renewal::Left(_) | Renewal::Failed(Fault::OutcomeUnknown(_)) => {}
                Renewal::Failed(Fault::TooFewReplicas { .. }) => validity.refused(command),
                // Of several locks, some may be renewed.
                Renewal::Failed(_) if self.hold.names.len() > 1 => {}
                Renewal::Failed(_) => validity.refused(command),
            }
            match renewal {
                Renewal::Failed(_) => heartbeat.failed(now, validity),
                _ => heartbeat.ok(now, sent, validity),
            }
        });
    }

    /// Returns until when it has to stay after its release, if that is in the future.
    fn stays_until(&self) -> Option<Instant> {
        let end = *self.stays_until.lock().unwrap_or_else(PoisonError::into_inner);
        end.filter(|end| *end > Instant::now())
    }

    /// Returns until when it is held, as far as this process knows.
    fn until(&self) -> Instant {
        match self.hold.binding.as_ref().map(|_| self.state()).unwrap_or(*self.state.borrow()) {
            State::Until(until) => until,
            State::Lost | State::Released => Instant::now(),
        }
    }

    async fn renew(&self) -> Renewal {
        // The server renews the hold of a session.
        if self.hold.session.is_some() && self.hold.replicas.is_none() {
            return self.look().await;
        }
        // A renewal must not shorten the time that it stays at least.
        let rest = self.stays_until().map(|end| up_to_millis(end.saturating_duration_since(Instant::now())));
        let lease = self.kept().heartbeat.wanted.max(rest.unwrap_or_default());
        let command = self.sends(lease);
        let renewal = self.in_time(Box::pin(self.backend.renew(&self.hold, lease, self.patience()))).await;
        self.answered(command, &renewal);
        if matches!(renewal, Renewal::Capped) { self.look().await } else { renewal }
    }

    /// Asks the server how long it lasts.
    async fn look(&self) -> Renewal {
        let sent = Instant::now();
        let question = self.kept().validity.asks(sent);
        let renewal = self.in_time(Box::pin(self.backend.look(&self.hold, self.patience()))).await;
        self.update(|Kept { validity, heartbeat }, now| match &renewal {
            Renewal::Left(left) => {
                validity.looked(question, *left);
                match self.hold.session {
                    Some(_) => heartbeat.ok(now, sent, validity),
                    None => heartbeat.looked(now, validity),
                }
            }
            Renewal::Gone => validity.gone(),
            _ => heartbeat.failed(now, validity),
        });
        renewal
    }

    /// Returns how long one answer may take.
    fn patience(&self) -> Duration {
        patience(self.kept().validity.sure())
    }

    /// Waits for an answer, but not beyond the end. The future has no type: they would nest too deep for the compiler.
    async fn in_time(&self, asking: Pin<Box<dyn Future<Output = Renewal> + Send + '_>>) -> Renewal {
        // The server renews: however late this is asked, it is the connection that counts.
        if self.bound().is_some() {
            return asking.await;
        }
        let in_time = timeout_at(self.until().into(), asking).await;
        in_time.unwrap_or_else(|_| Renewal::Failed(Fault::OutcomeUnknown("no answer before the lease ended".into())))
    }

    /// Binds the hold of a session to a new connection.
    async fn bind(&self, session: &Session) -> Renewal {
        let command = self.sends(self.hold.lease);
        let binding = timeout_at(self.until().into(), Box::pin(self.backend.bind(&self.hold, session))).await;
        let renewal = binding.unwrap_or(Renewal::Gone);
        self.answered(command, &renewal);
        if matches!(renewal, Renewal::Capped) { self.look().await } else { renewal }
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Hold { names, owner, token, .. } = &self.hold;
        let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
        f.debug_struct("Held").field("names", &names).field("owner", owner).field("token", token).finish()
    }
}

/// How long a release is tried of what may be lost.
const ONCE: Duration = Duration::from_secs(1);

/// How long a release is tried in the foreground.
const RELEASE: Duration = Duration::from_secs(5);
