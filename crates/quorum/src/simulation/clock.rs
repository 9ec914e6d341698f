//! Clocks that run a little fast or slow; those of servers may be set. Real time is µs since the beginning of the run.

use std::time::Duration;

/// µs of real time.
pub type Real = u64;

/// The monotonic clock of a client.
pub struct Monotonic {
    ppm: i64,
}

impl Monotonic {
    pub fn new(ppm: i64) -> Monotonic {
        Monotonic { ppm }
    }

    pub fn read(&self, now: Real) -> Duration {
        Duration::from_micros((BEGIN + stretched(now as i64, self.ppm)) as u64)
    }

    /// Returns the first moment at which the clock shows `time` or more.
    pub fn when(&self, time: Duration) -> Real {
        let shown = time.as_micros() as i64 - BEGIN;
        let mut real = (shown - stretched(shown, self.ppm) + shown).max(0) as u64;
        while self.read(real) < time {
            real += 1;
        }
        real
    }
}

/// The wall clock of a server, which is wrong and may be set.
#[derive(Clone)]
pub struct Wall {
    ppm: i64,
    offset: i64,
}

impl Wall {
    pub fn new(ppm: i64, offset: i64) -> Wall {
        Wall { ppm, offset }
    }

    /// Returns the time that the clock shows, in unix µs.
    pub fn read(&self, now: Real) -> u64 {
        (EPOCH + stretched(now as i64, self.ppm) + self.offset) as u64
    }

    pub fn set(&mut self, by: i64) {
        self.offset += by;
    }

    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Returns a moment at which the clock, if nobody sets it, shows `unix_us` or more.
    pub fn when(&self, unix_us: u64, now: Real) -> Real {
        // The slowest clock of a simulation shows 499 µs in 500 µs (`DRIFT_PPM`). Both divisions round, by 1 µs at most.
        let left = (unix_us as i64 - self.read(now) as i64).max(0);
        now + (left + left / 499 + 2) as u64
    }
}

/// Returns the time that a clock measures while `time` passes, if the clock is fast by `ppm`.
fn stretched(time: i64, ppm: i64) -> i64 {
    time + time * ppm / 1_000_000
}

/// The time that a client's clock shows at the beginning.
const BEGIN: i64 = 1_000_000_000;

/// The unix time in µs that a server's clock without an offset shows at the beginning.
const EPOCH: i64 = 1_700_000_000_123_456;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_shows_a_time_at_the_moment_that_it_names() {
        for ppm in [-2000, -1999, 0, 2000] {
            for (now, left) in [(0, 1), (7, 499), (1_000_003, 500), (999, 1_000_000), (12_345, 3_600_000_000)] {
                let clock = Wall::new(ppm, 5);
                let time = clock.read(now) + left;
                assert!(clock.read(clock.when(time, now)) >= time, "{left} µs after {now}, {ppm} ppm");
            }
        }
    }
}
