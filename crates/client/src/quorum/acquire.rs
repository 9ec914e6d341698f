//! An acquisition of a lock from a quorum, in rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock_quorum::Outcome;
use tokio::time::{sleep, timeout_at};

use super::Quorum;
use super::attempt::Attempt;
use super::lookout::Lookout;
use super::member::Member;
use crate::error::Error;
use crate::holding::Grant;
use crate::limits::Limits;
use crate::options::{Keep, Mode, Terms, Wait};

impl Quorum {
    /// Acquires a lock: asks the servers in rounds until a majority grants it or the limit of the wait is over.
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
        let mut lookout = Lookout::new(self.clone(), Limits::new(&terms, Instant::now()));
        loop {
            let mut attempt = Attempt::begin(self.clone(), protocol, &terms);
            let outcome = tokio::select! {
                biased;
                outcome = attempt.go(terms.name()) => outcome,
                outcome = lookout.look() => outcome,
            };
            // A round that fails gives back what single servers have granted.
            if !matches!(outcome, Outcome::Held(_)) {
                let _ = timeout_at(lookout.end().into(), attempt.settle()).await;
            }
            let left = lookout.left();
            match outcome {
                Outcome::Held(hold) => return Ok(attempt.into_grant(hold)),
                Outcome::Contended if lookout.has_majority(&attempt) => return Err(Error::Contention),
                // An outage counts as waiting: the next round tries again while the limit lasts.
                Outcome::TooFew(_) | Outcome::Contended if !left.is_zero() => sleep(pause.min(left)).await,
                Outcome::TooFew(_) | Outcome::Contended => {
                    return Err(Error::TooFew(self.too_few(lookout.answered.unwrap_or_else(|| attempt.answered()))));
                }
            }
            pause = (pause * 2).min(MAX_PAUSE);
            // The next round is a new request: a call of the last round that arrives late must not affect its holds.
            let terms = Arc::make_mut(&mut terms);
            terms.begin();
            if let Wait::AtMost(_) = terms.wait {
                terms.wait = Wait::AtMost(lookout.left());
            }
        }
    }

    /// Returns the text of the error that too few servers answer, with the reasons of the others.
    fn too_few(&self, answered: usize) -> String {
        let (members, majority) = (self.members(), self.majority());
        let young: Vec<_> = self.members.iter().filter_map(Member::counts_in).collect();
        let soon = ready_in(answered, majority, young)
            .map_or_else(String::new, |time| format!("; a majority counts in {:.1} s", time.as_secs_f64()));
        format!("{}: {}{soon}", how_few(answered, members, majority), self.troubles())
    }
}

/// Returns how many of the servers answered. A majority may have answered, but too late for the attempts.
fn how_few(answered: usize, members: usize, majority: usize) -> String {
    if answered < majority {
        format!("{answered} of {members}, a majority is {majority}")
    } else {
        format!("no majority ({majority}) in time, although {answered} of {members} have answered since")
    }
}

/// Returns in how long a majority counts, if enough of the missing servers only have to run a little longer: a server
/// counts when it has run for longer than any lease. `young` has the times that are left.
fn ready_in(answered: usize, majority: usize, mut young: Vec<Duration>) -> Option<Duration> {
    young.sort();
    young.get(majority.checked_sub(answered + 1)?).copied()
}

/// The pause between two rounds while too few servers answer, at first and at most.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_that_answered_late_is_not_called_too_few() {
        assert_eq!(how_few(1, 3, 2), "1 of 3, a majority is 2");
        assert_eq!(how_few(3, 3, 2), "no majority (2) in time, although 3 of 3 have answered since");
    }
}
