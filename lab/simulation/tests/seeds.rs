//! Seconds of what `make simulate` does for longer.

use dlock_simulation::{Counts, Plan, outcome};

#[test]
fn deployments_lose_nothing_but_what_had_not_reached_the_server_that_goes_on() {
    let runs = 400;
    let mut counts = Counts::default();
    for seed in 0..runs {
        match outcome(&Plan::of(seed)) {
            Ok(run) => counts.add(&run),
            Err(why) => panic!("make simulate SEED={seed} RUNS=1 shows it: {why}"),
        }
    }
    let Counts { grants, waits, faults, explained, .. } = counts;
    assert!(grants > 2000 && waits > 1000, "{counts:?}");
    assert!(faults.promotions > 100 && faults.restarts > 100 && faults.full_syncs > 50, "{counts:?}");
    assert!(faults.jumps > 50 && faults.moves > 10 && faults.lost_units > 500, "{counts:?}");
    assert!(explained.lost > 50 && explained.clock > 50 && explained.unbound > 5, "{counts:?}");
}

#[test]
fn a_seed_always_does_the_same() {
    let play = |seed| format!("{:?}", outcome(&Plan::of(seed)).expect("no violation"));
    for seed in 0..20 {
        assert_eq!(play(seed), play(seed));
    }
}
