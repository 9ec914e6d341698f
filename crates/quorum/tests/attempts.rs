//! The calls of an acquisition and of its hold when servers do not count, refuse, lose the hold, or answer too late.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that panics has failed, which is what it is for")]

use std::time::Duration;

use dlock_quorum::{Acquisition, Answer, Ask, Call, Clocks, Floor, Outcome, Patience, Start, Terms, drift_bound};

const SECOND: Duration = Duration::from_secs(1);

/// Starts an acquisition that believes all servers to be up.
fn begin(terms: Terms, patience: Patience, contended: bool, calls: &mut Vec<Call>) -> Acquisition {
    let start = Start { suspects: &[], contended, floor: Floor::default(), seed: 1 };
    Acquisition::begin(terms, patience, start, ms(0), calls)
}

/// Runs an acquisition to its end on servers that do not count and answer at once. Returns the number of requests for
/// the lock, and the outcome.
fn run_without_counting_servers(acquisition: &mut Acquisition, calls: &mut Vec<Call>) -> (usize, Outcome) {
    let mut asked = 0;
    loop {
        if let Some(outcome) = acquisition.outcome() {
            return (asked, outcome);
        }
        let call = calls.remove(0);
        // A release is sent even to a server that does not count.
        let answer = if call.ask == Ask::Release { Answer::Gone } else { Answer::Failed };
        asked += usize::from(enters(call.ask));
        assert!(asked < 100, "the acquisition goes from one gate server to the next and never ends");
        acquisition.answer(Duration::ZERO, &call, answer, calls);
    }
}

#[test]
fn each_server_is_asked_twice_at_most_if_none_counts() {
    for members in 1..=7 {
        for patience in [Patience::None, Patience::Until(SECOND * 60), Patience::Endless] {
            for contended in [false, true] {
                let terms = Terms::new(members, SECOND, SECOND / 10, SECOND).unwrap();
                let mut calls = Vec::new();
                let mut acquisition = begin(terms, patience, contended, &mut calls);
                let (asked, outcome) = run_without_counting_servers(&mut acquisition, &mut calls);
                assert!(matches!(outcome, Outcome::TooFew(_)), "{outcome:?}");
                let queues = if contended && patience != Patience::None { members } else { 0 };
                assert!(asked > queues && asked <= queues + members, "{members} members, {patience:?}: {asked}");
            }
        }
    }
}

