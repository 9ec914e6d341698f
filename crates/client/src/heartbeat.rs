//! When to renew a hold.
//!
//! Pure: the time is an argument. `tests/clients/histories` says what it answers.

use std::time::{Duration, Instant};

use crate::validity::{State, Validity};

/// The next thing to do for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Renew it then.
    Renew(Instant),
    /// A renewal is on its way: without an answer by then, the next one is sent on another connection.
    Again(Instant),
    /// Ask the server how long it lasts: a cap made it shorter than what was asked for.
    Check,
    /// Wait for its end.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// The next renewal asks for this.
    pub wanted: Duration,
    /// From 0.9 to 1: holds that began together drift apart.
    spread: f64,
    duty: Duty,
    is_capped: bool,
}

impl Heartbeat {
    /// Begins to keep a hold that was granted by a command which was sent then.
    pub fn granted(now: Instant, sent: Instant, wanted: Duration, spread: f64, validity: &Validity) -> Self {
        let mut new = Self { wanted, spread, duty: Duty::Nothing, is_capped: false };
        new.duty = Duty::Renew((sent + new.third(validity)).max(now));
        new
    }

    pub fn duty(&self) -> Duty {
        self.duty
    }

    /// Makes the first renewal due no earlier than that.
    pub fn not_before(&mut self, at: Instant) {
        if let Duty::Renew(due) = &mut self.duty {
            *due = (*due).max(at);
        }
    }

    /// A renewal is about to be sent.
    pub fn sends(&mut self, now: Instant, validity: &Validity) {
        self.set(Duty::Again((now + answer_within(self.lease(validity))).min(until(validity).unwrap_or(now))));
    }

    /// Takes the answer to a renewal that was sent then.
    pub fn ok(&mut self, now: Instant, sent: Instant, validity: &Validity) {
        self.set(Duty::Renew((sent + self.third(validity)).max(now)));
    }

    /// Takes the refusal of a renewal, or that it got no answer.
    pub fn failed(&mut self, now: Instant, validity: &Validity) {
        let until = until(validity).unwrap_or(now);
        let left = until.saturating_duration_since(now);
        // The first lease of a quorum is shorter.
        let pause = (self.lease(validity) / 30).min(left / 8).clamp(MIN_PAUSE, MAX_PAUSE);
        self.set(Duty::Renew((now + pause).min(until)));
    }

    /// A cap made the lease shorter than what was asked for.
    pub fn capped(&mut self) {
        (self.is_capped, self.duty) = (true, Duty::Check);
    }

    /// The server said how long it lasts. A cap is the end, whatever is renewed.
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

    /// Returns the lease to renew by: the server may have a shorter one than what is asked for.
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

/// Between two attempts at a renewal.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// For the answer to a renewal.
const SHORTEST_ANSWER: Duration = Duration::from_millis(50);
const LONGEST_ANSWER: Duration = Duration::from_secs(2);
