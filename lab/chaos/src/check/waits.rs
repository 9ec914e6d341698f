//! Checks that no request waits longer than its `BLOCK`. (`come_to_rest` in `scenario.rs` checks that waits end.)

use super::Record;
use crate::history::{Call, Life};
use crate::plan::Scenario;
use crate::words::Words;

/// Returns a line for each request with a limit that was answered too late although no fault disturbed it.
pub fn check(record: &Record) -> Vec<String> {
    // In this scenario the clock jumps back, which makes waits longer.
    if record.scenario == Scenario::Clock {
        return Vec::new();
    }
    let is_late = |call: &&Call| {
        let Some((replied, limit_ms)) = answered(call) else { return false };
        let expected = call.sent + limit_ms * 1000 + SLACK_US;
        let is_disturbed = |begin, end| begin < replied && call.sent < end + AFTERMATH_US;
        limit_ms > 0 && replied > expected && !record.faults.iter().any(|fault| is_disturbed(fault.begin, fault.end))
    };
    let calls = record.lives.iter().flat_map(|life| &life.calls);
    calls
        .filter(is_late)
        .map(|call| format!("`{}`, sent at {}, was answered too late", call.command, call.sent))
        .collect()
}

/// Returns the duration of the longest wait that was answered, in ms.
pub fn longest_ms(lives: &[Life]) -> u64 {
    let waits = lives.iter().flat_map(|life| &life.calls).filter_map(|call| {
        let (replied, _) = answered(call)?;
        Some(replied.saturating_sub(call.sent) / 1000)
    });
    waits.max().unwrap_or(0)
}

/// Returns when a request with `BLOCK` was answered, in µs, and its limit, in ms (0: none). `None`: no such answer.
fn answered(call: &Call) -> Option<(u64, u64)> {
    let limit = Words::of(&call.command)?.number("BLOCK")?;
    Some((call.reply.as_ref()?.0, limit))
}

/// How late an answer may come on a busy machine.
const SLACK_US: u64 = 15_000_000;

/// How long after its end a fault may still delay answers.
const AFTERMATH_US: u64 = 2_000_000;
