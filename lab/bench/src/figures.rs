//! Figures as they come: order statistics, and whether a target was met.

use crate::error::Error;

/// The measured values, in ascending order.
pub struct Sample(Vec<f64>);

impl Sample {
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The smallest value that this many in a thousand do not exceed.
    pub fn per_mille(&self, rank: usize) -> f64 {
        let index = (self.0.len() * rank).div_ceil(1000).saturating_sub(1);
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }

    pub fn median(&self) -> f64 {
        self.per_mille(500)
    }

    pub fn most(&self) -> f64 {
        self.per_mille(1000)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Prints each figure as soon as it is there and remembers what missed its target.
#[derive(Default)]
pub struct Sheet {
    missed: Vec<String>,
}

impl Sheet {
    pub fn head(&self, text: &str) {
        println!("\n{text}");
    }

    /// A figure without a target.
    pub fn note(&self, label: &str, value: &str) {
        println!("      {label}: {value}");
    }

    /// Judges a figure, whose limit is `at_most`. NaN stands for a figure that was not measured, and misses.
    pub fn judge(&mut self, label: &str, value: f64, at_most: f64, unit: &str) {
        let is_met = value <= at_most;
        let line = format!("{label}: {value:.3}{unit}, at most {at_most}{unit}");
        println!("{:<6}{line}", if is_met { "ok" } else { "OVER" });
        if !is_met {
            self.missed.push(line);
        }
    }

    pub fn verdict(self) -> Result<(), Error> {
        if self.missed.is_empty() { Ok(()) } else { Err(Error::OverLimit(self.missed.join("; "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_values_that_were_measured() {
        let sample = Sample::new((1..=2000).rev().map(f64::from));
        assert_eq!((sample.median(), sample.per_mille(999)), (1000.0, 1998.0));
        assert_eq!((sample.per_mille(0), sample.most()), (1.0, 2000.0));
        assert_eq!(Sample::new([3.0]).per_mille(999), 3.0);
        assert!(Sample::new([]).median().is_nan());
    }

    #[test]
    fn what_was_not_measured_misses_its_target() {
        for (value, met) in [(1.0, true), (1.01, false), (f64::NAN, false)] {
            let mut sheet = Sheet::default();
            sheet.judge("a", value, 1.0, " ms");
            assert_eq!(sheet.verdict().is_ok(), met);
        }
    }
}
