//! `dlock-bench times`: every contender timed in one interleaved run, on servers of its own.
//!
//! The contenders of a comparison run in turns, so that a busy machine slows all sides alike; a ratio is taken within a
//! round, and of the rounds the median, the least and the most are given.

pub mod attacks;
mod contended;
pub mod freedom;
pub mod growth;
pub mod kept;
mod machine;
mod memory;
mod pairs;
pub mod parts;
mod readers;
pub mod several;
pub mod stalls;
mod team;

use crate::figures::Sample;
use crate::ledger::{Figure, Ledger};

pub use contended::{WAITERS, Way};
pub use pairs::PIPELINES;
pub use team::Keys;

/// The figures of one contender over the rounds, and their ratios to another's in the same round.
fn note_rounds(ledger: &mut Ledger, [sort, ratio_sort]: [&str; 2], name: &str, own: &[f64], others: &[f64]) {
    let mut note = |sort: &str, values: Vec<f64>| {
        // A round in which nothing was handed over has no median.
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        if !values.is_empty() {
            ledger.note(format!("{sort}/{name}"), Figure::of_rounds(&Sample::new(values)));
        }
    };
    note(sort, own.to_vec());
    note(ratio_sort, own.iter().zip(others).map(|(own, other)| own / other).collect());
}
