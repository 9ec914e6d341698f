//! The grants: which commands granted what to whom.

use std::collections::BTreeMap;

use dlock_testkit::exclusion::Hold;

use crate::history::Reply;
use crate::history::{Call, Life};
use crate::time::Micros;
use crate::words::Words;

/// A command that was answered with a token.
#[derive(Clone, Debug)]
pub struct Grant {
    pub hold: Hold,
    /// When it was sent for the first time: the grant was not before that.
    pub sent: Micros,
    pub replied: Micros,
    pub lease_ms: u64,
    /// The keys of the command.
    pub keys: Vec<String>,
    /// The entries that it asked for.
    pub entries: u64,
    /// The most entries of all owners together, if it named a limit.
    pub limit: Option<u64>,
    /// Where it is: the life, and the call in it.
    pub life: usize,
    pub call: usize,
}

/// All grants, by worker and then by time.
pub fn of(lives: &[Life]) -> Vec<Grant> {
    lives.iter().enumerate().flat_map(|(number, life)| of_life(number, life)).collect()
}

fn of_life(number: usize, life: &Life) -> Vec<Grant> {
    let mut first_sent: BTreeMap<(&str, &str, &str, &str), Micros> = BTreeMap::new();
    let mut grants = Vec::new();
    for (at, call) in life.calls.iter().enumerate() {
        let Some(words) = Words::of(&call.command) else { continue };
        let Some(mode) = words.enters() else { continue };
        let sent = match words.value("REQUEST") {
            Some(id) => *first_sent.entry((words.verb, words.keys, words.third, id)).or_insert(call.sent),
            None => call.sent,
        };
        if let Some((replied, token)) = token_of(call) {
            let (lease_ms, entries) = (words.number("PX").unwrap_or(0), words.number("PERMITS").unwrap_or(1));
            let keys: Vec<String> = words.keys().map(str::to_owned).collect();
            for key in &keys {
                let hold = Hold { token, key: key.clone(), owner: words.third.to_owned(), mode };
                let (keys, limit) = (keys.clone(), words.limit());
                grants.push(Grant { hold, sent, replied, lease_ms, keys, entries, limit, life: number, call: at });
            }
        }
    }
    grants
}

fn token_of(call: &Call) -> Option<(Micros, u64)> {
    match &call.reply {
        Some((replied, Reply::Int(token))) => Some((*replied, token.unsigned_abs())),
        Some(_) | None => None,
    }
}
