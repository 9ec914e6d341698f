//! Fencing tokens rise: no token stands for two holds that were not taken together, and of two grants the later has the
//! higher one.

use std::collections::BTreeMap;

use dlock_testkit::exclusion::Hold;

use super::grants::Grant;
use crate::time::Micros;

/// Finds tokens that stand for two owners, two modes, or two holds that were not taken together.
pub fn given_twice(grants: &[Grant]) -> Vec<String> {
    let mut by_token: BTreeMap<u64, &Grant> = BTreeMap::new();
    let mut found = Vec::new();
    for grant in grants {
        let first = by_token.entry(grant.hold.token).or_insert(grant);
        let is_together = first.keys.contains(&grant.hold.key) || grant.keys.contains(&first.hold.key);
        if (&first.hold.owner, first.hold.mode) != (&grant.hold.owner, grant.hold.mode) || !is_together {
            let [one, other] =
                [&first.hold, &grant.hold].map(|Hold { key, owner, mode, .. }| format!("{key} to {owner} ({mode:?})"));
            found.push(format!("token {} was given twice: for {one} and for {other}", grant.hold.token));
        }
    }
    found
}

/// Finds holds whose first request was sent after another grant was known, and whose token is not higher than that
/// grant's.
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
