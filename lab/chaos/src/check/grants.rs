//! The grants in the histories of workers: which command gave which hold to which owner.

use std::collections::BTreeMap;

use dlock_testkit::exclusion::Hold;

use crate::history::Reply;
use crate::history::{Call, Life};
use crate::time::Micros;
use crate::words::Words;

/// A hold that a command was granted. A command for several keys has a grant for each.
#[derive(Clone, Debug)]
pub struct Grant {
    pub hold: Hold,
    /// When the command was sent for the first time: the grant was not before that.
    pub sent: Micros,
    pub replied: Micros,
    pub lease_ms: u64,
    /// The keys of the command.
    pub keys: Vec<String>,
    /// The number of entries that the command asked for.
    pub entries: u64,
    /// The most entries of all owners together, if the command named a limit.
    pub limit: Option<u64>,
    /// The places of the worker's life among the lives, and of the call in that life.
    pub life: usize,
    pub call: usize,
}

/// Returns all grants, by worker and then by time.
pub fn of(lives: &[Life]) -> Vec<Grant> {
    lives.iter().enumerate().flat_map(|(number, life)| of_life(number, life)).collect()
}

fn of_life(number: usize, life: &Life) -> Vec<Grant> {
    let mut first_sent: BTreeMap<(&str, &str, &str, &str), Micros> = BTreeMap::new();
    let mut grants = Vec::new();
    for (at, call) in life.calls.iter().enumerate() {
        let Some(words) = Words::of(&call.command) else { continue };
        let Some(mode) = words.enters() else { continue };
        // A repeat has the id of the command that it repeats, which may have been granted before.
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

/// Returns the time and the token of the reply, if it is a token.
fn token_of(call: &Call) -> Option<(Micros, u64)> {
    match &call.reply {
        Some((replied, Reply::Int(token))) => Some((*replied, token.unsigned_abs())),
        Some(_) | None => None,
    }
}
