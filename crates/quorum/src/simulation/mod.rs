//! Runs the protocol against servers with the module's own engine, on a network that loses and delays, with crashes,
//! restarts with and without memory, wrong clocks and pauses. One seed is one run, always the same.
//!
//! | file | knows |
//! |---|---|
//! | `plan` | what a run is like and what fails in it |
//! | `world` | the order of events, the network |
//! | `turns` | how clients follow the protocol, and are checked |
//! | `client` | what a client does |
//! | `server` | a server: the engine of `dlock-core` over keys in memory |
//! | `clock` | clocks that drift and are set |
//! | `check` | what must hold |
//! | `orders` | every order of messages of a small instance, instead of chance |
//!
//! `DLOCK_QUORUM_RUNS` says how many runs, `DLOCK_QUORUM_SEED` the first of them.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a test that panics has failed, which is what it is for"
)]

mod check;
mod client;
mod clock;
mod orders;
mod plan;
mod server;
mod turns;
mod world;

use dlock_testkit::random::Random;

use check::{Counts, Violation};
use plan::{Clocks, Given, Network, Plan, Readings, Restarts};
use world::World;

use crate::terms::Rule;

#[test]
fn nobody_overlaps_and_tokens_go_up() {
    let runs = setting("DLOCK_QUORUM_RUNS", 3_000);
    let first = setting("DLOCK_QUORUM_SEED", 0);
    let mut counts = Counts::default();
    for seed in first..first + runs {
        let mut world = World::new(seed, Given::ALL);
        let violation = world.run();
        assert_eq!(violation, None, "seed {seed}");
        counts.add(&world.counts);
    }
    eprintln!("{runs} runs from seed {first}, no violation: {counts:?}");
    assert!(counts.held > 5 * runs && counts.lost > runs / 20 && counts.crashes_with_loss > runs / 4, "{counts:?}");
    assert!(counts.contended > runs / 2 && counts.too_few > runs / 10 && counts.young > runs / 10, "{counts:?}");
}

#[test]
fn without_raising_tokens_go_back() {
    assert_eq!(first_without(Rule::Raising, 1000), Violation::TokenOrder);
}

#[test]
fn with_at_least_the_token_instead_of_the_token_tokens_go_back() {
    assert_eq!(first_without(Rule::SameToken, 20_000), Violation::TokenOrder);
}

#[test]
fn if_a_lost_hold_comes_back_tokens_go_back() {
    assert_eq!(first_without(Rule::LostForGood, 20_000), Violation::TokenOrder);
}

#[test]
fn if_one_wrong_reading_is_enough_tokens_go_back() {
    let found = first_violation(Given { readings: Readings::Fastest, network: Network::Rough, ..Given::ALL }, 20_000);
    assert_eq!(found, Violation::TokenOrder);
}

#[test]
fn without_the_gate_server_clients_are_overtaken() {
    let overtaken = |seed| {
        let mut world = calm(seed, Some(Rule::Gate));
        assert_eq!(world.run(), None, "seed {seed}");
        world.counts.overtaken > 0
    };
    assert!((0..200).any(overtaken));
}

fn first_without(rule: Rule, within: u64) -> Violation {
    first_violation(Given { without: Some(rule), network: Network::Rough, ..Given::ALL }, within)
}

#[test]
fn without_the_restart_rule_two_hold_the_lock() {
    first_violation(Given { restarts: Restarts::Ignored, ..Given::ALL }, 1000);
}

#[test]
fn clocks_that_are_further_apart_than_the_longest_lease_break_the_order_of_tokens() {
    assert_eq!(first_violation(Given { clocks: Clocks::Apart, ..Given::ALL }, 20_000), Violation::TokenOrder);
}

#[test]
fn clocks_that_are_set_far_forward_break_exclusion() {
    first_violation(Given { clocks: Clocks::Stepped, ..Given::ALL }, 1000);
}

/// Returns the violation of the first run that goes wrong, of this many.
fn first_violation(given: Given, within: u64) -> Violation {
    let mut runs = (0..within).map(|seed| (seed, World::new(seed, given).run()));
    let found = runs.find_map(|(seed, violation)| Some((seed, violation?)));
    let (seed, violation) = found.expect("a violation");
    eprintln!("{violation:?} at seed {seed} with {given:?}");
    violation
}

#[test]
fn where_nothing_fails_everybody_gets_in_by_the_first_queue_and_nobody_is_overtaken() {
    for seed in 0..200 {
        let mut world = calm(seed, None);
        assert_eq!(world.run(), None, "seed {seed}");
        let counts = &world.counts;
        assert!(counts.held >= 4 && counts.contended + counts.too_few + counts.lost == 0, "seed {seed}: {counts:?}");
        // A client that is refused waits in the queue, and is let in from there. A timeout may pass on the way.
        assert!(counts.most_attempts <= 2, "seed {seed}: {counts:?}");
        assert_eq!(counts.overtaken, 0, "seed {seed}: {counts:?}");
    }
}

/// A run in which nothing fails.
fn calm(seed: u64, without: Option<Rule>) -> World {
    let mut random = random_of(seed);
    let plan = Plan::calm(&mut random, [1, 2, 3, 4, 5][seed as usize % 5], 4);
    World::of(plan, Given { without, clocks: Clocks::Right, ..Given::ALL }, random)
}

/// Returns the random numbers of the run of a seed.
fn random_of(seed: u64) -> Random {
    Random::seeded(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1))
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}
