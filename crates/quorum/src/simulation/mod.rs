//! Runs the protocol against servers with the module's own engine, on a network that loses and delays messages, with
//! crashes, restarts with and without memory, wrong clocks and pauses. A seed always gives the same run.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | the parameters and the faults of a run |
//! | `world` | the order of events, the network |
//! | `turns` | the steps of clients by the protocol, and their checks |
//! | `client` | the state of a client |
//! | `server` | a server: the engine of `dlock-core` over keys in memory |
//! | `clock` | clocks that drift and are set |
//! | `check` | the rules that every run must keep |
//! | `orders` | every order of messages of a small instance, instead of random ones |
//!
//! `DLOCK_QUORUM_RUNS` sets the number of runs, `DLOCK_QUORUM_SEED` the seed of the first one.

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
fn holds_never_overlap_and_tokens_rise() {
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
    // Lower counts would mean that the runs no longer meet contention and faults.
    assert!(counts.held > 5 * runs && counts.lost > runs / 20 && counts.crashes_with_loss > runs / 4, "{counts:?}");
    assert!(counts.contended > runs / 2 && counts.too_few > runs / 10 && counts.young > runs / 10, "{counts:?}");
}

#[test]
fn without_raising_lower_tokens_tokens_go_back() {
    assert_eq!(first_without(Rule::Raising, 1000), Violation::TokenOrder);
}

#[test]
fn if_a_higher_token_counts_for_the_majority_tokens_go_back() {
    assert_eq!(first_without(Rule::SameToken, 20_000), Violation::TokenOrder);
}

#[test]
fn if_a_lost_hold_is_revived_tokens_go_back() {
    assert_eq!(first_without(Rule::LostForGood, 20_000), Violation::TokenOrder);
}

#[test]
fn if_the_fastest_clock_counts_instead_of_the_median_tokens_go_back() {
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
fn without_the_restart_rule_holds_overlap() {
    let found = first_violation(Given { restarts: Restarts::Ignored, ..Given::ALL }, 1000);
    assert_eq!(found, Violation::Overlap);
}

#[test]
fn if_clocks_differ_by_more_than_the_longest_lease_tokens_go_back() {
    assert_eq!(first_violation(Given { clocks: Clocks::Apart, ..Given::ALL }, 20_000), Violation::TokenOrder);
}

#[test]
fn if_clocks_are_set_far_forward_holds_overlap() {
    assert_eq!(first_violation(Given { clocks: Clocks::Stepped, ..Given::ALL }, 1000), Violation::Overlap);
}

/// Returns the violation of the first run that has one, among the first `within` seeds. Fails if there is none.
fn first_violation(given: Given, within: u64) -> Violation {
    let mut runs = (0..within).map(|seed| (seed, World::new(seed, given).run()));
    let found = runs.find_map(|(seed, violation)| Some((seed, violation?)));
    let (seed, violation) = found.expect("a run with a violation");
    eprintln!("{violation:?} at seed {seed} with {given:?}");
    violation
}

#[test]
fn without_faults_every_client_gets_the_lock_in_two_attempts_and_none_is_overtaken() {
    for seed in 0..200 {
        let mut world = calm(seed, None);
        assert_eq!(world.run(), None, "seed {seed}");
        let counts = &world.counts;
        assert!(counts.held >= 4 && counts.contended + counts.too_few + counts.lost == 0, "seed {seed}: {counts:?}");
        // A client that is refused waits in the queue of the gate server, and gets the lock from there.
        assert!(counts.most_attempts <= 2, "seed {seed}: {counts:?}");
        assert_eq!(counts.overtaken, 0, "seed {seed}: {counts:?}");
    }
}

/// Returns a run without faults, of one to five servers and four clients.
fn calm(seed: u64, without: Option<Rule>) -> World {
    let mut random = random_of(seed);
    let plan = Plan::calm(&mut random, [1, 2, 3, 4, 5][seed as usize % 5], 4);
    World::of(plan, Given { without, clocks: Clocks::Right, ..Given::ALL }, random)
}

/// Returns the random numbers of a run. The factor makes consecutive seeds differ in many bits.
fn random_of(seed: u64) -> Random {
    Random::seeded(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1))
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}
