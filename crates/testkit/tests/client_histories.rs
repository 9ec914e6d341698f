//! The histories of clients: the reference keeps the invariants, planted bugs violate them, and the reference gives the
//! answers in all files.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that panics has failed, which is what it is for")]

use dlock_testkit::client_histories::planted::Planted;
use dlock_testkit::client_histories::play::{Machine, all_of_repository, play, play_all};
use dlock_testkit::client_histories::world::{Step, run};
use dlock_testkit::client_histories::{attempt, attempt_world, generated, validity};

/// Returns the number of simulations: `DLOCK_CLIENT_WORLDS` or 20,000.
fn worlds() -> u64 {
    std::env::var("DLOCK_CLIENT_WORLDS").map_or(20_000, |text| text.parse().unwrap())
}

/// Returns the events of a hold and its answers as text.
fn text_of(trace: &[Step]) -> String {
    let line = |step: &Step| {
        format!("{} {} : {}\n", step.at, step.event.words().join(" "), validity::answers(&step.after).join(", "))
    };
    trace.iter().map(line).collect()
}

#[test]
fn no_guard_claims_the_lock_while_another_client_has_it() {
    let began = std::time::Instant::now();
    for seed in 0..worlds() {
        let outcome = run(seed, None);
        let text = || outcome.traces.iter().map(|trace| text_of(trace)).collect::<Vec<_>>().join("\n");
        assert!(outcome.violation.is_none(), "seed {seed}: {:?}\n{}", outcome.violation, text());
    }
    let per_second = worlds() as f64 / began.elapsed().as_secs_f64();
    eprintln!("{} worlds, {per_second:.0} per second", worlds());
}

#[test]
fn the_simulation_finds_every_planted_bug_of_a_hold() {
    for planted in Planted::OF_VALIDITY {
        let found = (0..worlds()).filter(|seed| run(*seed, Some(planted)).violation.is_some()).count();
        eprintln!("{planted:?}: in {found} of {} worlds", worlds());
        assert!(found > 0, "{planted:?}");
    }
}

#[test]
fn no_acquisition_violates_an_invariant() {
    for seed in 0..worlds() {
        let violation = attempt_world::run(seed, None).violation;
        assert!(violation.is_none(), "seed {seed}: {violation:?}");
    }
}

#[test]
fn the_simulation_finds_every_planted_bug_of_an_acquisition() {
    for planted in Planted::OF_ATTEMPT {
        let found = (0..worlds()).filter(|seed| attempt_world::run(*seed, Some(planted)).violation.is_some()).count();
        eprintln!("{planted:?}: in {found} of {} worlds", worlds());
        assert!(found > 0, "{planted:?}");
    }
}

#[test]
fn the_reference_gives_the_answers_in_the_files() {
    let histories = all_of_repository();
    let count = play_all(&histories, "granted", || Box::new(validity::Player::default()));
    assert!(count >= 2000, "{count}");
    let count = play_all(&histories, "acquire", || Box::new(attempt::Player::default()));
    assert!(count >= 25, "{count}");
}

/// Every package that plays the files would notice these bugs.
#[test]
fn the_files_find_every_planted_bug_of_a_single_hold_or_acquisition() {
    let histories = all_of_repository();
    let failing = |new: &dyn Fn() -> Box<dyn Machine>, kind: &str| {
        let all = histories.iter().filter(|history| history.lines[0].words[0] == kind);
        all.filter(|history| play(history, new).is_err()).count()
    };
    // A shared slot shows only with several holds, and a history has one.
    for planted in Planted::OF_VALIDITY.into_iter().filter(|planted| *planted != Planted::SharedSlot) {
        let found = failing(&|| Box::new(validity::Player::with(planted)), "granted");
        eprintln!("{planted:?}: {found} histories");
        assert!(found > 0, "{planted:?}");
    }
    for planted in Planted::OF_ATTEMPT {
        let found = failing(&|| Box::new(attempt::Player::with(planted)), "acquire");
        eprintln!("{planted:?}: {found} histories");
        assert!(found > 0, "{planted:?}");
    }
}

#[test]
fn the_generated_files_are_up_to_date() {
    let written = |name: &str| {
        let path = format!("{}/../../tests/clients/histories/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    assert!(
        written("generated-validity.txt") == generated::validity_file(generated::VALIDITIES)
            && written("generated-attempt.txt") == generated::attempt_file(generated::ATTEMPTS),
        "out of date: run make client-histories"
    );
}
