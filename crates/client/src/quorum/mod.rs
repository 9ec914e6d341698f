//! Locks that a majority of independent servers decides on.
//!
//! `dlock-quorum` decides what is sent when, and what the answers mean. This module has the connections, the clock, the
//! randomness and the errors.

mod builder;
mod clocks;
mod contended;
mod dispatch;
mod flights;
mod kept;
mod lookout;
mod member;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dlock_quorum::{Acquisition, Answer, Ask, Call, Hold, Outcome, Patience, Start};
use tokio::time::{sleep, timeout_at};

use crate::cleanup::Cleanups;
use crate::error::Error;
use crate::limits::Limits;
use crate::options::{Grant, Keep, Mode, Terms, Wait};
use crate::server::Fault;
pub use builder::QuorumBuilder;
use clocks::ServerClocks;
use contended::Contended;
use dispatch::Dispatch;
use flights::{Flights, Next};
pub(crate) use kept::Kept;
use lookout::{LastAnswers, Lookout};
use member::{Member, Wire};

pub(crate) struct Quorum {
    members: Vec<Member>,
    longest_lease: Duration,
    timeout: Duration,
    /// The instant from which the protocol counts its times.
    began: Instant,
    clocks: Arc<ServerClocks>,
    contended: Contended,
    /// The servers that did not answer when last asked.
    silent: Mutex<Vec<bool>>,
    answers: LastAnswers,
    pub cleanups: Cleanups,
}

impl Quorum {
    pub async fn acquire(self: Arc<Self>, terms: &Terms) -> Result<Grant, Error> {
        if matches!(terms.keep, Keep::Session | Keep::Named) {
            return Err(Error::Invalid("a quorum keeps locks by renewing them, not by sessions".to_owned()));
        }
        if terms.max_hold.is_some() {
            return Err(Error::Invalid("a quorum does not limit how long a lock is held".to_owned()));
        }
        if terms.replicas.is_some() {
            return Err(Error::Invalid("the servers of a quorum have no replicas".to_owned()));
        }
        if matches!(terms.mode, Mode::Permits { .. } | Mode::Together) {
            let why = "a quorum has single locks only, neither semaphores nor several locks at once";
            return Err(Error::Invalid(why.to_owned()));
        }
        let protocol = dlock_quorum::Terms::new(self.members(), terms.lease, self.timeout, self.longest_lease);
        let protocol = protocol.map_err(|bad| Error::Invalid(bad.to_string()))?;
        let protocol = if terms.keep == Keep::Nobody { protocol.without_renewal() } else { protocol };
        self.keep_time();
        let (mut terms, mut pause) = (Arc::new(terms.clone()), PAUSE);
        let mut watch = Lookout::new(self.clone(), Limits::new(&terms, Instant::now()));
        loop {
            let mut attempt = Attempt::begin(self.clone(), protocol, &terms);
            let outcome = tokio::select! {
                biased;
                outcome = attempt.go(terms.name()) => outcome,
                outcome = watch.look() => outcome,
            };
            if !matches!(outcome, Outcome::Held(_)) {
                let _ = timeout_at(watch.end().into(), attempt.settle()).await;
            }
            let left = watch.left();
            match outcome {
                Outcome::Held(hold) => return Ok(attempt.arrive(hold)),
                Outcome::Contended if watch.is_there(&attempt) => return Err(Error::Contention),
                // An outage counts as waiting.
                Outcome::TooFew(_) | Outcome::Contended if !left.is_zero() => sleep(pause.min(left)).await,
                Outcome::TooFew(_) | Outcome::Contended => {
                    return Err(Error::TooFew(self.too_few(watch.answered.unwrap_or_else(|| attempt.answered()))));
                }
            }
            pause = (pause * 2).min(MAX_PAUSE);
            // A call of the last round may arrive late, and must not touch the holds of this one.
            let terms = Arc::make_mut(&mut terms);
            terms.begin();
            if let Wait::AtMost(_) = terms.wait {
                terms.wait = Wait::AtMost(watch.left());
            }
        }
    }

