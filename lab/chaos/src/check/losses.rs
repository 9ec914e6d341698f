//! No hold is lost while its lease runs.

use std::collections::{BTreeMap, BTreeSet};

use super::Record;
use super::in_force::Seen;
use crate::history::Reply;
use crate::time::Micros;
use crate::words::Words;

/// Returns a sentence for each hold that was in force when a command about it was told that it is gone.
pub fn lost_in_force(record: &Record, spans: &[Seen]) -> Vec<String> {
    let by_token = by_token(spans);
    let mut found = BTreeMap::new();
    for Denial { hold, sent, replied, command } in denials(record) {
        let of_hold = by_token.get(&hold).into_iter().flatten();
        if let Some(span) = of_hold.into_iter().find(|Seen { span, .. }| span.from <= sent && replied < span.until) {
            found.entry(hold).or_insert_with(|| {
                format!("a hold was lost: `{command}` got nil at {replied}, its lease runs until {}", span.span.until)
            });
        }
    }
    found.into_values().collect()
}

/// Counts the holds that were lost with a killed primary, about which a command got nil within the lease.
pub fn lost_with_primary(record: &Record, spans: &[Seen]) -> usize {
    let by_token = by_token(spans);
    let is_lost = |denial: &Denial| {
        let mut of_hold = by_token.get(&denial.hold).into_iter().flatten();
        of_hold.any(|in_force| in_force.span.until <= denial.sent && denial.replied < in_force.until_if_kept)
    };
    denials(record).filter(is_lost).map(|denial| denial.hold).collect::<BTreeSet<_>>().len()
}

fn by_token(spans: &[Seen]) -> BTreeMap<(u64, &str), Vec<&Seen>> {
    let mut by_token: BTreeMap<(u64, &str), Vec<&Seen>> = BTreeMap::new();
    for seen in spans {
        by_token.entry((seen.span.hold.token, &seen.span.hold.key)).or_default().push(seen);
    }
    by_token
}

/// A command about one hold that got nil.
struct Denial<'a> {
    /// The token and key of the hold.
    hold: (u64, &'a str),
    sent: Micros,
    replied: Micros,
    command: &'a str,
}

fn denials(record: &Record) -> impl Iterator<Item = Denial<'_>> {
    record.lives.iter().flat_map(|life| &life.calls).filter_map(|call| {
        let words = Words::of(&call.command)?;
        let Some((replied, Reply::Nil)) = call.reply else { return None };
        let token = match words.verb {
            "CHECK" => words.third.parse().ok()?,
            "RENEW" | "RELEASE" => words.number("TOKEN")?,
            _ => return None,
        };
        Some(Denial { hold: (token, words.key()), sent: call.sent, replied, command: &call.command })
    })
}
