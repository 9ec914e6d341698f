//! Reproducible choices (SplitMix64).

pub struct Random(u64);

impl Random {
    /// The seed of `DLOCK_SEED`, or this one.
    pub fn seeded(seed: u64) -> Self {
        let seed = std::env::var("DLOCK_SEED").map_or(seed, |text| text.parse().expect("a number in DLOCK_SEED"));
        eprintln!("random operations of DLOCK_SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// One in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
