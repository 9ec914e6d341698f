//! When `dlock run` ends a command whose lock cannot be renewed.
//!
//! ```text
//! |-------------- lease, from when the last successful renewal was sent --------------|
//! |  renewed, or tried again and again  | TERM    a third of what is left | KILL | 1 s |
//! ```

use std::time::{Duration, Instant};

/// How long before the end of the lease the command gets TERM, and KILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    term: Duration,
    kill: Duration,
}

impl Deadline {
    pub fn of(lease: Duration) -> Self {
        // A killed process needs a moment to end, above all on a busy machine.
        let kill = KILL + (lease / 20).clamp(Duration::from_millis(300), Duration::from_secs(5));
        Self { term: kill + lease.saturating_sub(kill) / 3, kill }
    }

    /// Returns when to send TERM, if the lease ends at `end`.
    pub fn term_at(self, end: Instant) -> Instant {
        before(end, self.term)
    }

    /// Returns when to send KILL, if the lease ends at `end` and TERM is sent now.
    pub fn kill_at(self, end: Instant, now: Instant) -> Instant {
        before(end, self.kill).min(now + (self.term - self.kill))
    }
}

fn before(end: Instant, margin: Duration) -> Instant {
    end.checked_sub(margin).unwrap_or(end)
}

/// The command is dead this long before the lease ends.
const KILL: Duration = Duration::from_secs(1);

/// The shortest lease that leaves time for renewals, TERM and KILL.
pub const MIN_LEASE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn term_comes_after_a_renewal_was_due_and_kill_a_second_before_the_end() {
        for lease in [3, 5, 10, 30, 600, 86400].map(Duration::from_secs) {
            let (deadline, start) = (Deadline::of(lease), Instant::now());
            let end = start + lease;
            let [term, kill] = [deadline.term_at(end), deadline.kill_at(end, deadline.term_at(end))];
            assert!(term > start + lease / 3, "{lease:?}: the renewal had its chance");
            assert!(kill > term && kill + KILL < end, "{lease:?}: {:?} {:?}", term - start, kill - start);
        }
    }

    #[test]
    fn a_lock_lost_early_leaves_no_more_time_than_one_that_cannot_be_renewed() {
        let (deadline, now) = (Deadline::of(Duration::from_secs(30)), Instant::now());
        let kill = deadline.kill_at(now + Duration::from_secs(30), now);
        assert!(kill < now + Duration::from_secs(10));
        assert!(deadline.kill_at(now, now) <= now, "nothing is left");
    }
}
