//! Shortens a history that fails: leaves events out, many at first, then one by one, as long as the rest still fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::plan::Plan;
use crate::run::{Counts, play};

/// Plays a plan. The error is the message of the panic with which a check has failed.
pub fn outcome(plan: &Plan) -> Result<Counts, String> {
    catch_unwind(AssertUnwindSafe(|| play(plan))).map_err(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// Returns a plan from which no single event can be left out without hiding the failure, and the failure's message.
pub fn shortest(plan: &Plan) -> (Plan, String) {
    let mut best = plan.clone();
    let mut why = match outcome(&best) {
        Err(why) => why,
        Ok(_) => return (best, "it does not fail".to_owned()),
    };
    let mut size = best.events.len().div_ceil(2).max(1);
    loop {
        let (mut at, mut has_shrunk) = (0, false);
        while at < best.events.len() {
            let mut shorter = best.clone();
            let removed = shorter.events.drain(at..(at + size).min(best.events.len()));
            let passed: u64 = removed.map(|event| event.after_us).sum();
            match outcome(&shorter).err().or_else(|| {
                // The failure may need the time that the removed events took. The next event gets this time.
                shorter.events.get_mut(at)?.after_us += passed;
                outcome(&shorter).err()
            }) {
                Some(shorter_why) => (best, why, has_shrunk) = (shorter, shorter_why, true),
                None => at += size,
            }
        }
        match size {
            1 if !has_shrunk => return (best, why),
            _ => size = (size / 2).max(1),
        }
    }
}
