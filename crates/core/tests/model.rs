//! Random histories of one lock and its line, on the core and on a model that is too simple to be wrong
//! (`dlock_testkit::histories`).
//!
//! A history that fails becomes a named test below, with the steps proptest shrank it to. `PROPTEST_CASES` says how
//! many histories are drawn.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

use dlock_testkit::histories::crowd;
use dlock_testkit::histories::history::history;
use dlock_testkit::histories::reached::Reached;
use dlock_testkit::histories::shop::Shop;
use dlock_testkit::histories::world::World;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

proptest! {
    // Without a file of failures: each one becomes a test.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_core_and_a_replica_are_as_the_model(steps in history()) {
        World::play(&steps);
    }

    #[test]
    fn the_line_serves_as_the_model(events in crowd::history()) {
        Shop::play(&events);
    }
}

/// The histories are worth nothing if they never come to the states that are hard.
#[test]
fn histories_reach_every_kind_of_state() {
    let mut runner = TestRunner::deterministic();
    let mut reached = Reached::default();
    for _ in 0..250 {
        let steps = history().new_tree(&mut runner).expect("a history").current();
        reached.add(&World::play(&steps));
    }
    assert!(reached.holds >= 35, "{reached:?}");
    for what in HARD {
        let times = reached.times.get(what).copied().unwrap_or_default();
        assert!(times >= 10, "{what}: {times} times, {reached:?}");
    }
}

#[test]
fn histories_of_a_line_reach_every_kind_of_turn() {
    let mut runner = TestRunner::deterministic();
    let mut reached = Reached::default();
    for _ in 0..400 {
        let events = crowd::history().new_tree(&mut runner).expect("a history").current();
        reached.add(&Shop::play(&events));
    }
    assert!(reached.waiting >= 10, "{reached:?}");
    for what in HARD_IN_LINE {
        let times = reached.times.get(what).copied().unwrap_or_default();
        assert!(times >= 5, "{what}: {times} times, {reached:?}");
    }
}

const HARD_IN_LINE: [&str; 6] = [
    "granted from the line",
    "upgraded from the line",
    "entered again from the line",
    "refused from the line",
    "taken over",
    "two upgrades",
];

const HARD: [&str; 20] = [
    "acquire replayed",
    "release replayed",
    "granted",
    "entered again",
    "held",
    "owned",
    "lease passed",
    "released",
    "released partly",
    "not released",
    "ambiguous",
    "verbatim release",
    "renewed",
    "renewed both",
    "token lifted",
    "both modes",
    "both modes, one token",
    "lapsed beside live",
    "all lapsed",
    "early end",
];
