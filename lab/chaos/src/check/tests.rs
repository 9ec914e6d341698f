//! The checker itself: hand-made histories that are good are passed, bad ones refused.

use super::*;
use crate::observer::Sighting;

fn record(scenario: Scenario, lives: &[&str]) -> Record {
    let lives = lives.iter().enumerate().map(|(at, text)| Life::parse(&format!("w{at}"), text).unwrap()).collect();
    Record { scenario, lives, faults: Vec::new(), counters: BTreeMap::new(), seen: Seen::default() }
}

fn violations(lives: &[&str]) -> Vec<String> {
    check(&record(Scenario::Restart, lives)).violations
}

fn fault(kind: Kind, begin: u64, end: u64) -> Fault {
    Fault { kind, begin, end, jump_us: 0, key: None }
}

/// alice has `k` exclusively from 2 ms on, for a second.
const ALICE: &str = "I 1000 1 DLOCK.ACQUIRE k alice PX 1000\nO 2000 int 50\n";
const ALICE_RELEASES: &str = "I 9000 1 DLOCK.RELEASE k alice TOKEN 50\nO 9500 int 1\n";

#[track_caller]
fn refused(lives: &[&str], because: &str) {
    let found = violations(lives);
    assert!(found.iter().any(|violation| violation.contains(because)), "{because:?} in {found:?}");
}

#[test]
fn owners_that_follow_each_other_are_passed() {
    let bob = "I 3000 1 DLOCK.ACQUIRE k bob PX 1000 BLOCK 0\nO 9400 int 60\n";
    assert_eq!(violations(&[&format!("{ALICE}{ALICE_RELEASES}"), bob]), [""; 0]);
    let late = "I 3000 1 DLOCK.ACQUIRE k bob PX 1000 BLOCK 0\nO 1001500 int 60\n";
    assert_eq!(violations(&[ALICE, late]), [""; 0], "alice's lease has ended");
}

#[test]
fn two_exclusive_owners_at_once_are_refused() {
    refused(&[ALICE, "I 3000 1 DLOCK.ACQUIRE k bob PX 1000\nO 4000 int 60\n"], "two owners hold k");
}

#[test]
fn a_reader_beside_a_writer_is_refused() {
    refused(&[ALICE, "I 3000 1 DLOCK.RLOCK k bob PX 1000\nO 4000 int 60\n"], "two owners hold k");
}

#[test]
fn readers_beside_each_other_are_passed() {
    let [a, b] =
        ["alice", "bob"].map(|who| format!("I 1000 1 DLOCK.RLOCK k {who} PX 1000\nO 2000 int {}\n", who.len()));
    assert_eq!(violations(&[&a, &b]), [""; 0]);
}

#[test]
fn a_second_owner_within_a_renewed_lease_is_refused() {
    let renewed = format!("{ALICE}I 900000 1 DLOCK.RENEW k alice PX 1000 TOKEN 50\nO 901000 int 1\n");
    let bob = "I 1500000 1 DLOCK.ACQUIRE k bob PX 1000\nO 1501000 int 60\n";
    refused(&[&renewed, bob], "two owners hold k");
    assert_eq!(violations(&[ALICE, bob]), [""; 0], "not without the renewal");
}

#[test]
fn a_second_owner_within_a_lease_that_was_looked_at_is_refused() {
    let looked_at = format!("{ALICE}I 900000 1 DLOCK.CHECK k 50\nO 901000 int 900\n");
    refused(&[&looked_at, "I 1500000 1 DLOCK.ACQUIRE k bob PX 1000\nO 1501000 int 60\n"], "two owners hold k");
}

#[test]
fn what_was_given_up_partly_is_still_held() {
    let partly =
        "I 1000 1 DLOCK.RACQUIRE k alice PX 1000\nO 2000 int 50\nI 3000 1 DLOCK.RELEASE k alice\nO 4000 int 0\n";
    let bob = "I 5000 1 DLOCK.ACQUIRE k bob PX 1000\nO 6000 int 60\n";
    refused(&[partly, bob], "two owners hold k");
    assert_eq!(violations(&[&partly.replace("int 0", "int 1"), bob]), [""; 0], "given up wholly");
}

#[test]
fn a_session_may_end_a_hold_with_its_connection() {
    let bob = "I 5000 1 DLOCK.ACQUIRE k bob PX 1000\nO 6000 int 60\n";
    let bound = ALICE.replace("PX 1000", "PX 1000 SESSION");
    assert_eq!(violations(&[&format!("{bound}D 3000\n"), bob]), [""; 0]);
    refused(&[&format!("{ALICE}D 3000\n"), bob], "two owners hold k");
    let mut killed = record(Scenario::Restart, &[&bound, bob]);
    killed.lives[0].killed = Some(3000);
    assert_eq!(check(&killed).violations, [""; 0]);
}

