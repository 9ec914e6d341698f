//! A round of an acquisition from a quorum.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock_quorum::{Acquisition, Answer, Ask, Call, Hold, Outcome, Patience, Start};

use super::Quorum;
use super::dispatch::Dispatch;
use super::flights::{Flights, Next};
use super::kept::Kept;
use crate::holding::Grant;
use crate::options::{Terms, Wait};

/// A round of an acquisition. If it is dropped half-way, it releases what was granted.
pub(super) struct Attempt {
    quorum: Arc<Quorum>,
    dispatch: Dispatch,
    pub(super) acquisition: Acquisition,
    calls: Vec<Call>,
    flights: Flights,
    /// Releases that have been sent and not answered.
    releases: usize,
    /// Whether each server has answered the last attempt, if it was asked to enter.
    entries: Vec<Entry>,
    has_ended: bool,
}

/// The state of a server's request to enter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Unasked,
    Open,
    Failed,
    Answered,
}

impl Attempt {
    pub(super) fn begin(quorum: Arc<Quorum>, protocol: dlock_quorum::Terms, terms: &Arc<Terms>) -> Self {
        let now = quorum.now();
        let wait = match terms.wait {
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
        let acquisition = Acquisition::begin(protocol, wait, start, now, &mut calls);
        let dispatch = Dispatch::new(quorum.clone(), terms.clone());
        let entries = vec![Entry::Unasked; quorum.members()];
        let flights = Flights::new(quorum.clone());
        Self { quorum, dispatch, acquisition, calls, flights, releases: 0, entries, has_ended: false }
    }

    pub(super) async fn go(&mut self, name: &[u8]) -> Outcome {
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

    /// Waits a moment for the releases, because the process may end after this, and for the answers that are still
    /// open, so that the error does not depend on which of them came first.
    pub(super) async fn settle(&mut self) {
        let end = Instant::now() + self.quorum.timeout() / 2;
        while (self.releases > 0 || self.entries.contains(&Entry::Open)) && self.next_answer(Some(end)).await.is_some()
        {
        }
    }

    /// Returns how many servers answered the last attempt.
    pub(super) fn answered(&self) -> usize {
        // A server that was not asked to enter has answered in its queue.
        self.entries.iter().filter(|entry| !matches!(entry, Entry::Failed | Entry::Open)).count()
    }

    pub(super) async fn next_answer(&mut self, until: Option<Instant>) -> Option<(Call, Answer)> {
        let Next::Answer(call, answer) = self.flights.next(until).await else { return None };
        if let Ask::Enter(_) = call.ask
            && let Some(entry) = self.entries.get_mut(call.to)
        {
            *entry = if answer == Answer::Failed { Entry::Failed } else { Entry::Answered };
        }
        self.releases = self.releases.saturating_sub(usize::from(call.ask == Ask::Release));
        Some((call, answer))
    }

    pub(super) fn into_grant(mut self, hold: Hold) -> Grant {
        let (token, until) = (hold.token(), self.quorum.at(hold.valid_until()));
        let kept = Kept::new(self.quorum.clone(), self.dispatch.take(), hold, self.flights.take());
        Grant {
            token,
            owner: None,
            slot: None,
            until,
            is_renewal_open: false,
            is_request_open: false,
            session: None,
            ticket: None,
            kept: Some(kept),
        }
    }

    pub(super) fn send(&mut self) {
        for call in &self.calls {
            match call.ask {
                Ask::Enter(_) => self.entries.get_mut(call.to).into_iter().for_each(|entry| *entry = Entry::Open),
                Ask::Release => self.releases += 1,
                _ => {}
            }
        }
        self.dispatch.send(self.calls.drain(..), &mut self.flights);
    }

    pub(super) fn remember_the_silent(&self) {
        let mut silent = self.quorum.silent();
        silent.fill(false);
        for member in self.acquisition.suspects() {
            silent.get_mut(member).into_iter().for_each(|silent| *silent = true);
        }
    }
}

/// After this time the clocks may have been read again, so the token to ask for is computed again.
const STALE: Duration = Duration::from_secs(1);

/// The longest wait, which overflows no clock.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(100 * 365 * 86400);

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.has_ended {
            self.acquisition.abandon(self.quorum.now(), &mut self.calls);
            self.send();
        }
    }
}
