//! The length of a lease, as far as it is known.

use std::time::Duration;

/// The server sets the length when it executes a renewal: late if the answer was lost, and in any order for renewals on
/// several connections. So a guard counts with the shortest that the server may have.
pub(super) struct Lengths {
    /// The next renewal asks for this.
    pub wanted: Duration,
    /// The server has no shorter one.
    pub sure: Duration,
    /// Renewals without an answer so far, and the shortest lease since the first of them was sent.
    open: usize,
    shortest: Duration,
}

impl Lengths {
    pub fn new(lease: Duration) -> Self {
        Self { wanted: lease, sure: lease, open: 0, shortest: lease }
    }

    /// Counts a renewal that is about to be sent.
    pub fn sends(&mut self, lease: Duration) {
        self.shortest = if self.open == 0 { lease } else { self.shortest.min(lease) };
        self.open += 1;
        self.sure = self.sure.min(lease);
    }

    /// Counts the answer to one that was sent once: whether it was executed, and counts.
    pub fn answered(&mut self, executed: bool) {
        self.open = self.open.saturating_sub(1);
        if executed {
            self.sure = self.shortest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn an_answer_makes_a_longer_lease_sure_and_a_question_a_shorter_one() {
        let mut lengths = Lengths::new(secs(30));
        lengths.sends(secs(60));
        assert_eq!(lengths.sure, secs(30));
        lengths.answered(true);
        assert_eq!(lengths.sure, secs(60));
        lengths.sends(secs(10));
        assert_eq!(lengths.sure, secs(10));
        lengths.answered(true);
        assert_eq!(lengths.sure, secs(10));
    }

    #[test]
    fn what_may_still_be_executed_counts_for_good() {
        let mut lengths = Lengths::new(secs(30));
        lengths.sends(secs(10));
        for _ in 0..3 {
            lengths.sends(secs(60));
            lengths.answered(true);
            assert_eq!(lengths.sure, secs(10));
        }
    }

    #[test]
    fn what_was_refused_is_none_of_them() {
        let mut lengths = Lengths::new(secs(30));
        lengths.sends(secs(10));
        lengths.answered(false);
        assert_eq!(lengths.sure, secs(10));
        lengths.sends(secs(30));
        lengths.answered(true);
        assert_eq!(lengths.sure, secs(30));
    }
}