#[test]
fn the_end_of_a_connection_may_arrive_after_what_was_asked_on_the_next() {
    let asked = "I 30000 2 DLOCK.CHECK k 50\nO 31000 int 900\n";
    let bob = "I 32000 1 DLOCK.ACQUIRE k bob PX 1000\nO 33000 int 60\n";
    let bound = ALICE.replace("PX 1000", "PX 1000 SESSION");
    assert_eq!(violations(&[&format!("{bound}D 20000\n{asked}"), bob]), [""; 0]);
    refused(&[&format!("{ALICE}D 20000\n{asked}"), bob], "two owners hold k");
}

#[test]
fn a_jump_of_the_clock_ends_leases_and_no_more() {
    let bob = "I 500000 1 DLOCK.ACQUIRE k bob PX 1000\nO 501000 int 60\n";
    let mut jumped = record(Scenario::Clock, &[ALICE, bob]);
    jumped.faults.push(Fault { jump_us: 700_000, ..fault(Kind::ClockJump, 400_000, 401_000) });
    assert_eq!(check(&jumped).violations, [""; 0]);
    jumped.faults[0].jump_us = 300_000;
    assert_eq!(check(&jumped).violations.len(), 1, "alice's lease lasts 700 ms");
    jumped.faults[0].jump_us = -700_000;
    assert_eq!(check(&jumped).violations.len(), 1, "a jump back makes the lease longer");
}

#[test]
fn a_renewal_may_shorten_a_lease_that_a_jump_made_longer() {
    let renewed =
        "I 3000 1 DLOCK.CHECK k 50\nO 4000 int 2000\nI 5000 1 DLOCK.RENEW k alice PX 100 TOKEN 50\nO 900000 int 1\n";
    let bob = "I 901000 1 DLOCK.ACQUIRE k bob PX 1000\nO 902000 int 60\n";
    assert_eq!(violations(&[&format!("{ALICE}{renewed}"), bob]), [""; 0]);
    let early = "I 50000 1 DLOCK.ACQUIRE k bob PX 1000\nO 60000 int 60\n";
    refused(&[&format!("{ALICE}{renewed}"), early], "two owners hold k");
}

#[test]
fn a_hold_that_is_gone_within_its_lease_is_refused() {
    refused(&[&format!("{ALICE}I 5000 1 DLOCK.CHECK k 50\nO 6000 nil\n")], "a hold was lost");
    refused(&[&format!("{ALICE}I 5000 1 DLOCK.RENEW k alice PX 5 TOKEN 50\nO 6000 nil\n")], "a hold was lost");
    assert_eq!(violations(&[&format!("{ALICE}I 5000 1 DLOCK.CHECK k 50\nO 1200000 nil\n")]), [""; 0], "late answer");
}

#[test]
fn after_a_promotion_only_acknowledged_grants_exclude() {
    let bob = "I 50000 1 DLOCK.ACQUIRE k bob PX 1000\nO 60000 int 60\n";
    let asks = "I 70000 2 DLOCK.CHECK k 50\nO 80000 nil\n";
    let with_promotion = |lives: &[&str]| {
        let mut record = record(Scenario::Promotion, lives);
        record.faults.push(fault(Kind::Promotion, 20_000, 40_000));
        check(&record)
    };
    let findings = with_promotion(&[&format!("{ALICE}{asks}"), bob]);
    assert_eq!((findings.violations.len(), findings.lost), (0, 1), "{findings:?}");
    let acknowledged = format!("{ALICE}I 2500 1 WAIT 1 100\nO 3000 int 1\n");
    let findings = with_promotion(&[&format!("{acknowledged}{asks}"), bob]);
    assert_eq!((findings.violations.len(), findings.lost), (2, 0), "two owners, and lost: {findings:?}");
    let elsewhere = format!("{ALICE}I 2500 2 WAIT 1 100\nO 3000 int 1\n");
    assert_eq!(with_promotion(&[&elsewhere, bob]).violations, [""; 0], "WAIT speaks for its own connection");
}

#[test]
fn a_token_given_twice_is_refused() {
    let bob = "I 1000 1 DLOCK.ACQUIRE other bob PX 1000\nO 2000 int 50\n";
    refused(&[ALICE, bob], "given twice");
}

