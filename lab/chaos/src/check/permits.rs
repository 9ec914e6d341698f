//! Never more entries of a shared lock than the limit of the request that was granted last.
//!
//! Tokens tell the order of grants. Of two holds that are in force at one time, the one with the lower token was granted
//! first, and was live when the other was granted. So the entries of both together are within the limit of the other
//! request.

use std::collections::BTreeMap;

use dlock_core::Mode;
use dlock_testkit::exclusion::{Hold, Span};

use super::Record;
use super::grants::Grant;
use super::in_force::Seen;
use crate::time::Micros;
use crate::words::Words;

/// The permits that an owner took with its first request, and keeps until it begins to release.
struct Permits<'a> {
    grant: &'a Grant,
    until: Micros,
}

/// Requests that got permits beyond their limit.
pub fn over_limit(record: &Record, grants: &[Grant], spans: &[Seen]) -> Vec<String> {
    let permits = first_grants(record, grants);
    let mut by_key: BTreeMap<&str, Vec<(&Span, &Permits<'_>)>> = BTreeMap::new();
    for Seen { span, .. } in spans {
        if let Some(permits) = permits.get(&span.hold).filter(|permits| span.from < permits.until) {
            by_key.entry(&span.hold.key).or_default().push((span, permits));
        }
    }
    let mut found = BTreeMap::new();
    for mut spans in by_key.into_values() {
        spans.sort_by_key(|(span, _)| span.from);
        let mut open: Vec<(&Span, &Permits<'_>)> = Vec::new();
        for (span, of_it) in spans {
            open.retain(|(other, permits)| span.from < other.until.min(permits.until));
            open.push((span, of_it));
            judge(&open, &mut found);
        }
    }
    found.into_values().collect()
}

/// Judges the holds that are in force at one time.
fn judge<'a>(open: &[(&'a Span, &Permits<'a>)], found: &mut BTreeMap<&'a Hold, String>) {
    // More than one reply may tell of a hold.
    let holds: BTreeMap<u64, &Permits<'_>> = open.iter().map(|(span, permits)| (span.hold.token, *permits)).collect();
    let mut taken = 0;
    for permits in holds.values() {
        let Grant { hold, entries, limit, .. } = permits.grant;
        taken += entries;
        if let Some(limit) = limit.filter(|limit| taken > *limit) {
            found.entry(hold).or_insert_with(|| {
                let (key, owner, token) = (&hold.key, &hold.owner, hold.token);
                format!(
                    "permits of {key} over the limit: {owner} got {entries} (token {token}), {taken} of {limit} taken"
                )
            });
        }
    }
}

fn first_grants<'a>(record: &Record, grants: &'a [Grant]) -> BTreeMap<&'a Hold, Permits<'a>> {
    let mut first = BTreeMap::new();
    for grant in grants.iter().filter(|grant| grant.hold.mode == Mode::Shared) {
        first.entry(&grant.hold).or_insert_with(|| Permits { grant, until: given_back(record, grant) });
    }
    first
}

/// Returns when the owner first sent a release of any of the permits of this grant.
fn given_back(record: &Record, grant: &Grant) -> Micros {
    let calls = record.lives.get(grant.life).into_iter().flat_map(|life| life.calls.iter().skip(grant.call + 1));
    let mut releases = calls.filter(|call| {
        Words::of(&call.command)
            .is_some_and(|words| words.verb == "RELEASE" && words.names(&grant.hold.key, &grant.hold.owner))
    });
    releases.next().map_or(Micros::MAX, |call| call.sent)
}
