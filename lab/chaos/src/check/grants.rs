//! Which commands granted what to whom.

use std::collections::BTreeMap;

use dlock_core::Mode;
use dlock_testkit::exclusion::Hold;

use crate::history::Reply;
use crate::history::{Call, Life};
use crate::time::Micros;

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

/// The parts of a command.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    pub verb: &'a str,
    /// One, but for `MACQUIRE`; with spaces between them.
    keys: &'a str,
    /// The owner; the token of `CHECK`.
    pub third: &'a str,
    rest: &'a str,
}

impl<'a> Words<'a> {
    /// `None` for what is not about a lock.
    pub fn of(command: &'a str) -> Option<Words<'a>> {
        let (verb, rest) = command.strip_prefix("DLOCK.")?.split_once(' ')?;
        let (count, rest) = match verb {
            "MACQUIRE" => rest.split_once(' ').and_then(|(count, rest)| Some((count.parse().ok()?, rest)))?,
            _ => (1_usize, rest),
        };
        let (end, _) = rest.match_indices(' ').nth(count.checked_sub(1)?)?;
        let (keys, rest) = rest.split_at_checked(end)?;
        let rest = rest.trim_start();
        let (third, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(Words { verb, keys, third, rest })
    }

    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.keys.split(' ')
    }

    /// The first key, which is the only one but for `MACQUIRE`.
    pub fn key(&self) -> &'a str {
        self.keys().next().unwrap_or_default()
    }

    /// Returns whether it is a command of this owner on this key.
    pub fn names(&self, key: &str, owner: &str) -> bool {
        self.third == owner && self.keys().any(|other| other == key)
    }

    /// The mode in which an acquiring command enters; `None` for others.
    pub fn enters(&self) -> Option<Mode> {
        match self.verb {
            "ACQUIRE" | "RACQUIRE" | "WLOCK" | "MACQUIRE" => Some(Mode::Exclusive),
            "RLOCK" | "SACQUIRE" => Some(Mode::Shared),
            _ => None,
        }
    }

    /// Returns the limit of a `SACQUIRE`.
    pub fn limit(&self) -> Option<u64> {
        self.first_number().filter(|_| self.verb == "SACQUIRE")
    }

    pub fn has(&self, option: &str) -> bool {
        self.rest.split_whitespace().any(|word| word == option)
    }

    /// Returns the word after an option.
    pub fn value(&self, option: &str) -> Option<&'a str> {
        let mut words = self.rest.split_whitespace();
        words.find(|word| *word == option)?;
        words.next()
    }

    /// Returns the fourth word, if it is a number.
    pub fn first_number(&self) -> Option<u64> {
        self.rest.split_whitespace().next()?.parse().ok()
    }

    pub fn number(&self, option: &str) -> Option<u64> {
        self.value(option)?.parse().ok()
    }
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
