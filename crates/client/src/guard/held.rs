//! A hold and what is known of it, shared by its guards and the keeper: the task that renews it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, sleep_until, timeout_at};

use crate::backend::Backend;
use crate::error::Error;
use crate::heartbeat::{Duty, Heartbeat, answer_within};
use crate::holding::Hold;
use crate::named::Binding;
use crate::options::{Terms, up_to_millis};
use crate::renewal::Renewal;
use crate::server::fault::Fault;
use crate::server::link::Link;
use crate::server::{LATEST, Server};
use crate::session::Session;
use crate::validity::{Command, State, Validity};

/// A hold and what is known of it.
pub(super) struct Held {
    pub(super) backend: Backend,
    pub(super) hold: Hold,
    /// The state that waiting tasks were told last.
    pub(super) state: watch::Sender<State>,
    pub(super) kept: Mutex<Kept>,
    /// The time until which the server keeps the lock, even if the lock is released earlier.
    pub(super) stays_until: Mutex<Option<Instant>>,
    /// Wakes the keeper when its duty has changed.
    pub(super) hurry: Notify,
    /// The number of guards that are not dropped or released yet.
    pub(super) entries: AtomicUsize,
    pub(super) runtime: Handle,
    /// The terms of the request, if a copy of it may be executed after the release. The owner's next upgrade waits while
    /// their `upgrade` lives.
    pub(super) late: Option<Terms>,
    /// Ends the keeper.
    pub(super) keeper: OnceLock<AbortHandle>,
}

/// Until when a hold is certain, and when it is renewed next.
pub(super) struct Kept {
    pub(super) validity: Validity,
    pub(super) heartbeat: Heartbeat,
}