#[test]
fn tokens_that_go_down_are_refused() {
    refused(&[ALICE, "I 3000 1 DLOCK.ACQUIRE other bob PX 1000\nO 4000 int 49\n"], "does not rise");
    let meanwhile = "I 1500 1 DLOCK.ACQUIRE other bob PX 1000\nO 4000 int 49\n";
    assert_eq!(violations(&[ALICE, meanwhile]), [""; 0], "granted before alice, perhaps");
}

#[test]
fn tokens_of_one_lock_that_go_down_are_refused_even_if_their_owners_waited() {
    let waited =
        "I 1500 1 DLOCK.ACQUIRE k bob PX 1000 BLOCK 0\nO 9800 int 49\nI 9900 1 DLOCK.CHECK k 49\nO 9950 int 900\n";
    refused(&[&format!("{ALICE}{ALICE_RELEASES}"), waited], "do not rise");
}

#[test]
fn entering_again_keeps_the_token() {
    let again = format!("{ALICE}I 3000 1 DLOCK.WLOCK k alice PX 1000\nO 4000 int 50\n");
    assert_eq!(violations(&[&again]), [""; 0]);
}

#[test]
fn a_request_sent_twice_may_have_been_granted_the_first_time() {
    let lost = "I 1000 1 DLOCK.ACQUIRE k alice PX 1000 REQUEST r\nD 1500\nI 8000 2 DLOCK.ACQUIRE k alice PX 1000 REQUEST r\nO 9000 int 50\n";
    let later = "I 3000 1 DLOCK.ACQUIRE other bob PX 1000\nO 4000 int 60\n";
    assert_eq!(violations(&[lost, later]), [""; 0]);
}

/// An owner takes permits at 1 ms, for a second.
fn takes(owner: &str, limit: u64, permits: u64, token: u64) -> String {
    format!("I 1000 1 DLOCK.SACQUIRE k {owner} {limit} PERMITS {permits} PX 1000\nO 2000 int {token}\n")
}

#[test]
fn permits_up_to_the_limit_are_passed_and_one_more_is_refused() {
    let [alice, bob] = [takes("alice", 3, 2, 50), takes("bob", 3, 1, 60)];
    let carol = |limit| takes("carol", limit, 1, 70);
    assert_eq!(violations(&[&alice, &bob]), [""; 0]);
    refused(&[&alice, &bob, &carol(3)], "over the limit: carol got 1 (token 70), 4 of 3 taken");
    assert_eq!(violations(&[&alice, &bob, &carol(4)]), [""; 0], "another limit");
    refused(&[&alice, &takes("bob", 2, 1, 60), &carol(4)], "over the limit: bob");
    assert_eq!(
        violations(&[&takes("alice", 1, 1, 50), &takes("bob", 2, 1, 60)]),
        [""; 0],
        "the limit was lower before"
    );
    refused(&[&takes("bob", 1, 1, 60), "I 1 1 DLOCK.RLOCK k alice PX 1000\nO 1500 int 50\n"], "over the limit: bob");
}

#[test]
fn permits_given_back_are_there_for_others() {
    let gives_back = "I 3000 1 DLOCK.RELEASE k alice PERMITS 1\nO 4000 int 0\n";
    let alice = format!("{}{gives_back}", takes("alice", 2, 2, 50));
    let bob = "I 3100 1 DLOCK.SACQUIRE k bob 2 PX 1000\nO 4100 int 60\n";
    assert_eq!(violations(&[&alice, bob]), [""; 0]);
    let looks = "I 4200 1 DLOCK.CHECK k 50\nO 4300 int 900\n";
    assert_eq!(violations(&[&format!("{alice}{looks}"), bob]), [""; 0], "one is left of two");
    refused(&[&alice.replace(gives_back, ""), bob], "over the limit: bob");
}

#[test]
fn a_permit_that_is_gone_within_its_lease_is_refused() {
    refused(&[&format!("{}I 5000 1 DLOCK.CHECK k 50\nO 6000 nil\n", takes("alice", 2, 1, 50))], "a hold was lost");
}

const BOTH: &str = "I 1000 1 DLOCK.MACQUIRE 2 k other alice PX 1000\nO 2000 int 50\n";

