//! Whether an acquisition goes on after a fault.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::fault::Fault;
use crate::error::{Cause, Error};
use crate::limits::Limits;
use crate::terms::Terms;

/// Whether a command was sent before with its outcome unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Once,
    Again,
}

/// The attempts of one acquisition so far.
pub(super) struct RetryState {
    pub limits: Limits,
    /// When a server answered last.
    pub heard: Instant,
    pause: Duration,
    pub sent: Sent,
    /// A renewal of the grant got no answer.
    pub is_renewal_open: bool,
    /// The last failure.
    why: Option<Cause>,
}

impl RetryState {
    pub fn new(terms: &Terms) -> Self {
        let (limits, heard) = (Limits::new(terms), Instant::now());
        Self { limits, heard, pause: PAUSE, sent: Sent::Once, is_renewal_open: false, why: None }
    }

    /// Waits a little before the next attempt, if the last one, which began then, is not final. An outage counts as
    /// waiting.
    pub async fn next(&mut self, fault: Fault, began: Instant) -> Result<(), Error> {
        match &fault {
            Fault::Refused(_) | Fault::TooFewReplicas { .. } => return Err(fault.into()),
            Fault::OutcomeUnknown(cause) => {
                self.sent = Sent::Again;
                // The connection was there until now.
                if cause.is_end_of_connection() {
                    self.heard = Instant::now();
                }
            }
            Fault::NotSent(_) | Fault::Later(_) | Fault::Moved(..) | Fault::Ask(_) => {}
        }
        // An attempt that was queued is not part of a row of failures.
        if began.elapsed() > LASTED {
            self.pause = PAUSE;
        }
        let left = match self.limits.over(self.heard) {
            Some(over) => over.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        };
        if left.is_zero() {
            return Err(fault.into());
        }
        self.why = Some(fault.cause());
        sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Ok(())
    }

    /// Returns the fault of an attempt whose time is over.
    pub fn silence(&self) -> Fault {
        let why = self.why.as_ref().map_or("no reply in time", Cause::message);
        Fault::OutcomeUnknown(why.into())
    }
}

/// Between two attempts, at first and at most.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// An attempt that took so long was more than a failure.
const LASTED: Duration = Duration::from_secs(5);