    /// Returns the error text for a minority of answers.
    fn too_few(&self, answered: usize) -> String {
        let (members, majority) = (self.members(), self.majority());
        let young: Vec<_> = self.members.iter().filter_map(Member::counts_in).collect();
        let soon = ready_in(answered, majority, young)
            .map_or_else(String::new, |time| format!("; a majority counts in {:.1} s", time.as_secs_f64()));
        format!("{answered} of {members}, a majority is {majority}: {}{soon}", self.troubles())
    }

    fn members(&self) -> usize {
        self.members.len()
    }

    fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the time after which no call waits for an answer any more.
    fn give_up(&self) -> Duration {
        (self.timeout * 4).max(Duration::from_secs(1))
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn at(&self, time: Duration) -> Instant {
        self.began + time
    }

    fn member(&self, at: usize) -> Result<&Member, Fault> {
        self.members.get(at).ok_or_else(|| Fault::NotSent("no such server".into()))
    }

    /// Checks that the server at the other end of this connection may count.
    fn count(&self, at: usize, wire: &Wire) -> Result<(), Fault> {
        self.member(at)?.count(wire)?;
        self.is_no_twin(at)
    }

    /// Returns whether it will count, but is too young.
    fn is_young(&self, at: usize, wire: &Wire) -> Result<bool, Fault> {
        let is_young = self.member(at)?.is_young(wire)?;
        self.is_no_twin(at)?;
        Ok(is_young)
    }

    fn is_no_twin(&self, at: usize) -> Result<(), Fault> {
        let member = self.member(at)?;
        match self.members.iter().take(at).find(|other| other.is_same_process(member)) {
            Some(twin) => Err(member.is_twin_of(&twin.address())),
            None => Ok(()),
        }
    }

    /// Takes note of who answers.
    fn note(&self, call: &Call, answer: Answer) {
        if let Some(silent) = self.silent().get_mut(call.to) {
            *silent = answer == Answer::Failed;
        }
    }

    /// Says what is wrong with the servers that do not count.
    fn troubles(&self) -> String {
        let trouble = |member: &Member| {
            let (address, why) = (member.address(), member.trouble()?);
            // A failed connection names the address by itself.
            Some(if why.starts_with(&address) { why } else { format!("{address} {why}") })
        };
        let troubles: Vec<String> = self.members.iter().filter_map(trouble).collect();
        if troubles.is_empty() { "no answer in time".to_owned() } else { troubles.join("; ") }
    }

    fn silent(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns when enough servers count, if it is only the young ones that are waited for.
fn ready_in(answered: usize, majority: usize, mut young: Vec<Duration>) -> Option<Duration> {
    young.sort();
    young.get(majority.checked_sub(answered + 1)?).copied()
}

/// An acquisition under way. Dropped halfway, it gives everything back.
struct Attempt {
    quorum: Arc<Quorum>,
    dispatch: Dispatch,
    acquisition: Acquisition,
    calls: Vec<Call>,
    flights: Flights,
    /// Releases that have been sent and not answered.
    releases: usize,
    /// Whether each server has answered the last attempt, if it was asked to enter.
    entries: Vec<Entry>,
    has_ended: bool,
}

/// The state of the request to enter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Unasked,
    Open,
    Failed,
    Answered,
}

impl Attempt {
    fn begin(quorum: Arc<Quorum>, protocol: dlock_quorum::Terms, terms: &Arc<Terms>) -> Self {
        let now = quorum.now();
        let patience = match terms.wait {
            Wait::Not => Patience::None,
            Wait::AtMost(wait) => Patience::Until(now.saturating_add(wait.min(LONGEST_WAIT))),
            Wait::ForEver => Patience::Endless,
        };
        let silent =
            quorum.silent().iter().enumerate().filter(|(_, silent)| **silent).map(|(at, _)| at).collect::<Vec<_>>();
        let mut calls = Vec::new();
        let start = Start {
            suspects: &silent,
            contended: quorum.contended.was_held(terms.name()),
            floor: quorum.clocks.floor(),
            seed: rand::random(),
        };
        let acquisition = Acquisition::begin(protocol, patience, start, now, &mut calls);
        let dispatch = Dispatch::new(quorum.clone(), terms.clone());
        let entries = vec![Entry::Unasked; quorum.members()];
        let flights = Flights::new(quorum.clone());
        Self { quorum, dispatch, acquisition, calls, flights, releases: 0, entries, has_ended: false }
    }

    async fn go(&mut self, name: &[u8]) -> Outcome {
        let began = Instant::now();
        loop {
            self.send();
            if let Some(outcome) = self.acquisition.outcome() {
                self.has_ended = true;
                self.remember_the_silent();
                if self.acquisition.was_refused() || began.elapsed() > self.quorum.timeout() / 2 {
                    self.quorum.contended.note(name);
                }
                return outcome;
            }
            let next = self.acquisition.next_timeout().map(|at| self.quorum.at(at));
            match self.next_answer(next).await {
                Some((call, answer)) => {
                    if began.elapsed() > STALE {
                        self.acquisition.set_floor(self.quorum.clocks.floor());
                    }
                    self.acquisition.answer(self.quorum.now(), &call, answer, &mut self.calls);
                }
                None => self.acquisition.handle_timeout(self.quorum.now(), &mut self.calls),
            }
        }
    }

    /// Waits a moment for what was granted to be released, because the process may end after this, and for the answers
    /// that are still open, so that the error does not depend on which of them came first.
    async fn settle(&mut self) {
        let end = Instant::now() + self.quorum.timeout() / 2;
        while (self.releases > 0 || self.entries.contains(&Entry::Open)) && self.next_answer(Some(end)).await.is_some()
        {
        }
    }

    /// Returns how many servers answered the last attempt.
    fn answered(&self) -> usize {
        // A server that was not asked to enter has answered in its queue.
        self.entries.iter().filter(|entry| !matches!(entry, Entry::Failed | Entry::Open)).count()
    }

    async fn next_answer(&mut self, until: Option<Instant>) -> Option<(Call, Answer)> {
        let Next::Answer(call, answer) = self.flights.next(until).await else { return None };
        if let Ask::Enter(_) = call.ask
            && let Some(entry) = self.entries.get_mut(call.to)
        {
            *entry = if answer == Answer::Failed { Entry::Failed } else { Entry::Answered };
        }
        self.releases = self.releases.saturating_sub(usize::from(call.ask == Ask::Release));
        Some((call, answer))
    }

    fn arrive(mut self, hold: Hold) -> Grant {
        let (token, until) = (hold.token(), self.quorum.at(hold.valid_until()));
        let kept = Kept::new(self.quorum.clone(), self.dispatch.take(), hold, self.flights.take());
        Grant {
            token,
            owner: None,
            slot: None,
            until,
            is_renewal_open: false,
            session: None,
            ticket: None,
            kept: Some(kept),
        }
    }

    fn send(&mut self) {
        for call in &self.calls {
            match call.ask {
                Ask::Enter(_) => self.entries.get_mut(call.to).into_iter().for_each(|entry| *entry = Entry::Open),
                Ask::Release => self.releases += 1,
                _ => {}
            }
        }
        self.dispatch.send(self.calls.drain(..), &mut self.flights);
    }

    fn remember_the_silent(&self) {
        let mut silent = self.quorum.silent();
        silent.fill(false);
        for member in self.acquisition.suspects() {
            silent.get_mut(member).into_iter().for_each(|silent| *silent = true);
        }
    }
}

/// Between two rounds while too few servers answer, at first and at most.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// After that the clocks may have been read again.
const STALE: Duration = Duration::from_secs(1);

/// No clock overflows by a longer wait.
const LONGEST_WAIT: Duration = Duration::from_secs(100 * 365 * 86400);

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.has_ended {
            self.acquisition.abandon(self.quorum.now(), &mut self.calls);
            self.send();
        }
    }
}