#[test]
fn locks_taken_together_share_their_token_and_exclude_others() {
    let looks = "I 3000 1 DLOCK.CHECK k 50\nO 4000 int 900\nI 5000 1 DLOCK.CHECK other 50\nO 6000 int 900\n";
    let leaves = "I 7000 1 DLOCK.RELEASE k alice TOKEN 50\nO 8000 int 1\n";
    let bob = |key| format!("I 9000 1 DLOCK.ACQUIRE {key} bob PX 1000\nO 10000 int 60\n");
    assert_eq!(violations(&[&format!("{BOTH}{looks}{leaves}"), &bob("k")]), [""; 0]);
    refused(&[&format!("{BOTH}{looks}{leaves}"), &bob("other")], "two owners hold other");
    refused(&[BOTH, "I 1 1 DLOCK.ACQUIRE third alice PX 1000\nO 1500 int 50\n"], "given twice");
}

#[test]
fn one_of_several_locks_that_is_not_there_is_refused() {
    refused(&[&format!("{BOTH}I 3000 1 DLOCK.CHECK other 50\nO 4000 nil\n")], "a hold was lost");
    let nothing = BOTH.replace("int 50", "nil");
    let leaves = |reply| format!("{nothing}I 3000 1 DLOCK.RELEASE other alice\nO 4000 {reply}\n");
    assert_eq!(violations(&[&leaves("nil")]), [""; 0]);
    refused(&[&leaves("int 1")], "was refused, and left a hold on other");
    let again = format!("{BOTH}{}", leaves("int 1")).replace("O 2000 int 50\n", "D 2000\n");
    assert_eq!(violations(&[&again]), [""; 0], "the first may have been granted");
}

#[test]
fn a_counter_that_lost_a_write_is_refused() {
    let with = |counter: Counter, life: &str| {
        let mut record = record(Scenario::Restart, &[life]);
        record.counters.insert("k".into(), counter);
        check(&record).violations
    };
    let counter = |value, writes: &[(u64, u64)]| Counter { value, fence: 60, writes: writes.to_vec(), refused: 0 };
    assert_eq!(with(counter(2, &[(50, 1), (60, 2)]), "C 5 k 50 1\n"), [""; 0]);
    assert!(with(counter(1, &[(50, 1), (50, 1)]), "")[0].contains("lost writes"));
    assert!(with(counter(2, &[(60, 1), (50, 2)]), "")[0].contains("under token 50"));
    assert!(with(counter(1, &[(60, 1)]), "C 5 k 50 1\n")[0].contains("is lost"));
}

#[test]
fn a_wait_that_ends_late_is_refused_unless_it_was_disturbed() {
    let late = "I 1000 1 DLOCK.ACQUIRE k alice PX 1000 BLOCK 100\nO 19000000 nil\n";
    refused(&[late], "too late");
    let mut disturbed = record(Scenario::Restart, &[late]);
    disturbed.faults.push(fault(Kind::ServerKilled, 18_000_000, 18_100_000));
    assert_eq!(check(&disturbed).violations, [""; 0]);
}

/// alice opens a session of 500 ms, takes `k` for 2 s, and beats at 301 ms.
const IN_SESSION: &str = "I 1000 1 DLOCK.SESSION s PX 500 NX\nO 1500 int 0\n\
    I 2000 1 DLOCK.ACQUIRE k alice PX 2000 SESSIONID s\nO 3000 int 50\n\
    I 301000 1 DLOCK.SESSION s PX 500 XX\nO 302000 int 1\n";

#[test]
fn a_hold_of_a_named_session_is_in_force_while_the_session_is_and_no_longer() {
    let bob = |ms: u64| format!("I {ms}000 2 DLOCK.ACQUIRE k bob PX 1000\nO {ms}500 int 60\n");
    refused(&[IN_SESSION, &bob(700)], "two owners hold k");
    assert_eq!(violations(&[IN_SESSION, &bob(810)]), [""; 0], "the session has ended");
    let unanswered = format!("{IN_SESSION}I 700000 1 DLOCK.SESSION s PX 500 XX\n");
    assert_eq!(violations(&[&unanswered, &bob(810)]), [""; 0], "nobody knows of this heartbeat");
    let closed = format!("{IN_SESSION}I 400000 1 DLOCK.SESSION s CLOSE\nO 401000 int 1\n");
    assert_eq!(violations(&[&closed, &bob(402)]), [""; 0]);
    let dropped = format!("{IN_SESSION}D 303000\n");
    refused(&[&dropped, &bob(700)], "two owners hold k");
    // A session that is opened again has none of the holds of the first.
    let again = format!("{IN_SESSION}I 850000 1 DLOCK.SESSION s PX 500 NX\nO 851000 int 0\n");
    assert_eq!(violations(&[&again, &bob(860)]), [""; 0]);
}

