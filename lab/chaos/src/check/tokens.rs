//! Fencing tokens rise: no token stands for two holds, and of two grants the later has the higher one.

use std::collections::BTreeMap;

use super::exclusion::conflict;
use super::grants::{Grant, Hold};
use super::in_force::Span;
use crate::time::Micros;

/// A token that stands for two holds.
pub fn given_twice(grants: &[Grant]) -> Vec<String> {
    let mut by_token: BTreeMap<u64, &Hold> = BTreeMap::new();
    let mut found = Vec::new();
    for Grant { hold, .. } in grants {
        let first = by_token.entry(hold.token).or_insert(hold);
        if *first != hold {
            found.push(format!(
                "token {} was given twice: for {} to {} and for {} to {}",
                hold.token, first.key, first.owner, hold.key, hold.owner
            ));
        }
    }
    found
}

/// A hold whose first request was sent after another grant was known has a higher token than that.
pub fn not_rising(grants: &[Grant]) -> Vec<String> {
    // The first grant of each hold: later ones entered it again, or were repeated.
    let mut first: BTreeMap<&Hold, &Grant> = BTreeMap::new();
    for grant in grants {
        let known = first.entry(&grant.hold).or_insert(grant);
        if grant.sent < known.sent {
            *known = grant;
        }
    }
    let mut known: Vec<(Micros, u64)> = grants.iter().map(|grant| (grant.replied, grant.hold.token)).collect();
    known.sort_unstable();
    let mut later: Vec<&Grant> = first.into_values().collect();
    later.sort_unstable_by_key(|grant| grant.sent);
    let mut known = known.into_iter().peekable();
    let (mut highest, mut found) = (0, Vec::new());
    for grant in later {
        while let Some((_, token)) = known.next_if(|(replied, _)| *replied < grant.sent) {
            highest = highest.max(token);
        }
        if grant.hold.token <= highest {
            found.push(format!(
                "token {} of {} for {} does not rise: {highest} was known before it was asked for",
                grant.hold.token, grant.hold.owner, grant.hold.key
            ));
        }
    }
    found
}

/// Holds that exclude each other come one after the other, in the order in which they were seen in force.
pub fn not_rising_in_one_lock(spans: &[Span]) -> Vec<String> {
    let mut by_key: BTreeMap<&str, Vec<&Span>> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.from < span.until) {
        by_key.entry(&span.hold.key).or_default().push(span);
    }
    let mut found = BTreeMap::new();
    for mut spans in by_key.into_values() {
        spans.sort_by_key(|span| span.from);
        // Enough of those before: a token that went down would show against one of them.
        for (at, span) in spans.iter().enumerate() {
            for before in spans.iter().take(at).rev().take(LOOKED_BACK) {
                if conflict(before, span) && before.hold.token >= span.hold.token {
                    found.entry((&before.hold, &span.hold)).or_insert_with(|| {
                        format!(
                            "tokens of {} do not rise: {} had {}, then {} had {}",
                            span.hold.key, before.hold.owner, before.hold.token, span.hold.owner, span.hold.token
                        )
                    });
                }
            }
        }
    }
    found.into_values().collect()
}

const LOOKED_BACK: usize = 200;
