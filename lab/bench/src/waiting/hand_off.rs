//! How long the next in the queue waits after the release was sent.

use super::Open;
use super::ring::{Resource, Ring};
use crate::error::Error;
use crate::figures::{Sample, Sheet};
use crate::server::Programs;

/// A lock and a list, with as many waiters each, on one server, in turns. The ratio differs between servers by a few
/// percent, so several are measured.
pub fn measure(programs: &Programs, sheet: &mut Sheet) -> Result<(), Error> {
    for waiters in WAITERS {
        let (mut locks, mut lists) = (Vec::new(), Vec::new());
        for _ in 0..SERVERS {
            let mut open = programs.open()?;
            let mut lock = Ring::form(open.crowd(waiters + 1)?, Resource::Lock, b"lock:000000", 0, &mut open.control)?;
            let mut list =
                Ring::form(open.crowd(waiters + 1)?, Resource::Element, b"list:000000", 0, &mut open.control)?;
            for round in 0..=ROUNDS {
                let times = [median(&mut lock, &mut open)?, median(&mut list, &mut open)?];
                // The first round is to warm up.
                if round > 0 {
                    locks.push(times[0]);
                    lists.push(times[1]);
                }
            }
        }
        let ratio = Sample::new(locks.iter().zip(&lists).map(|(lock, list)| lock / list));
        sheet.note(
            &format!("{waiters} waiters"),
            &format!(
                "lock {:.1} us, list {:.1} us (medians)",
                Sample::new(locks).median(),
                Sample::new(lists).median()
            ),
        );
        sheet.judge(&format!("lock / list with {waiters} waiters"), ratio.median(), AT_MOST, "");
    }
    Ok(())
}

/// Returns the median of a round, in microseconds. Each time the giver is back in the queue before the next one gives.
fn median(ring: &mut Ring, open: &mut Open) -> Result<f64, Error> {
    let mut times = Vec::with_capacity(PASSES);
    for _ in 0..PASSES {
        times.push(ring.pass()?.as_secs_f64() * 1e6);
        open.control.settle()?;
    }
    Ok(Sample::new(times).median())
}

const WAITERS: [usize; 3] = [2, 64, 512];
const SERVERS: usize = 7;
const ROUNDS: usize = 30;
const PASSES: usize = 200;
const AT_MOST: f64 = 1.05;
