//! The checker: what histories must not show, whatever was done to servers and clients.
//!
//! A finding is certainly a violation. Where a history leaves open what happened (a reply that never came, a lease
//! that may just have ended), the checker decides in favor of the server.
//!
//! The testkit's `exclusion` checks that no two owners are in one lock.
//!
//! | file | knows |
//! |---|---|
//! | `grants` | which commands granted what |
//! | `in_force` | from when to when a hold was certainly in force |
//! | `losses` | no hold is lost |
//! | `sessions` | a named session that lives loses no hold, and one that is over keeps none |
//! | `tokens` | fencing tokens rise, whatever the lock |
//! | `fences` | fenced counters lose nothing |
//! | `permits` | never more entries than the limit |
//! | `several` | all of several locks, or none |
//! | `exported` | the history as others can check it |
//! | `waits` | nobody waits longer than asked |

pub mod exported;
mod fences;
mod grants;
mod in_force;
mod losses;
mod permits;
mod sessions;
mod several;
mod tokens;
mod waits;

use std::collections::BTreeMap;

use dlock_testkit::exclusion;

use crate::counters::Counter;
use crate::history::Life;
use crate::history::Reply;
use crate::observer::Seen;
use crate::plan::{Kind, Scenario};
use crate::time::{Micros, now};

/// A fault of servers or clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    /// A time before it was done.
    pub begin: Micros,
    /// A time after it was over.
    pub end: Micros,
    /// By how much the server's clock jumped; forward if positive.
    pub jump_us: i64,
    /// The key that was deleted.
    pub key: Option<&'static str>,
}

impl Fault {
    /// Returns a fault that began then and is over now.
    pub fn new(kind: Kind, begin: Micros) -> Fault {
        Fault { kind, begin, end: now(), jump_us: 0, key: None }
    }
}

/// All that is known of a scenario.
pub struct Record {
    pub scenario: Scenario,
    pub lives: Vec<Life>,
    pub faults: Vec<Fault>,
    pub counters: BTreeMap<String, Counter>,
    pub seen: Seen,
}

/// The findings of the checker.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Broken promises. Empty if all is well.
    pub violations: Vec<String>,
    pub commands: usize,
    pub grants: usize,
    /// Named sessions that were opened.
    pub sessions: usize,
    /// How often a client was cut off from its server.
    pub cut_off: usize,
    /// Spans of time in which a hold was certainly in force: what exclusion is checked on.
    pub spans: usize,
    /// Writes that the counters took, and requests that they refused.
    pub writes: usize,
    pub refused: u64,
    /// Holds that were lost with a killed primary, and of which a command got nil afterwards, within the lease.
    pub lost: usize,
    /// The longest wait that ended, in ms.
    pub longest_wait_ms: u64,
    /// Errors that clients got, by code, and how often no reply came (`lost`). They show that the faults were felt.
    pub errors: BTreeMap<String, usize>,
}

/// Checks everything.
pub fn check(record: &Record) -> Findings {
    let grants = grants::of(&record.lives);
    let in_force = in_force::of(record, &grants);
    let found = [
        exclusion::overlaps(in_force.iter().map(|hold| &hold.span)),
        exclusion::not_rising(in_force.iter().map(|hold| &hold.span)),
        losses::lost_in_force(record, &in_force),
        sessions::lost_alive(record, &grants),
        sessions::outlived(record),
        tokens::given_twice(&grants),
        tokens::not_rising(&grants),
        permits::over_limit(record, &grants, &in_force),
        several::partly_taken(record),
        fences::check(record),
        waits::check(record),
    ];
    Findings {
        violations: found.into_iter().flat_map(summed_up).collect(),
        commands: record.lives.iter().map(|life| life.calls.len()).sum(),
        grants: grants.len(),
        sessions: sessions::count(&record.lives),
        cut_off: record.lives.iter().map(|life| life.cut_off).sum(),
        spans: in_force.len(),
        writes: record.counters.values().map(|counter| counter.writes.len()).sum(),
        refused: record.counters.values().map(|counter| counter.refused).sum(),
        lost: losses::lost_with_primary(record, &in_force),
        longest_wait_ms: waits::longest_ms(&record.lives),
        errors: errors(&record.lives),
    }
}

/// Returns the first few violations of a kind, and how many more there are.
fn summed_up(mut violations: Vec<String>) -> Vec<String> {
    let more = violations.len().saturating_sub(MOST_SHOWN);
    if more > 0 {
        violations.truncate(MOST_SHOWN);
        violations.push(format!("and {more} more of this kind"));
    }
    violations
}

const MOST_SHOWN: usize = 5;

fn errors(lives: &[Life]) -> BTreeMap<String, usize> {
    let mut errors = BTreeMap::new();
    for call in lives.iter().flat_map(|life| &life.calls) {
        let code = match &call.reply {
            None => "lost",
            Some((_, Reply::Error(text))) => text.split(' ').next().unwrap_or_default(),
            Some(_) => continue,
        };
        *errors.entry(code.to_owned()).or_default() += 1;
    }
    errors
}

#[cfg(test)]
mod tests;
