//! Nobody gets in where another is, and no hold is lost while its lease runs.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::Mode;

use super::Record;
use super::grants::Words;
use super::in_force::Span;
use crate::history::Reply;
use crate::time::Micros;

/// Two owners in one lock at once, one of them exclusively.
pub fn overlaps(spans: &[Span]) -> Vec<String> {
    let mut by_key: BTreeMap<&str, Vec<&Span>> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.from < span.until) {
        by_key.entry(&span.hold.key).or_default().push(span);
    }
    by_key.into_values().flat_map(overlaps_of_one).collect()
}

fn overlaps_of_one(mut spans: Vec<&Span>) -> Vec<String> {
    spans.sort_by_key(|span| span.from);
    let mut found = BTreeMap::new();
    let mut open: Vec<&Span> = Vec::new();
    for span in spans {
        open.retain(|other| span.from < other.until);
        for other in open.iter().filter(|other| conflict(span, other)) {
            // Once for two holds, not for every reply that tells of them.
            found.entry((&other.hold, &span.hold)).or_insert_with(|| describe(other, span));
        }
        open.push(span);
    }
    found.into_values().collect()
}

/// Whether two holds exclude each other.
pub fn conflict(a: &Span, b: &Span) -> bool {
    a.hold.owner != b.hold.owner && (a.hold.mode == Mode::Exclusive || b.hold.mode == Mode::Exclusive)
}

fn describe(first: &Span, second: &Span) -> String {
    format!(
        "two owners hold {} at once: {} ({:?}, token {}) until {} at least, {} ({:?}, token {}) from {} at the latest",
        first.hold.key,
        first.hold.owner,
        first.hold.mode,
        first.hold.token,
        first.until,
        second.hold.owner,
        second.hold.mode,
        second.hold.token,
        second.from
    )
}

/// Commands that were told that a hold is gone while it was in force.
pub fn lost_in_force(record: &Record, spans: &[Span]) -> Vec<String> {
    let by_token = by_token(spans);
    let mut found = BTreeMap::new();
    for Denial { token, sent, replied, command } in denials(record) {
        let of_it = by_token.get(&token).into_iter().flatten();
        if let Some(span) = of_it.into_iter().find(|span| span.from <= sent && replied < span.until) {
            found.entry(token).or_insert_with(|| {
                format!("a hold was lost: `{command}` got nil at {replied}, its lease runs until {}", span.until)
            });
        }
    }
    found.into_values().collect()
}

/// How many holds went with a primary that was killed, of those that somebody asked for afterwards.
pub fn lost_with_primary(record: &Record, spans: &[Span]) -> usize {
    let by_token = by_token(spans);
    let is_lost = |denial: &Denial| {
        let mut of_it = by_token.get(&denial.token).into_iter().flatten();
        of_it.any(|span| span.until <= denial.sent && denial.replied < span.until_if_kept)
    };
    denials(record).filter(is_lost).map(|denial| denial.token).collect::<BTreeSet<_>>().len()
}

fn by_token(spans: &[Span]) -> BTreeMap<u64, Vec<&Span>> {
    let mut by_token: BTreeMap<u64, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        by_token.entry(span.hold.token).or_default().push(span);
    }
    by_token
}

/// A command about one hold that got nil.
struct Denial<'a> {
    token: u64,
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
        Some(Denial { token, sent: call.sent, replied, command: &call.command })
    })
}
