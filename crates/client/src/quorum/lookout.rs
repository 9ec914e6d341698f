//! Whether a majority is there while an acquisition waits, and when it is over.
//!
//! The protocol asks the server in whose queue it waits. That says nothing of the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock_quorum::Outcome;
use tokio::time::{sleep_until, timeout};

use super::{Attempt, LONGEST_WAIT, Quorum};
use crate::join::join_all;
use crate::limits::Limits;

pub(super) struct Lookout {
    quorum: Arc<Quorum>,
    limits: Limits,
    /// When a majority answered last.
    heard: Instant,
    /// How many answered when last asked.
    pub answered: Option<usize>,
}

impl Lookout {
    pub fn new(quorum: Arc<Quorum>, limits: Limits) -> Self {
        Self { quorum, limits, heard: Instant::now(), answered: None }
    }

    /// When the acquisition has to return.
    pub fn end(&self) -> Instant {
        self.limits.end(self.heard).unwrap_or_else(|| Instant::now() + LONGEST_WAIT)
    }

    /// What is left of the time to look for a majority.
    pub fn left(&self) -> Duration {
        self.limits.over(self.heard).map_or(LONGEST_WAIT, |over| over.saturating_duration_since(Instant::now()))
    }

    /// Whether a majority was there when last asked: only then nobody getting the lock means that somebody has it.
    pub fn is_there(&self, attempt: &Attempt) -> bool {
        let silent = attempt.acquisition.suspects().count();
        let answered = self.answered.unwrap_or(self.quorum.members());
        answered.min(self.quorum.members() - silent) >= self.quorum.majority()
    }

    /// Asks all servers again and again. Returns when the time is over.
    pub async fn look(&mut self) -> Outcome {
        loop {
            let (next, end) = (Instant::now() + self.limits.interval(), self.end());
            sleep_until(next.min(end).into()).await;
            if end <= next {
                return match self.answered {
                    Some(answered) if answered >= self.quorum.majority() => Outcome::Contended,
                    answered => Outcome::TooFew(answered.unwrap_or(0)),
                };
            }
            let patience = self.quorum.timeout().min(self.end().saturating_duration_since(Instant::now()));
            let quorum = &self.quorum;
            let asked = (0..quorum.members()).map(|at| timeout(patience, quorum.read_clock(at)));
            let answered = join_all(asked).await.into_iter().filter(|answer| matches!(answer, Ok(Ok(())))).count();
            self.answered = Some(answered);
            if answered >= self.quorum.majority() {
                self.heard = Instant::now();
            }
        }
    }
}
