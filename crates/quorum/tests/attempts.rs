//! What an acquisition sends when servers do not count, refuse, or do not answer in time.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that panics has failed, which is what it is for")]

use std::time::Duration;

use dlock_quorum::{Acquisition, Answer, Ask, Call, Outcome, Patience, Terms, drift_bound};

const SECOND: Duration = Duration::from_secs(1);

/// Hands in at once what each server answers, until the acquisition ends. Returns how often a lock was asked for.
fn asked(acquisition: &mut Acquisition, calls: &mut Vec<Call>) -> (usize, Outcome) {
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

/// Three servers, each of which has 100 ms.
fn terms() -> Terms {
    Terms::new(3, SECOND, SECOND / 10, SECOND).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Takes the call to a server that asks for something like this out of those that were sent.
fn sent(calls: &mut Vec<Call>, to: usize, is_it: impl Fn(Ask) -> bool) -> Call {
    let at = calls.iter().position(|call| call.to == to && is_it(call.ask));
    calls.remove(at.unwrap_or_else(|| panic!("server {to} was not asked: {calls:?}")))
}

fn enters(ask: Ask) -> bool {
    matches!(ask, Ask::Enter | Ask::Queue(_))
}

#[test]
fn a_hold_is_good_from_when_its_confirmations_were_sent() {
    let mut calls = Vec::new();
    let mut acquisition = Acquisition::begin(terms(), Patience::None, [], 1, ms(0), &mut calls);
    for (to, at) in [(0, 10), (1, 20)] {
        let call = sent(&mut calls, to, enters);
        acquisition.answer(ms(at), &call, Answer::Granted(7), &mut calls);
    }
    for (to, at) in [(0, 70), (1, 90)] {
        let call = sent(&mut calls, to, |ask| matches!(ask, Ask::Confirm(_)));
        acquisition.answer(ms(at), &call, Answer::Done, &mut calls);
    }
    let Some(Outcome::Held(hold)) = acquisition.outcome() else { panic!("it was granted and confirmed") };
    assert_eq!(hold.valid_until(), ms(20) + SECOND - drift_bound(SECOND));
}

#[test]
fn what_a_silent_server_may_have_granted_is_given_back() {
    let mut calls = Vec::new();
    let mut acquisition = Acquisition::begin(terms(), Patience::None, [], 1, ms(0), &mut calls);
    for to in [0, 1] {
        let call = sent(&mut calls, to, enters);
        acquisition.answer(ms(10), &call, Answer::Refused, &mut calls);
    }
    assert!(matches!(acquisition.outcome(), Some(Outcome::Contended)));
    sent(&mut calls, 2, |ask| ask == Ask::Release);
}

#[test]
fn a_client_that_was_refused_comes_back_soon() {
    let mut calls = Vec::new();
    let mut acquisition = Acquisition::begin(terms(), Patience::Endless, [], 1, ms(0), &mut calls);
    let call = sent(&mut calls, 0, enters);
    acquisition.answer(ms(500), &call, Answer::Refused, &mut calls);
    let back = acquisition.next_timeout().unwrap();
    assert!(back <= ms(500) + terms().timeout(), "{back:?}");
    calls.clear();
    acquisition.pass(back, &mut calls);
    sent(&mut calls, 0, enters);
}

#[test]
fn an_answer_to_an_earlier_attempt_does_not_count() {
    let mut calls = Vec::new();
    let mut acquisition = Acquisition::begin(terms(), Patience::Endless, [], 1, ms(0), &mut calls);
    let call = sent(&mut calls, 0, enters);
    acquisition.answer(ms(10), &call, Answer::Granted(7), &mut calls);
    // Server 1 is held, and server 2 does not answer: the attempt has failed.
    let late = sent(&mut calls, 2, enters);
    let call = sent(&mut calls, 1, enters);
    acquisition.answer(ms(109), &call, Answer::Refused, &mut calls);
    acquisition.pass(ms(110), &mut calls);
    let back = acquisition.next_timeout().unwrap();
    calls.clear();
    acquisition.pass(back, &mut calls);
    // The second attempt is let in by one server, when the answer of server 2 to the first arrives.
    let at = (0..3).find(|at| calls.iter().any(|call| call.to == *at && enters(call.ask))).unwrap();
    let call = sent(&mut calls, at, enters);
    assert!(call.attempt > late.attempt);
    acquisition.answer(back, &call, Answer::Granted(8), &mut calls);
    acquisition.answer(back, &late, Answer::Granted(9), &mut calls);
    assert!(!calls.iter().any(|call| matches!(call.ask, Ask::Confirm(_))), "{calls:?}");
}
