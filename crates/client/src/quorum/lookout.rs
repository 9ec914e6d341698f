//! Watches whether a majority answers while an acquisition waits, and when its time is over.
//!
//! While an acquisition waits, the protocol asks only the server in whose queue it waits, which shows nothing about the
//! others. Every answer of a server counts, no matter which task of this client asked. So the lookout asks only when
//! the last answers of a majority become old, and only as many servers as are missing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock_quorum::Outcome;
use tokio::time::{sleep_until, timeout};

use super::Quorum;
use super::attempt::{Attempt, LONGEST_WAIT};
use super::member::Member;
use crate::join::join_all;
use crate::limits::Limits;

/// The watch of one acquisition.
pub(super) struct Lookout {
    quorum: Arc<Quorum>,
    limits: Limits,
    began: Instant,
    /// When the servers were last asked.
    asked: Option<Instant>,
    /// How many servers had answered lately when they were last asked. `None`: they were not asked yet.
    pub answered: Option<usize>,
}

impl Lookout {
    pub fn new(quorum: Arc<Quorum>, limits: Limits) -> Self {
        Self { quorum, limits, began: Instant::now(), asked: None, answered: None }
    }

    /// Returns when the acquisition has to return.
    pub fn end(&self) -> Instant {
        self.limits.end(self.heard()).unwrap_or_else(|| Instant::now() + LONGEST_WAIT)
    }

    /// Returns the time left to look for a majority.
    pub fn left(&self) -> Duration {
        self.limits.over(self.heard()).map_or(LONGEST_WAIT, |over| over.saturating_duration_since(Instant::now()))
    }

    /// Returns whether a majority answered when last asked. Servers that are silent in this attempt do not count. Only
    /// with a majority does a refusal surely mean that another owner holds the lock.
    pub fn has_majority(&self, attempt: &Attempt) -> bool {
        let silent = attempt.acquisition.suspects().count();
        let answered = self.answered.unwrap_or(self.quorum.members());
        answered.min(self.quorum.members() - silent) >= self.quorum.majority()
    }

    /// Checks again and again whether a majority answers. Returns when the time is over.
    pub async fn look(&mut self) -> Outcome {
        loop {
            let (next, end, now) = (self.next(), self.end(), Instant::now());
            if now < next.min(end) {
                // Answers that come meanwhile postpone the question.
                sleep_until(next.min(end).into()).await;
                continue;
            }
            // In a wait without a limit, a client that was paused past the end asks once more before it gives up.
            let is_over = now >= end && self.limits.left(now).is_some();
            if end <= next || is_over {
                return match self.answered {
                    Some(answered) if answered >= self.quorum.majority() => Outcome::Contended,
                    answered => Outcome::TooFew(answered.unwrap_or(0)),
                };
            }
            self.ask(if now < end { end - now } else { LONGEST_WAIT }).await;
        }
    }

    /// Returns when a majority answered last; at first, when the acquisition began.
    fn heard(&self) -> Instant {
        self.quorum.at(self.quorum.answers.since(self.quorum.majority())).max(self.began)
    }

    /// Returns when to ask: two intervals after a majority answered last, and at least one interval after the last
    /// question.
    fn next(&self) -> Instant {
        let interval = self.limits.interval();
        let next = self.heard() + 2 * interval;
        self.asked.map_or(next, |asked| next.max(asked + interval))
    }

    /// Asks as many servers as are missing for a majority, and if they do not answer, the others, too.
    async fn ask(&mut self, most: Duration) {
        let quorum = self.quorum.clone();
        let since = quorum.now().saturating_sub(self.limits.interval());
        let silent = quorum.answers.silent_since(since);
        let answered = quorum.members() - silent.len();
        let (some, others) = silent.split_at(quorum.majority().saturating_sub(answered).min(silent.len()));
        let (end, within) = (Instant::now() + most, quorum.timeout());
        for asked in [some, others] {
            let within = within.min(end.saturating_duration_since(Instant::now()));
            join_all(asked.iter().map(|at| look_at(quorum.clone(), *at, within))).await;
            let answered = quorum.members() - quorum.answers.silent_since(since).len();
            self.answered = Some(answered);
            if answered >= quorum.majority() {
                break;
            }
        }
        self.asked = Some(Instant::now());
    }
}

/// Asks one server. A connection on which nothing came in time may be dead: the next command takes another.
async fn look_at(quorum: Arc<Quorum>, at: usize, within: Duration) {
    let wire = quorum.members.get(at).and_then(Member::open_shared);
    let asked = quorum.clone();
    // The question goes on in the background: to connect may take longer than `within`, and a late answer counts.
    let asking = tokio::spawn(async move { asked.read_clock(at).await });
    // A question that got less time than the timeout of a server shows nothing about the connection.
    if timeout(within, asking).await.is_err()
        && within >= quorum.timeout()
        && let (Some(member), Some(wire)) = (quorum.members.get(at), wire)
    {
        member.forget(&wire);
    }
}
