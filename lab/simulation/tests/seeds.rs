//! Seconds of what `make simulate` does for longer.

use dlock_simulation::{Counts, Plan, outcome};

#[test]
fn deployments_lose_only_what_had_not_reached_the_server_that_goes_on() {
    let runs = 400;
    let mut counts = Counts::default();
    for seed in 0..runs {
        counts.add(&play(seed));
    }
    let Counts { grants, slots, waits, beats, bound_anew, silences, faults, explained, .. } = counts;
    assert!(grants > 2000 && slots > 250 && waits > 1000, "{counts:?}");
    assert!(beats > 10_000 && bound_anew > 50 && silences > 500, "{counts:?}");
    assert!(faults.promotions > 100 && faults.restarts > 100 && faults.full_syncs > 50, "{counts:?}");
    assert!(faults.jumps > 50 && faults.moves > 10 && faults.lost_units > 500, "{counts:?}");
    assert!(explained.lost > 50 && explained.clock > 50 && explained.unbound > 5, "{counts:?}");
}

#[test]
fn a_replica_does_not_know_tokens_of_grants_that_an_earlier_failover_lost() {
    // A primary that lost a grant by a failover becomes the primary again. It knows the token of that grant, and its
    // stream has never had it.
    for seed in [48511, 98421] {
        let counts = play_without_sessions(seed);
        assert!(counts.faults.lost_units + counts.faults.former_units > 0, "{seed}: {counts:?}");
        assert!(counts.faults.promotions >= 2, "{seed}: {counts:?}");
    }
}

#[test]
fn a_former_primary_ends_a_hold_with_the_session_that_it_knows() {
    // The client has bound the hold to a new connection, to the server that was promoted. Then the former primary hears
    // that the old connection has ended.
    for seed in [54999, 87051] {
        let counts = play_without_sessions(seed);
        assert!(counts.faults.former_units > 0 && counts.explained.unbound > 0, "{seed}: {counts:?}");
    }
}

#[test]
fn a_former_primary_returns_the_token_of_a_hold_that_the_new_one_does_not_know() {
    // The new primary has granted the lock meanwhile, with a higher token: the resource rejects the lower one.
    let counts = play_without_sessions(83063);
    assert!(counts.faults.former_units > 0 && counts.faults.lost_units == 0, "{counts:?}");
}

#[test]
fn the_seed_of_an_extension_that_the_model_once_refused_has_no_violation() {
    // A lease became due while the server was paused. Then one run of the timer extended it and let in a second request
    // of its owner, which the model took first. This test does not check that the seed still has this case.
    assert!(play_without_sessions(109_925).waits > 0);
}

#[test]
fn a_seed_always_does_the_same() {
    let play = |seed| format!("{:?}", outcome(&Plan::of(seed)).expect("no violation"));
    for seed in 0..20 {
        assert_eq!(play(seed), play(seed));
    }
}

fn play(seed: u64) -> Counts {
    outcome(&Plan::of(seed)).unwrap_or_else(|why| panic!("make simulate SEED={seed} RUNS=1 shows it: {why}"))
}

/// Seeds that were found before there were named sessions.
fn play_without_sessions(seed: u64) -> Counts {
    outcome(&Plan::without_sessions(seed)).unwrap_or_else(|why| panic!("seed {seed}, without sessions: {why}"))
}
