//! The histories of clients: the reference keeps the invariant, defects do not, and all files say what it says.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that panics has failed, which is what it is for")]

use dlock_testkit::client_histories::planted::Planted;
use dlock_testkit::client_histories::play::{Machine, all_of_repository, play, play_all};
use dlock_testkit::client_histories::world::{Step, run};
use dlock_testkit::client_histories::{attempt, attempt_world, generated, validity};

/// Returns how many worlds are played: `DLOCK_CLIENT_WORLDS` or a few.
fn worlds() -> u64 {
    std::env::var("DLOCK_CLIENT_WORLDS").map_or(20_000, |text| text.parse().unwrap())
}

/// Returns the events of a hold, and what it answered.
fn told(trace: &[Step]) -> String {
    let line = |step: &Step| {
        format!("{} {} : {}\n", step.at, step.event.words().join(" "), validity::answers(&step.after).join(", "))
    };
    trace.iter().map(line).collect()
}

#[test]
fn no_guard_claims_a_moment_at_which_the_server_had_given_the_lock_to_another() {
    let began = std::time::Instant::now();
    for seed in 0..worlds() {
        let outcome = run(seed, None);
        let told = || outcome.traces.iter().map(|trace| told(trace)).collect::<Vec<_>>().join("\n");
        assert!(outcome.violation.is_none(), "seed {seed}: {:?}\n{}", outcome.violation, told());
    }
    let per_second = worlds() as f64 / began.elapsed().as_secs_f64();
    eprintln!("{} worlds, {per_second:.0} per second", worlds());
}

#[test]
fn every_planted_defect_is_found() {
    for planted in Planted::OF_VALIDITY {
        let found = (0..worlds()).filter(|seed| run(*seed, Some(planted)).violation.is_some()).count();
        eprintln!("{planted:?}: in {found} of {} worlds", worlds());
        assert!(found > 0, "{planted:?}");
    }
}

#[test]
fn no_acquisition_claims_refuses_or_leaves_what_it_must_not() {
    for seed in 0..worlds() {
        let violation = attempt_world::run(seed, None).violation;
        assert!(violation.is_none(), "seed {seed}: {violation:?}");
    }
}

#[test]
fn every_planted_defect_of_an_acquisition_is_found() {
    for planted in Planted::OF_ATTEMPT {
        let found = (0..worlds()).filter(|seed| attempt_world::run(*seed, Some(planted)).violation.is_some()).count();
        eprintln!("{planted:?}: in {found} of {} worlds", worlds());
        assert!(found > 0, "{planted:?}");
    }
}

#[test]
fn the_reference_answers_what_the_files_say() {
    let histories = all_of_repository();
    let count = play_all(&histories, "granted", || Box::new(validity::Player::default()));
    assert!(count >= 2000, "{count}");
    let count = play_all(&histories, "acquire", || Box::new(attempt::Player::default()));
    assert!(count >= 25, "{count}");
}

/// A defect that the invariants find is found by the files, too: so every package that plays them would notice it.
#[test]
fn the_files_find_every_planted_defect_of_one_hold_or_acquisition() {
    let histories = all_of_repository();
    let failing = |new: &dyn Fn() -> Box<dyn Machine>, kind: &str| {
        let all = histories.iter().filter(|history| history.lines[0].words[0] == kind);
        all.filter(|history| play(history, new).is_err()).count()
    };
    // A slot is shared by several holds, and a history has one.
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
fn the_generated_files_are_what_the_generator_writes() {
    let written = |name: &str| {
        let path = format!("{}/../../tests/clients/histories/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    assert!(
        written("generated-validity.txt") == generated::validity_file(generated::VALIDITIES)
            && written("generated-attempt.txt") == generated::attempt_file(generated::ATTEMPTS),
        "make client-histories"
    );
}
