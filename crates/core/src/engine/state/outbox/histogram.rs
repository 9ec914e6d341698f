//! How long waits and holds took.
//!
//! # Implementation details
//! Times up to 63 µs have a bucket each. Every power of two above has 32 buckets of the same width. A percentile is the
//! middle of its bucket: it is off by under 1.6 %. Counting a time is one addition.

/// Times in µs, counted in buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
}

/// A bucket's width is at most this fraction of its times, as a negative power of two: 1/32.
const PRECISION: u32 = 5;
/// The longest time that is counted: over two years, more than every lease. Longer times count as this.
const LONGEST: u64 = (1 << 46) - 1;
const BUCKETS: usize = bucket_of(LONGEST) + 1;

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram { counts: vec![0; BUCKETS].into(), total: 0 }
    }

    /// Counts one time.
    #[inline]
    pub(crate) fn record(&mut self, us: u64) {
        self.add(us, 1);
    }

    /// Counts `count` times, of which `sample` are some. The others are assumed to be distributed like these.
    pub(crate) fn record_all(&mut self, sample: &[u64], count: u64) {
        let len = (sample.len() as u64).max(1);
        for (index, us) in (0..).zip(sample) {
            self.add(*us, count / len + u64::from(index < count % len));
        }
    }

    #[inline]
    fn add(&mut self, us: u64, count: u64) {
        if let Some(bucket) = self.counts.get_mut(bucket_of(us)) {
            *bucket += count;
            self.total += count;
        }
    }

    /// Returns percentiles, as `INFO latencystats` writes them.
    pub fn percentiles(&self) -> String {
        let [p50, p99, p999] = [500, 990, 999].map(|thousandths| self.percentile(thousandths));
        format!("p50={p50}.000,p99={p99}.000,p99.9={p999}.000")
    }

    /// Returns the time in µs that this many thousandths of all times do not exceed; 0 if there are none.
    pub fn percentile(&self, thousandths: u64) -> u64 {
        let rank = u128::from(self.total) * u128::from(thousandths);
        let mut seen = 0;
        let reaches = |count: &u64| {
            seen += count;
            u128::from(seen) * 1000 >= rank && seen > 0
        };
        self.counts.iter().position(reaches).map_or(0, middle_of)
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "a bucket's index is small")]
const fn bucket_of(us: u64) -> usize {
    let us = if us > LONGEST { LONGEST } else { us };
    // The first two powers share a width of 1.
    let power = 63 - (us | ((2 << PRECISION) - 1)).leading_zeros();
    let shift = power - PRECISION;
    ((shift as u64) << PRECISION) as usize + (us >> shift) as usize
}

fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 << PRECISION {
        return bucket;
    }
    let shift = (bucket >> PRECISION) - 1;
    let first = (bucket - (shift << PRECISION)) << shift;
    first + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_without_times_are_zero() {
        assert_eq!([500, 990, 999].map(|thousandths| Histogram::new().percentile(thousandths)), [0; 3]);
    }

    #[test]
    fn a_percentile_is_off_by_under_two_percent() {
        for power in 0..46 {
            for us in [1 << power, (1 << power) + (1 << power) / 3, (2 << power) - 1] {
                let mut histogram = Histogram::new();
                histogram.record(us);
                let shown = histogram.percentile(999);
                assert!(shown.abs_diff(us) * 64 <= us, "{us} is shown as {shown}");
            }
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 1..BUCKETS {
            assert_eq!(bucket_of(middle_of(bucket)), bucket);
            assert!(middle_of(bucket - 1) < middle_of(bucket));
        }
        // The first bucket of two: 64 and 65.
        assert_eq!((bucket_of(64), bucket_of(65), middle_of(64)), (64, 64, 65));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert!((1 << 45..1 << 46).contains(&middle_of(BUCKETS - 1)), "the longest time has 46 bits");
    }

    #[test]
    fn percentiles_of_a_thousand_times() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|us| histogram.record(us * 1000));
        for (thousandths, us) in
            [(0, 1000), (1, 1000), (500, 500_000), (990, 990_000), (999, 999_000), (1000, 1_000_000_u64)]
        {
            let shown = histogram.percentile(thousandths);
            assert!(shown.abs_diff(us) * 50 <= us, "{thousandths}: {shown}");
        }
    }

    #[test]
    fn a_sample_counts_for_all() {
        let mut histogram = Histogram::new();
        histogram.record_all(&[10, 20, 30], 100);
        histogram.record_all(&[], 100);
        assert_eq!(histogram.total, 100);
        assert_eq!([1, 340, 341, 680, 1000].map(|at| histogram.percentile(at)), [10, 10, 20, 30, 30]);
    }
}
