//! How long the next in the queue waits after the release was sent.

use super::ring::{Baton, Ring};
use super::{House, Open};
use crate::error::Error;
use crate::figures::{Sample, Sheet};

/// One lock and one list, with as many waiters each, on one server, in turns.
pub fn measure(house: &House, sheet: &mut Sheet) -> Result<(), Error> {
    for waiters in WAITERS {
        let mut open = house.open()?;
        let mut lock = Ring::form(open.crowd(waiters + 1)?, Baton::Lock, b"lock:000000", 0, &mut open.control)?;
        let mut list = Ring::form(open.crowd(waiters + 1)?, Baton::Element, b"list:000000", 0, &mut open.control)?;
        let (mut locks, mut lists) = (Vec::new(), Vec::new());
        for _ in 0..=ROUNDS {
            locks.push(median(&mut lock, &mut open)?);
            lists.push(median(&mut list, &mut open)?);
        }
        // The first round was to warm up.
        let ratio = Sample::new(locks.iter().zip(&lists).skip(1).map(|(lock, list)| lock / list));
        let median = |times: Vec<f64>| Sample::new(times.into_iter().skip(1)).median();
        sheet.note(
            &format!("{waiters} waiters"),
            &format!("lock {:.1} us, list {:.1} us (medians)", median(locks), median(lists)),
        );
        sheet.judge(&format!("lock / list with {waiters} waiters"), ratio.median(), AT_MOST, "");
    }
    Ok(())
}

/// Of one round, in microseconds. Each time the giver is back in the queue before the next one gives.
fn median(ring: &mut Ring, open: &mut Open) -> Result<f64, Error> {
    let mut times = Vec::with_capacity(PASSES);
    for _ in 0..PASSES {
        times.push(ring.pass()?.as_secs_f64() * 1e6);
        open.control.settle()?;
    }
    Ok(Sample::new(times).median())
}

const WAITERS: [usize; 3] = [2, 64, 512];
const ROUNDS: usize = 31;
const PASSES: usize = 200;
const AT_MOST: f64 = 1.1;
