//! The rules that every lock keeps under any contention: no two owners that exclude each other hold it at once, and
//! tokens rise.
//!
//! A harness records the span of time in which each hold was certainly in force, as its client saw it. The unit of time
//! is the same for all spans. At its end, the harness passes the spans to [`violations`].

use std::collections::BTreeMap;

use dlock_core::Mode;

/// A hold and its token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold {
    pub token: u64,
    pub key: String,
    pub owner: String,
    pub mode: Mode,
}

/// The time in which a hold is certainly in force, from `from` until `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub hold: Hold,
    pub from: u64,
    pub until: u64,
}

/// Returns a description of each violation, and none if all rules are kept.
pub fn violations(spans: &[Span]) -> Vec<String> {
    [overlaps(spans), not_rising(spans)].concat()
}

/// Returns a description of each pair of owners that exclude each other and held a lock at once.
pub fn overlaps<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Vec<String> {
    let mut found = BTreeMap::new();
    for spans in by_key(spans) {
        let mut open: Vec<&Span> = Vec::new();
        for span in spans {
            open.retain(|other| span.from < other.until);
            for other in open.iter().filter(|other| conflict(span, other)) {
                // Two holds may overlap in several spans, but are reported once.
                found.entry((&other.hold, &span.hold)).or_insert_with(|| describe(other, span));
            }
            open.push(span);
        }
    }
    found.into_values().collect()
}

/// Returns a description of each pair of holds that exclude each other and whose tokens do not rise, in the order in
/// which the holds were seen in force.
pub fn not_rising<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Vec<String> {
    let mut found = BTreeMap::new();
    for spans in by_key(spans) {
        // The last earlier spans are enough: a token that is too low shows against them, too.
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

/// Returns whether two holds exclude each other.
pub fn conflict(a: &Span, b: &Span) -> bool {
    a.hold.owner != b.hold.owner && (a.hold.mode == Mode::Exclusive || b.hold.mode == Mode::Exclusive)
}

/// Returns the spans of each lock that are not empty, sorted by their beginnings.
fn by_key<'a>(spans: impl IntoIterator<Item = &'a Span>) -> impl Iterator<Item = Vec<&'a Span>> {
    let mut by_key: BTreeMap<&str, Vec<&Span>> = BTreeMap::new();
    for span in spans.into_iter().filter(|span| span.from < span.until) {
        by_key.entry(&span.hold.key).or_default().push(span);
    }
    by_key.into_values().map(|mut spans| {
        spans.sort_by_key(|span| span.from);
        spans
    })
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

/// The number of earlier spans of a lock with which the token of a span is compared.
const LOOKED_BACK: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn span(owner: &str, mode: Mode, token: u64, from: u64, until: u64) -> Span {
        Span { hold: Hold { token, key: "k".into(), owner: owner.into(), mode }, from, until }
    }

    #[test]
    fn overlapping_owners_are_a_violation_if_one_excludes_the_other() {
        let alice = span("alice", Mode::Exclusive, 1, 10, 20);
        let bob = |mode, from| span("bob", mode, 2, from, 30);
        assert_eq!(violations(&[alice.clone(), bob(Mode::Exclusive, 20)]), [""; 0]);
        assert_eq!(violations(&[alice.clone(), bob(Mode::Exclusive, 19)]).len(), 1);
        assert_eq!(violations(&[bob(Mode::Shared, 19), alice]).len(), 1);
        assert_eq!(violations(&[bob(Mode::Shared, 19), span("carol", Mode::Shared, 3, 10, 20)]), [""; 0]);
    }

    #[test]
    fn falling_tokens_are_a_violation_unless_both_holds_are_shared() {
        let (shared, exclusive) = (Mode::Shared, Mode::Exclusive);
        let of = |first, second| [span("alice", first, 5, 1, 2), span("bob", second, 4, 3, 4)];
        assert_eq!(violations(&of(shared, exclusive)).len(), 1);
        assert_eq!(violations(&of(exclusive, shared)).len(), 1);
        assert_eq!(violations(&of(shared, shared)), [""; 0]);
    }
}
