//! Random choices that a seed repeats, for tests, fuzzers and simulations.
//!
//! A seed that once showed a failure must show it again, so the numbers of a seed never change.

use std::ops::Range;

/// Returns the choices of the seed in `DLOCK_SEED`, or of `seed` if the variable is not set. Prints the seed.
pub fn seeded(seed: u64) -> Random {
    let seed = std::env::var("DLOCK_SEED").map_or(seed, |text| text.parse().expect("a number in DLOCK_SEED"));
    eprintln!("random operations of DLOCK_SEED={seed}");
    Random::seeded(seed)
}

/// A random number generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the choices of a seed.
    pub fn seeded(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the choices of a seed for a purpose, whose hash (FNV-1a) is mixed into the seed.
    pub fn of(seed: u64, purpose: &str) -> Random {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let mut random = Random(purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix));
        random.number();
        random
    }

    /// Draws a number of 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// Draws a number of a range, or its start if the range is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// Draws a number from `-most` to `most`.
    pub fn around_zero(&mut self, most: u64) -> i64 {
        self.below(2 * most + 1).cast_signed() - most.cast_signed()
    }

    /// Returns true in one of `many` draws on average.
    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Returns true in `times` of a thousand draws on average.
    pub fn permille(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// Draws an element. The slice must not be empty.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        self.pick_if_any(from).expect("something to pick from")
    }

    /// Draws an element, or `None` if the slice is empty. Uses up a number in either case.
    pub fn pick_if_any<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len() as u64);
        from.get(usize::try_from(at).ok()?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_keeps_its_numbers() {
        let mut random = Random::seeded(7);
        let first = [random.number(), random.number(), random.number()];
        assert_eq!(first, [7_191_089_600_892_374_487, 309_689_372_594_955_804, 16_616_101_746_815_609_346]);
        assert_eq!(random.pick_if_any::<u8>(&[]), None);
        assert_eq!((random.pick(&[1, 2, 3]), random.below(0), random.below(1000)), (2, 0, 798));
        assert!(random.one_in(3));
        assert_eq!(random.number(), 2_476_628_477_891_077_985);
    }

    #[test]
    fn a_seed_and_a_purpose_keep_their_numbers() {
        let mut random = Random::of(110, "k0-1");
        assert_eq!((random.below(1000), random.within(20..1501), random.pick(&[0, 1, 2])), (530, 611, 2));
        assert!(!random.one_in(4));
        assert_eq!(random.number(), 10_387_611_742_175_871_626);
    }

    #[test]
    fn ranges_and_odds_keep_their_numbers() {
        // The simulation of the quorum derives its random numbers from seed 7 like this.
        let mut random = Random::seeded(7_u64.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1));
        assert_eq!((random.within(200..1000), random.within(5..5)), (322, 5));
        assert_eq!((random.around_zero(200), random.around_zero(200)), (68, -50));
        assert_eq!((random.pick(&[1, 2, 3, 4, 5]), random.permille(600)), (4, false));
        assert_eq!(random.number(), 17_177_799_987_674_469_449);
    }
}
