//! Random histories on the engine and on a model that is too simple to be wrong (`dlock_testkit::histories`).
//!
//! A history that fails becomes a named test below, with the steps to which proptest shrank it, and a comment that
//! tells the defect. `PROPTEST_CASES` sets how many histories are drawn.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

use dlock_core::{Command, Entries};
use dlock_testkit::histories::{
    CROWD, History, How, Lease, Op, Reached, SHORT_LEASE_MS, Somebody, Step, USUAL_LEASE_MS, World,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

proptest! {
    // No file keeps the failures, because each one becomes a test.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_engine_and_a_replica_are_as_the_model(history in history()) {
        World::play(&history);
    }
}

/// Draws a history of a few owners that block each other. Four bytes are the settings. Each step has bytes of its own,
/// so that proptest can leave steps out.
fn history() -> impl Strategy<Value = History> {
    let step = || vec(any::<u8>(), STEP_BYTES);
    (vec(any::<u8>(), 4), prop_oneof![vec(step(), 1..40), vec(step(), 1..140)])
        .prop_map(|(settings, steps)| History::of_frames(&settings, steps.iter().map(Vec::as_slice)))
}

/// The number of bytes of a step. The longest one, a renewal, reads 11 (`dlock_testkit::histories`, `draw.rs`). If a
/// step needed more than these, `History::of_frames` would panic.
const STEP_BYTES: usize = 12;

/// Histories that never reach the hard states would prove nothing.
#[test]
fn histories_reach_every_kind_of_state() {
    let mut runner = TestRunner::deterministic();
    let mut reached = Reached::default();
    for _ in 0..2500 {
        let history = history().new_tree(&mut runner).expect("a history").current();
        reached.add(&World::play(&history));
    }
    assert!(reached.waiting >= 10, "never ten requests wait at once: {reached:?}");
    for what in HARD {
        let times = reached.times.get(what).copied().unwrap_or_default();
        assert!(times >= 5, "{what}: {times} times, {reached:?}");
    }
}

/// The situations that the histories must reach.
const HARD: [&str; 42] = [
    "granted",
    "replayed",
    "refused",
    "deadlock",
    "too many waiters",
    "waits",
    "served",
    "permits served",
    "slot 0",
    "a higher slot",
    "upgraded",
    "entered again from the queue",
    "lease passed in the queue",
    "taken over",
    "several granted",
    "several replayed",
    "several wait",
    "several served",
    "several taken over",
    "released",
    "released partly",
    "ambiguous",
    "renewed",
    "renewed up to a cap",
    "renewed absolutely",
    "renewed too shortly",
    "session lease",
    "session ended",
    "session ended in a pause",
    "watchdog",
    "watchdog up to a cap",
    "heartbeat",
    "heartbeat refused",
    "session opened twice",
    "session closed",
    "named session ended",
    "named session ended with a waiter",
    "no session",
    "session ended in the queue",
    "expiry before the deadline",
    "sent away from another type",
    "sent away to another node",
];

/// A request for several locks released a hold whose session had ended, and the engine still visited the lock when the
/// lease of that hold was due to be extended.
#[test]
fn a_hold_that_a_request_for_several_locks_released_is_not_extended() {
    let shared = How { binds: true, ..How::new(Command::Rlock) };
    let short = How { lease: Lease::For(300), ..shared };
    let several = How::new(Command::Macquire);
    let enter = |client, who, keys, how| Op::Enter { client, owner: Some(Somebody::Any(who)), keys, how };
    let ops = [
        enter(1, 1, vec![0], shared),
        enter(2, 0, vec![0], short),
        enter(3, 2, vec![0, 1], How { blocks: true, ..several }),
        Op::ClientGone(2),
        enter(0, 0, vec![2, 1], several),
    ];
    let steps = ops.map(|op| Step { op, then_tick: false });
    World::play(&History { steps: steps.into(), ..History::new(USUAL_LEASE_MS) });
}

/// Until the timer freed them, the holds of a large lock that was overwritten counted for their named session.
#[test]
fn holds_of_a_lock_that_is_overwritten_count_for_no_named_session() {
    let bound = How { lease: Lease::For(300), binds: true, named: Some(0), ..How::new(Command::Rlock) };
    let enter = Op::Enter { client: 0, owner: Some(Somebody::Any(4)), keys: vec![0], how: bound };
    let steps = [enter, Op::Overwrite(0)].map(|op| Step { op, then_tick: false });
    World::play(&History { crowd: CROWD, steps: steps.into(), ..History::new(USUAL_LEASE_MS) });
}

/// A request for several locks that waited had holds from an earlier attempt. It was answered with a grant, though the
/// leases of these holds are too short to be bound to its session.
#[test]
fn a_repeated_request_for_several_locks_does_not_bind_leases_that_are_too_short() {
    let shared = How::new(Command::Rlock);
    let several = How { blocks: true, id: Some(0), ..How::new(Command::Macquire) };
    let bound = How { lease: Lease::For(300), binds: true, ..several };
    let enter = |client, who, keys, how| Op::Enter { client, owner: Some(Somebody::Any(who)), keys, how };
    let release =
        Op::Release { key: 1, who: Somebody::Any(1), mode: None, entries: Entries::All, token: None, id: None };
    let ops =
        [enter(1, 1, vec![1], shared), enter(2, 0, vec![0, 1, 2], several), enter(2, 0, vec![0, 1], bound), release];
    let steps = ops.map(|op| Step { op, then_tick: true });
    World::play(&History { steps: steps.into(), ..History::new(SHORT_LEASE_MS) });
}