/// Terms for three servers, each of which has 100 ms to answer.
fn terms() -> Terms {
    Terms::new(3, SECOND, SECOND / 10, SECOND).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Removes the first call to a server whose request matches `is_it` from the sent calls, and returns it.
fn sent(calls: &mut Vec<Call>, to: usize, is_it: impl Fn(Ask) -> bool) -> Call {
    let at = calls.iter().position(|call| call.to == to && is_it(call.ask));
    calls.remove(at.unwrap_or_else(|| panic!("server {to} was not asked: {calls:?}")))
}

fn enters(ask: Ask) -> bool {
    matches!(ask, Ask::Enter(_) | Ask::Queue(..))
}

#[test]
fn a_majority_that_grants_the_same_token_is_enough() {
    let mut calls = Vec::new();
    let mut acquisition = begin(terms(), Patience::Endless, false, &mut calls);
    for (to, at) in [(0, 10), (2, 20)] {
        let call = sent(&mut calls, to, enters);
        acquisition.answer(ms(at), &call, Answer::Granted(7), &mut calls);
    }
    let Some(Outcome::Held(hold)) = acquisition.outcome() else { panic!("a majority has granted") };
    assert_eq!((hold.token(), hold.valid_until()), (7, SECOND - drift_bound(SECOND)));
    // Only the first request to server 1 is left.
    assert!(!calls.iter().any(|call| call.to != 1), "{calls:?}");
}

#[test]
fn the_token_to_ask_for_is_ahead_of_the_clocks() {
    let mut clocks = Clocks::new(3, ms(100));
    (0..3).for_each(|member| clocks.note(member, ms(0), ms(0), 1_000_000));
    let start = Start { suspects: &[], contended: false, floor: clocks.floor(ms(0)), seed: 1 };
    let mut calls = Vec::new();
    Acquisition::begin(terms(), Patience::Endless, start, ms(5), &mut calls);
    assert!(calls.iter().all(|call| matches!(call.ask, Ask::Enter(entry) if entry.min_token > Some(1_005_000))));
}

#[test]
fn different_tokens_are_raised_to_the_highest() {
    let mut calls = Vec::new();
    let mut acquisition = begin(terms(), Patience::None, false, &mut calls);
    for (to, token, at) in [(0, 7, 10), (1, 8, 20)] {
        let call = sent(&mut calls, to, enters);
        acquisition.answer(ms(at), &call, Answer::Granted(token), &mut calls);
    }
    // The third server may have one of these tokens.
    assert!(acquisition.outcome().is_none() && acquisition.next_timeout() == Some(ms(40)));
    acquisition.handle_timeout(ms(40), &mut calls);
    let call = sent(&mut calls, 0, |ask| ask == Ask::Raise(8));
    acquisition.answer(ms(60), &call, Answer::Done, &mut calls);
    let Some(Outcome::Held(hold)) = acquisition.outcome() else { panic!("a majority has granted token 8") };
    // The hold on server 1 ends first. The request for it was sent at 0 ms.
    assert_eq!((hold.token(), hold.valid_until()), (8, SECOND - drift_bound(SECOND)));
}

#[test]
fn a_client_that_the_gate_server_refuses_releases_its_majority_and_waits() {
    let mut calls = Vec::new();
    let mut acquisition = begin(terms(), Patience::Endless, false, &mut calls);
    for to in [1, 2] {
        let call = sent(&mut calls, to, enters);
        acquisition.answer(ms(10), &call, Answer::Granted(7), &mut calls);
    }
    let call = sent(&mut calls, 0, enters);
    acquisition.answer(ms(20), &call, Answer::Refused, &mut calls);
    assert!(acquisition.outcome().is_none());
    sent(&mut calls, 1, |ask| ask == Ask::Release);
    sent(&mut calls, 2, |ask| ask == Ask::Release);
    sent(&mut calls, 0, |ask| matches!(ask, Ask::Queue(..)));
}

#[test]
fn the_next_server_takes_the_place_of_a_silent_gate_server() {
    let mut calls = Vec::new();
    let mut acquisition = begin(terms(), Patience::Endless, false, &mut calls);
    for to in [1, 2] {
        let call = sent(&mut calls, to, enters);
        acquisition.answer(ms(10), &call, Answer::Granted(7), &mut calls);
    }
    assert!(acquisition.outcome().is_none());
    acquisition.handle_timeout(ms(100), &mut calls);
    assert!(matches!(acquisition.outcome(), Some(Outcome::Held(_))));
}

#[test]
fn a_client_that_the_gate_server_granted_the_lock_waits_where_it_was_refused() {
    let mut calls = Vec::new();
    let mut acquisition = begin(terms(), Patience::Endless, false, &mut calls);
    for (to, answer) in [(1, Answer::Refused), (2, Answer::Refused), (0, Answer::Granted(7))] {
        let call = sent(&mut calls, to, enters);
        acquisition.answer(ms(10), &call, answer, &mut calls);
    }
    let call = sent(&mut calls, 1, |ask| matches!(ask, Ask::Queue(entry, Some(_)) if entry.min_token == Some(7)));
    acquisition.answer(ms(20), &call, Answer::Granted(7), &mut calls);
    assert!(matches!(acquisition.outcome(), Some(Outcome::Held(_))));
}

#[test]
fn a_hold_that_a_silent_server_may_have_granted_is_released() {
    let mut calls = Vec::new();
    let mut acquisition = begin(terms(), Patience::None, false, &mut calls);
    for to in [0, 1] {
        let call = sent(&mut calls, to, enters);
        acquisition.answer(ms(10), &call, Answer::Refused, &mut calls);
    }
    assert!(matches!(acquisition.outcome(), Some(Outcome::Contended)));
    sent(&mut calls, 2, |ask| ask == Ask::Release);
}

#[test]
fn a_client_whose_wait_has_ended_asks_again_within_a_timeout() {
    let mut calls = Vec::new();
    let mut acquisition = begin(terms(), Patience::Endless, true, &mut calls);
    let call = sent(&mut calls, 0, enters);
    acquisition.answer(ms(500), &call, Answer::Refused, &mut calls);
    let back = acquisition.next_timeout().unwrap();
    assert!(back <= ms(500) + terms().timeout(), "{back:?}");
    calls.clear();
    acquisition.handle_timeout(back, &mut calls);
    sent(&mut calls, 0, enters);
}

#[test]
fn an_answer_to_an_earlier_attempt_does_not_count() {
    let mut calls = Vec::new();
    let mut acquisition = begin(terms(), Patience::Endless, true, &mut calls);
    let call = sent(&mut calls, 0, enters);
    acquisition.answer(ms(10), &call, Answer::Granted(7), &mut calls);
    let call = sent(&mut calls, 0, |ask| ask == Ask::Raise(7));
    acquisition.answer(ms(10), &call, Answer::Done, &mut calls);
    // Server 1 refuses, and server 2 does not answer: the attempt has failed.
    let late = sent(&mut calls, 2, enters);
    let call = sent(&mut calls, 1, enters);
    acquisition.answer(ms(109), &call, Answer::Refused, &mut calls);
    acquisition.handle_timeout(ms(110), &mut calls);
    let back = acquisition.next_timeout().unwrap();
    calls.clear();
    acquisition.handle_timeout(back, &mut calls);
    // A server grants the second attempt. Then the answer of server 2 to the first attempt arrives.
    let at = (0..3).find(|at| calls.iter().any(|call| call.to == *at && enters(call.ask))).unwrap();
    let call = sent(&mut calls, at, enters);
    assert!(call.attempt > late.attempt);
    acquisition.answer(back, &call, Answer::Granted(8), &mut calls);
    acquisition.answer(back, &late, Answer::Granted(8), &mut calls);
    assert!(acquisition.outcome().is_none());
}

/// Returns a hold on all servers.
fn held(calls: &mut Vec<Call>) -> dlock_quorum::Hold {
    let mut acquisition = begin(terms(), Patience::None, false, calls);
    for to in 0..3 {
        let call = sent(calls, to, enters);
        acquisition.answer(ms(0), &call, Answer::Granted(7), calls);
        if to == 1 {
            let Some(Outcome::Held(mut hold)) = acquisition.outcome() else { panic!("a majority has granted") };
            let call = sent(calls, 2, enters);
            hold.answer(ms(0), &call, Answer::Granted(7), calls);
            return hold;
        }
    }
    panic!("not granted")
}

/// Hands in the answer of a server to a renewal.
fn renewed(hold: &mut dlock_quorum::Hold, to: usize, answer: Answer, calls: &mut Vec<Call>) {
    let call = sent(calls, to, |ask| matches!(ask, Ask::Raise(7) | Ask::Renew));
    hold.answer(call.sent, &call, answer, calls);
}

/// Returns a hold that server 0 has lost. Server 0 gives this answer to the repair.
fn repair(answer: Answer, calls: &mut Vec<Call>) -> dlock_quorum::Hold {
    let mut hold = held(calls);
    hold.renew(ms(300), calls);
    renewed(&mut hold, 0, Answer::Gone, calls);
    renewed(&mut hold, 1, Answer::Done, calls);
    assert!(!calls.iter().any(|call| matches!(call.ask, Ask::Repair(_))), "{calls:?}");
    renewed(&mut hold, 2, Answer::Done, calls);
    let call = sent(calls, 0, |ask| ask == Ask::Repair(7));
    hold.answer(ms(310), &call, answer, calls);
    hold
}

/// Returns a hold that server 0 has lost and granted again, and that server 1 has lost after that. Server 0 gives this
/// answer to renewals.
fn repaired(renewal: Answer) -> dlock_quorum::Hold {
    let mut calls = Vec::new();
    let mut hold = repair(Answer::Granted(9), &mut calls);
    renewed(&mut hold, 0, renewal, &mut calls);
    hold.renew(ms(600), &mut calls);
    renewed(&mut hold, 0, renewal, &mut calls);
    renewed(&mut hold, 2, Answer::Done, &mut calls);
    renewed(&mut hold, 1, Answer::Gone, &mut calls);
    hold
}

#[test]
fn a_server_that_lost_its_hold_is_repaired_when_a_majority_has_renewed() {
    assert!(repaired(Answer::Done).is_good(ms(600)));
}

#[test]
fn a_repaired_hold_on_a_young_server_does_not_count() {
    assert!(!repaired(Answer::Reserved).is_good(ms(600)));
}

#[test]
fn a_granted_repair_does_not_count_before_its_renewal() {
    let mut calls = Vec::new();
    let mut hold = repair(Answer::Granted(9), &mut calls);
    hold.renew(ms(600), &mut calls);
    renewed(&mut hold, 2, Answer::Gone, &mut calls);
    assert!(!hold.is_good(ms(600)), "only server 1 keeps the hold");
}

#[test]
fn a_lock_that_a_majority_lost_is_not_repaired() {
    let mut calls = Vec::new();
    let mut hold = held(&mut calls);
    hold.renew(ms(300), &mut calls);
    renewed(&mut hold, 0, Answer::Gone, &mut calls);
    renewed(&mut hold, 1, Answer::Gone, &mut calls);
    renewed(&mut hold, 2, Answer::Done, &mut calls);
    assert!(!hold.is_good(ms(300)));
    assert!(!calls.iter().any(|call| matches!(call.ask, Ask::Repair(_))), "{calls:?}");
}

#[test]
fn a_hold_whose_time_has_passed_is_lost_for_good() {
    let mut calls = Vec::new();
    let mut hold = held(&mut calls);
    let end = hold.valid_until();
    hold.renew(end - ms(1), &mut calls);
    let late = std::mem::take(&mut calls);
    late.iter().for_each(|call| hold.answer(end, call, Answer::Done, &mut calls));
    assert!(!hold.is_good(end) && hold.valid_until() == Duration::ZERO);
    // A release still goes to all servers.
    hold.release(end, &mut calls);
    assert_eq!(calls.iter().filter(|call| call.ask == Ask::Release).count(), 3);
}

/// Returns a hold on the servers 0 and 1, and the request that still waits in the queue of server 2. Server 2 has answered
/// a renewal with nil.
fn held_and_waiting(calls: &mut Vec<Call>) -> (dlock_quorum::Hold, Call) {
    let mut acquisition = begin(terms(), Patience::Endless, false, calls);
    for (to, answer) in [(0, Answer::Granted(7)), (2, Answer::Refused), (1, Answer::Granted(7))] {
        let call = sent(calls, to, enters);
        acquisition.answer(ms(0), &call, answer, calls);
    }
    let Some(Outcome::Held(mut hold)) = acquisition.outcome() else { panic!("a majority has granted") };
    let waiting = sent(calls, 2, |ask| matches!(ask, Ask::Queue(..)));
    hold.renew(ms(1), calls);
    renewed(&mut hold, 2, Answer::Gone, calls);
    (hold, waiting)
}

#[test]
fn a_release_goes_to_a_server_where_a_request_still_waits() {
    let mut calls = Vec::new();
    let (mut hold, _) = held_and_waiting(&mut calls);
    calls.clear();
    hold.release(ms(2), &mut calls);
    sent(&mut calls, 2, |ask| ask == Ask::Release);
}

#[test]
fn a_server_is_not_repaired_while_a_request_waits_there() {
    let mut calls = Vec::new();
    let (mut hold, waiting) = held_and_waiting(&mut calls);
    renewed(&mut hold, 0, Answer::Done, &mut calls);
    renewed(&mut hold, 1, Answer::Done, &mut calls);
    assert!(!calls.iter().any(|call| matches!(call.ask, Ask::Repair(_))), "{calls:?}");
    // The wait of the request has ended.
    hold.answer(ms(50), &waiting, Answer::Refused, &mut calls);
    sent(&mut calls, 2, |ask| ask == Ask::Repair(7));
}

#[test]
fn a_release_goes_to_a_server_that_was_refused_a_repair() {
    let mut calls = Vec::new();
    let mut hold = repair(Answer::Refused, &mut calls);
    hold.release(ms(320), &mut calls);
    let released: Vec<usize> = calls.iter().filter(|call| call.ask == Ask::Release).map(|call| call.to).collect();
    assert_eq!(released, [2, 1, 0], "the server that has no hold is asked last");
}
