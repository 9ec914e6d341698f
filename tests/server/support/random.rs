//! Reproducible choices.

pub use dlock_testkit::random::Random;

/// The choices of the seed in `DLOCK_SEED`, or of this one.
pub fn seeded(seed: u64) -> Random {
    let seed = std::env::var("DLOCK_SEED").map_or(seed, |text| text.parse().expect("a number in DLOCK_SEED"));
    eprintln!("random operations of DLOCK_SEED={seed}");
    Random::seeded(seed)
}
