//! What an acquisition sends when too few servers count.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that panics has failed, which is what it is for")]

use std::time::Duration;

use dlock_quorum::{Acquisition, Answer, Ask, Outcome, Patience, Terms};

const SECOND: Duration = Duration::from_secs(1);

/// Hands in at once what each server answers, until the acquisition ends. Returns how often a lock was asked for.
fn asked(acquisition: &mut Acquisition, calls: &mut Vec<dlock_quorum::Call>) -> (usize, Outcome) {
    let mut asked = 0;
    loop {
        if let Some(outcome) = acquisition.outcome() {
            return (asked, outcome);
        }
        let call = calls.remove(0);
        // A server that was started lately does not count. What is released there is released nonetheless.
        let answer = if call.ask == Ask::Release { Answer::Gone } else { Answer::Failed };
        asked += usize::from(matches!(call.ask, Ask::Queue(_) | Ask::Enter));
        assert!(asked < 100, "it goes from one door to the next and never ends");
        acquisition.answer(Duration::ZERO, &call, answer, calls);
    }
}

#[test]
fn each_server_is_asked_twice_at_most_if_none_counts() {
    for members in 1..=7 {
        for patience in [Patience::None, Patience::Until(SECOND * 60), Patience::Endless] {
            let terms = Terms::new(members, SECOND, SECOND / 10, SECOND).unwrap();
            let mut calls = Vec::new();
            let mut acquisition = Acquisition::begin(terms, patience, [], 1, Duration::ZERO, &mut calls);
            let (asked, outcome) = asked(&mut acquisition, &mut calls);
            assert!(matches!(outcome, Outcome::TooFew(_)), "{outcome:?}");
            let doors = if patience == Patience::None { 0 } else { members };
            assert!(asked > doors && asked <= doors + members, "{members} members, {patience:?}: {asked}");
        }
    }
}
