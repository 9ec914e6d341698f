//! Whether an acquisition goes on after a fault.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::fault::Fault;
use super::nodes::REPLY;
use crate::error::Error;
use crate::terms::{Terms, Wait};

/// Whether a command was sent before with its outcome unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Once,
    Again,
}

/// The attempts of one acquisition so far.
pub(super) struct RetryState {
    wait: Wait,
    /// How long an outage may take, if the wait does not say so.
    outage: Duration,
    began: Instant,
    /// Since when nothing but faults has come.
    failing: Option<Instant>,
    pause: Duration,
    pub sent: Sent,
}

impl RetryState {
    pub fn new(terms: &Terms) -> Self {
        let outage = terms.outage.unwrap_or(if terms.wait == Wait::Not { REPLY } else { OUTAGE });
        Self { wait: terms.wait, outage, began: Instant::now(), failing: None, pause: PAUSE, sent: Sent::Once }
    }

    /// What is left of the wait, if it has an end.
    pub fn left(&self) -> Option<Duration> {
        match self.wait {
            Wait::Not => Some(Duration::ZERO),
            Wait::AtMost(wait) => Some(wait.saturating_sub(self.began.elapsed())),
            Wait::ForEver => None,
        }
    }

    /// Waits a little before the next attempt, if the last one, which began then, is not final. An outage counts as
    /// waiting.
    pub async fn next(&mut self, fault: Fault, began: Instant) -> Result<(), Error> {
        match &fault {
            Fault::Refused(_) | Fault::TooFewReplicas { .. } => return Err(fault.into()),
            Fault::OutcomeUnknown(_) => self.sent = Sent::Again,
            Fault::NotSent(_) | Fault::Later(_) | Fault::Moved(..) | Fault::Ask(_) => {}
        }
        // An attempt that was queued is not part of a row of failures.
        if began.elapsed() > LASTED {
            (self.failing, self.pause) = (None, PAUSE);
        }
        let failing = self.failing.get_or_insert(began).elapsed();
        let left = match self.wait {
            Wait::Not | Wait::ForEver => self.outage.saturating_sub(failing),
            Wait::AtMost(wait) => wait.saturating_sub(self.began.elapsed()),
        };
        if left.is_zero() {
            return Err(fault.into());
        }
        sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Ok(())
    }
}

/// Between two attempts, at first and at most.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// For how long an acquisition without a limit looks for a server, unless set. A failover takes less.
const OUTAGE: Duration = Duration::from_secs(30);

/// What takes longer than to fail to connect was more than a failure.
const LASTED: Duration = Duration::from_secs(5);
