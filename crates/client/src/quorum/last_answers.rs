//! When the servers of a quorum answered last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// For each server, when the last command was sent that it has answered, in µs. Answers of a server that does not count
/// in the quorum are left out.
///
/// A late answer says only that the server was up when it was asked.
pub(super) struct LastAnswers(Vec<AtomicU64>);

impl LastAnswers {
    pub fn new(members: usize) -> Self {
        Self((0..members).map(|_| AtomicU64::new(0)).collect())
    }

    /// Records an answer to a command that was sent at that time.
    pub fn note(&self, member: usize, sent: Duration) {
        let sent = u64::try_from(sent.as_micros()).unwrap_or(0);
        self.0.get(member).into_iter().for_each(|last| _ = last.fetch_max(sent, Ordering::Relaxed));
    }

    /// Returns the servers that have not answered since then, the longest silent first.
    pub(super) fn silent_since(&self, since: Duration) -> Vec<usize> {
        let mut silent: Vec<_> = self.all().zip(0..).filter(|(last, _)| *last < since).collect();
        silent.sort_unstable();
        silent.into_iter().map(|(_, member)| member).collect()
    }

    /// Returns the latest time since which at least `majority` servers have answered.
    pub(super) fn since(&self, majority: usize) -> Duration {
        let mut all: Vec<_> = self.all().collect();
        all.sort_unstable();
        all.len().checked_sub(majority).and_then(|at| all.get(at)).copied().unwrap_or_default()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Duration> {
        self.0.iter().map(|last| Duration::from_micros(last.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_has_answered_since_the_oldest_of_its_latest_answers() {
        let [one, two, three] = [1, 2, 3].map(Duration::from_secs);
        let answers = LastAnswers::new(3);
        assert_eq!(answers.since(2), Duration::ZERO);
        answers.note(2, three);
        assert_eq!(answers.since(2), Duration::ZERO);
        answers.note(0, two);
        assert_eq!(answers.since(2), two);
        // A late answer.
        answers.note(2, one);
        assert_eq!((answers.since(2), answers.since(1)), (two, three));
        assert_eq!(answers.silent_since(three), [1, 0]);
        assert_eq!(answers.silent_since(one), [1]);
    }
}
