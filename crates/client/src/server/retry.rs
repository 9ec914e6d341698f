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
    /// Whether a server has said nil.
    is_refused: bool,
    /// A renewal of the grant got no answer.
    pub is_renewal_open: bool,
    /// The last failure.
    why: Option<Cause>,
}

impl RetryState {
    pub fn new(terms: &Terms) -> Self {
        let (limits, heard) = (Limits::new(terms), Instant::now());
        Self { limits, heard, pause: PAUSE, sent: Sent::Once, is_refused: false, is_renewal_open: false, why: None }
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
            return Err(self.over(fault));
        }
        self.why = Some(fault.cause());
        self.rest(left).await;
        Ok(())
    }

    /// Takes a nil. That of a repeat is no refusal before the wait is over: a copy of the request that was on its way for
    /// long has taken its place, or an agent between us and the server has repeated it, too.
    pub async fn refused(&mut self) -> Result<(), Error> {
        (self.heard, self.is_refused) = (Instant::now(), true);
        let left = self.limits.left().unwrap_or(Duration::MAX);
        if self.sent == Sent::Once || left <= self.pause {
            return Err(Error::Contention);
        }
        self.rest(left).await;
        Ok(())
    }

    async fn rest(&mut self, left: Duration) {
        sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    /// Returns the outcome of a wait whose time is over. A server that said nil at least once has refused it.
    fn over(&self, fault: Fault) -> Error {
        if self.is_refused && self.limits.left().is_some() { Error::Contention } else { fault.into() }
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