#[test]
fn a_live_session_that_loses_a_hold_is_refused() {
    let lost = format!("{IN_SESSION}I 700000 1 DLOCK.CHECK k 50\nO 701000 nil\n");
    refused(&[&lost], "a live session lost a hold");
    let mut paused = record(Scenario::Restart, &[&lost]);
    paused.faults.push(fault(Kind::WritesPaused, 400_000, 500_000));
    assert!(!check(&paused).violations.iter().any(|violation| violation.contains("a live session lost")));
    let late = lost.replace("I 700000", "I 790000").replace("O 701000", "O 850000");
    assert_eq!(violations(&[&late]), [""; 0], "it may have ended");
}

/// An observer looks all the time, and sees alice's hold bound to the session.
fn seen_bound(life: &str, at_ms: u64) -> Record {
    let (key, owner, session) = ("k".to_owned(), "alice".to_owned(), "s".to_owned());
    let mut record = record(Scenario::Restart, &[life]);
    record.seen.sightings = vec![Sighting { at: at_ms * 1000, key, owner, session }];
    record.seen.looks = (0..at_ms).step_by(50).map(|ms| ms * 1000).collect();
    record
}

#[test]
fn a_heartbeat_that_was_dropped_may_arrive_after_the_cut() {
    let cut_off = format!("{IN_SESSION}I 400000 1 DLOCK.SESSION s PX 500 XX\n");
    let seen = |at_ms| {
        let mut record = seen_bound(&cut_off, at_ms);
        record.faults.push(fault(Kind::NetworkCut, 390_000, 900_000));
        check(&record).violations.concat()
    };
    assert_eq!(seen(2700), "");
    assert!(seen(2900).contains("outlived its time"));
    let uncut = seen_bound(&cut_off, 2700);
    assert!(check(&uncut).violations.concat().contains("outlived its time"));
}

#[test]
fn a_session_that_outlives_its_heartbeats_is_refused() {
    let seen = |at_ms| seen_bound(IN_SESSION, at_ms);
    assert!(check(&seen(1600)).violations.concat().contains("outlived its time"));
    assert_eq!(check(&seen(1400)).violations, [""; 0]);
    let mut busy = seen(1600);
    busy.seen.looks.retain(|at| !(500_000..1_000_000).contains(at));
    assert_eq!(check(&busy).violations, [""; 0], "nobody looked for half a second");
    let mut stopped = seen(1600);
    stopped.faults.push(fault(Kind::WritesPaused, 600_000, 900_000));
    assert_eq!(check(&stopped).violations, [""; 0]);
}

#[test]
fn a_hold_belongs_to_the_session_that_it_was_bound_to_last() {
    let moved = format!(
        "{IN_SESSION}I 310000 1 DLOCK.SESSION t PX 500 NX\nO 311000 int 0\n\
        I 312000 1 DLOCK.RENEW k alice PX 2000 TOKEN 50 SESSIONID t\nO 313000 int 1\n\
        I 314000 1 DLOCK.SESSION s CLOSE\nO 315000 int 0\n"
    );
    refused(&[&format!("{moved}I 320000 1 DLOCK.CHECK k 50\nO 321000 nil\n")], "a live session lost a hold");
    refused(&[&moved, "I 700000 2 DLOCK.ACQUIRE k bob PX 1000\nO 700500 int 60\n"], "two owners hold k");
    let unknown = moved.replace("O 313000 int 1\n", "");
    assert_eq!(violations(&[&format!("{unknown}I 320000 1 DLOCK.CHECK k 50\nO 321000 nil\n")]), [""; 0]);
}

#[test]
fn a_hold_whose_key_was_deleted_is_over_and_another_is_not() {
    let bob = "I 400000 1 DLOCK.ACQUIRE k bob PX 1000\nO 401000 int 60\n";
    let found = |key| {
        let mut record = record(Scenario::Restart, &[ALICE, bob]);
        record.faults.push(Fault { key: Some(key), ..fault(Kind::KeyDeleted, 200_000, 210_000) });
        check(&record).violations
    };
    assert_eq!(found("k"), [""; 0]);
    assert!(found("other").iter().any(|violation| violation.contains("two owners hold k")));
}

#[test]
fn a_grant_before_a_slot_moved_counts_on_the_other_node() {
    let bob = "I 400000 1 DLOCK.ACQUIRE k bob PX 1000\nO 401000 int 60\n";
    let mut record = record(Scenario::Slots, &[ALICE, bob]);
    record.faults.push(fault(Kind::SlotMoved, 200_000, 210_000));
    assert!(check(&record).violations.iter().any(|violation| violation.contains("two owners hold k")));
}
