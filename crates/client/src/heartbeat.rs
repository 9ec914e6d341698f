//! When to renew a hold.
//!
//! Pure: the time is an argument. The histories in `tests/clients/histories` define the answers.

use std::time::{Duration, Instant};

use crate::validity::{State, Validity};

/// The next thing to do for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Renew the hold at this time.
    Renew(Instant),
    /// A renewal is on its way: without an answer by this time, the next one is sent on another connection.
    Again(Instant),
    /// Ask the server how long the hold lasts: a cap made the lease shorter than what was asked for.
    Check,
    /// Wait for the end of the hold.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// The lease that the next renewal asks for.
    pub wanted: Duration,
    /// A factor from 0.9 to 1, so that holds granted together are not renewed together.
    spread: f64,
    duty: Duty,
    is_capped: bool,
}

impl Heartbeat {
    /// Begins with a hold that was granted by a command sent at `sent`.
    pub fn granted(now: Instant, sent: Instant, wanted: Duration, spread: f64, validity: &Validity) -> Self {
        let mut new = Self { wanted, spread, duty: Duty::Nothing, is_capped: false };
        new.duty = Duty::Renew((sent + new.third(validity)).max(now));
        new
    }

    pub fn duty(&self) -> Duty {
        self.duty
    }

    /// Makes the first renewal due no earlier than `at`.
    pub fn not_before(&mut self, at: Instant) {
        if let Duty::Renew(due) = &mut self.duty {
            *due = (*due).max(at);
        }
    }

    /// A renewal is about to be sent.
    pub fn sends(&mut self, now: Instant, validity: &Validity) {
        self.set(Duty::Again((now + answer_within(self.lease(validity))).min(until(validity).unwrap_or(now))));
    }

    /// Takes the answer to a renewal that was sent at `sent`.
    pub fn ok(&mut self, now: Instant, sent: Instant, validity: &Validity) {
        self.set(Duty::Renew((sent + self.third(validity)).max(now)));
    }

    /// Records that a renewal was refused or got no answer.
    pub fn failed(&mut self, now: Instant, validity: &Validity) {
        let until = until(validity).unwrap_or(now);
        let left = until.saturating_duration_since(now);
        // The first lease of a quorum is shorter than the wanted one.
        let pause = (self.lease(validity) / 30).min(left / 8).clamp(MIN_PAUSE, MAX_PAUSE);
        self.set(Duty::Renew((now + pause).min(until)));
    }

    /// A cap made the lease shorter than what was asked for.
    pub fn capped(&mut self) {
        (self.is_capped, self.duty) = (true, Duty::Check);
    }

    /// The server said how long the hold lasts. A cap ends the hold even if it is renewed.
    pub fn looked(&mut self, now: Instant, validity: &Validity) {
        match self.duty {
            _ if self.is_capped => self.duty = Duty::Nothing,
            Duty::Renew(at) => self.duty = Duty::Renew(at.min(until(validity).unwrap_or(at)).max(now)),
            Duty::Again(_) | Duty::Check | Duty::Nothing => {}
        }
    }

    fn set(&mut self, duty: Duty) {
        if !self.is_capped {
            self.duty = duty;
        }
    }

    /// Returns the lease that decides when to renew: the server may have a shorter one than what is asked for.
    pub fn lease(&self, validity: &Validity) -> Duration {
        self.wanted.min(validity.sure())
    }

    fn third(&self, validity: &Validity) -> Duration {
        self.lease(validity).mul_f64(self.spread) / 3
    }
}

/// Returns how long a renewal waits for its answer.
pub(crate) fn answer_within(lease: Duration) -> Duration {
    (lease / 6).clamp(SHORTEST_ANSWER, LONGEST_ANSWER)
}

fn until(validity: &Validity) -> Option<Instant> {
    if let State::Until(until) = validity.state() { Some(until) } else { None }
}

/// The pause between two attempts at a renewal, at least and at most.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// How long the answer to a renewal may take, at least and at most.
const SHORTEST_ANSWER: Duration = Duration::from_millis(50);
const LONGEST_ANSWER: Duration = Duration::from_secs(2);