impl Held {
    /// Ends the keeper.
    pub(super) fn stop(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.abort();
        }
    }

    /// Waits until no renewal that got no answer can be executed any more, or half of the lease has passed: it would
    /// shorten the time that the lock stays. Call it after [`stop`](Self::stop).
    pub(super) async fn outlast_renewals(&self) {
        if self.kept().validity.is_open() {
            let left = self.until().saturating_duration_since(Instant::now());
            sleep(LATEST.min(left / 2)).await;
        }
    }

    /// Takes the hold out of its named session, before a release.
    pub(super) fn leave_session(&self) {
        self.hold.binding.iter().for_each(Binding::leave);
    }

    /// Records the outcome of the release. Hands one that failed to the named session, which would otherwise keep the
    /// hold.
    pub(super) fn released(&self, outcome: &Result<(), Error>) {
        match outcome {
            Ok(()) | Err(Error::Lost) if self.late.is_some() => {}
            Ok(()) | Err(Error::Lost) => self.hold.upgrade.iter().for_each(|upgrade| upgrade.end()),
            Err(_) => self.hold.binding.iter().for_each(|binding| binding.owe(Server::releases(&self.hold))),
        }
    }

    /// Releases until `until` what a copy of the request takes that is executed after the release, or after the time that
    /// the lock stays. The future does not keep the connection of a session open, whose end frees the lock if the release
    /// has failed.
    pub(super) fn release_late(&self, until: Instant) -> impl Future<Output = ()> + Send + use<> {
        let stays_until = self.stays_until().unwrap_or_else(Instant::now);
        let late = self.late.clone().filter(|_| stays_until < until).zip(self.backend.server().ok().cloned());
        async move {
            if let Some((terms, server)) = late {
                sleep_until(stays_until.into()).await;
                server.release_late(&terms, until).await;
            }
        }
    }

    /// Returns the state at this moment, even if the keeper has not recorded it yet.
    pub(super) fn state(&self) -> State {
        match (*self.state.borrow(), &self.hold.binding) {
            (State::Until(_), Some(binding)) => match binding.until() {
                until if until <= Instant::now() => State::Lost,
                until => State::Until(until),
            },
            (state, _) => self.state_of(state),
        }
    }

    /// Returns this state, but `Lost` if the lease has ended since.
    pub(super) fn state_of(&self, state: State) -> State {
        match state {
            State::Until(until) if self.bound().is_none() && until <= Instant::now() => State::Lost,
            state => state,
        }
    }

    /// Returns the connection of a session while it is open: the server then renews the hold.
    pub(super) fn bound(&self) -> Option<Link> {
        self.hold.session.as_ref()?.bound()
    }

    /// Returns whether the session of the hold has lost its connection and is not bound to another one yet. The server
    /// may have released the hold.
    pub(super) fn is_unbound(&self) -> bool {
        self.hold.session.is_some() && self.bound().is_none()
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known at this moment, and wakes the tasks that wait for a change.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Validity, Instant) -> R) -> R {
        self.update(|kept, now| change(&mut kept.validity, now))
    }

    /// Changes what is known and when the next renewal is due, and wakes those whom the change concerns.
    pub(super) fn update<R>(&self, update: impl FnOnce(&mut Kept, Instant) -> R) -> R {
        let mut kept = self.kept();
        let now = Instant::now();
        // The server renews the hold of a session whose connection is open, and that of a named session.
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

    pub(super) fn duty(&self) -> Duty {
        self.kept().heartbeat.duty()
    }

    /// Returns whether the hold is neither lost nor released.
    pub(super) fn is_kept(&self) -> bool {
        self.change(|validity, _| matches!(validity.state(), State::Until(_)))
    }

    /// Records that a command with this lease is about to be sent.
    pub(super) fn sends(&self, lease: Duration) -> Command {
        self.update(|Kept { validity, heartbeat }, now| {
            let command = validity.sends(now, lease);
            heartbeat.sends(now, validity);
            command
        })
    }

    /// Records that a renewal got no answer.
    pub(super) fn failed(&self) {
        self.update(|Kept { validity, heartbeat }, now| heartbeat.failed(now, validity));
    }

    /// Records the result of a command.
    pub(super) fn answered(&self, command: Command, renewal: &Renewal) {
        self.update(|Kept { validity, heartbeat }, now| {
            let sent = command.sent;
            match renewal {
                Renewal::Executed => validity.ok(command),
                Renewal::Until(until) => validity.ok_at_most(command, Some(*until)),
                Renewal::Capped => {
                    validity.refused(command);
                    // The keeper watches the connection of a session until the cap ends the hold.
                    if self.hold.session.is_none() {
                        return heartbeat.capped();
                    }
                }
                Renewal::Gone => validity.gone(),
                Renewal::Left(_) | Renewal::Failed(Fault::OutcomeUnknown(_)) => {}
                Renewal::Failed(Fault::TooFewReplicas { .. }) => validity.refused(command),
                // Some of the locks may be renewed nevertheless, so the command stays open.
                Renewal::Failed(_) if self.hold.names.len() > 1 => {}
                Renewal::Failed(_) => validity.refused(command),
            }
            match renewal {
                Renewal::Failed(_) => heartbeat.failed(now, validity),
                _ => heartbeat.ok(now, sent, validity),
            }
        });
    }

    /// Returns until when the server must keep the lock after its release, if that is in the future.
    pub(super) fn stays_until(&self) -> Option<Instant> {
        let end = *self.stays_until.lock().unwrap_or_else(PoisonError::into_inner);
        end.filter(|end| *end > Instant::now())
    }

    /// Returns until when the lock is held, as far as this process knows.
    pub(super) fn until(&self) -> Instant {
        match self.hold.binding.as_ref().map(|_| self.state()).unwrap_or(*self.state.borrow()) {
            State::Until(until) => until,
            State::Lost | State::Released => Instant::now(),
        }
    }

    /// Renews the hold once.
    pub(super) async fn renew(&self) -> Renewal {
        // The server renews the hold of a session. If replicas must acknowledge renewals, the client renews it, too.
        if self.hold.session.is_some() && self.hold.replicas.is_none() {
            return self.look().await;
        }
        // A renewal must not end before `stays_until`.
        let rest = self.stays_until().map(|end| up_to_millis(end.saturating_duration_since(Instant::now())));
        let lease = self.kept().heartbeat.wanted.max(rest.unwrap_or_default());
        let command = self.sends(lease);
        let renewal = self.in_time(Box::pin(self.backend.renew(&self.hold, lease, self.answer_within()))).await;
        self.answered(command, &renewal);
        if matches!(renewal, Renewal::Capped) { self.look().await } else { renewal }
    }

    /// Asks the server how long the hold lasts.
    pub(super) async fn look(&self) -> Renewal {
        let sent = Instant::now();
        let question = self.kept().validity.asks(sent);
        let renewal = self.in_time(Box::pin(self.backend.look(&self.hold, self.answer_within()))).await;
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
    pub(super) fn answer_within(&self) -> Duration {
        answer_within(self.kept().validity.sure())
    }

    /// Waits for an answer, but not beyond the end of the hold. The future is a `dyn`, because concrete types would
    /// nest too deep for the compiler.
    pub(super) async fn in_time(&self, asking: Pin<Box<dyn Future<Output = Renewal> + Send + '_>>) -> Renewal {
        // While the connection is open, the server renews the hold: a late answer loses nothing.
        if self.bound().is_some() {
            return asking.await;
        }
        let in_time = timeout_at(self.until().into(), asking).await;
        in_time.unwrap_or_else(|_| Renewal::Failed(Fault::OutcomeUnknown("no answer before the lease ended".into())))
    }

    /// Binds the hold of a session to a new connection.
    pub(super) async fn bind(&self, session: &Session) -> Renewal {
        let command = self.sends(self.hold.lease);
        let binding = timeout_at(self.until().into(), Box::pin(self.backend.bind(&self.hold, session))).await;
        // Not bound before its end, the hold is lost.
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
