//! The rules that hold for a lock under any contention: nobody is in beside an owner that excludes it, and tokens rise.
//!
//! A harness writes down from when to when each hold was certainly in force, as its client saw it, in any unit of time
//! that is the same for all. At its end it has the spans checked.

use std::collections::BTreeMap;

use dlock_core::Mode;

/// A token and the hold that it stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold {
    pub token: u64,
    pub key: String,
    pub owner: String,
    pub mode: Mode,
}

/// A hold is in force from `from` until `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub hold: Hold,
    pub from: u64,
    pub until: u64,
}

/// Everything that is wrong. Empty if all is well.
pub fn violations(spans: &[Span]) -> Vec<String> {
    [overlaps(spans), not_rising(spans)].concat()
}

/// Two owners in one lock at once, one of them exclusively.
pub fn overlaps<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Vec<String> {
    let mut found = BTreeMap::new();
    for spans in by_key(spans) {
        let mut open: Vec<&Span> = Vec::new();
        for span in spans {
            open.retain(|other| span.from < other.until);
            for other in open.iter().filter(|other| conflict(span, other)) {
                // Reported once for two holds, not for every reply that tells of them.
                found.entry((&other.hold, &span.hold)).or_insert_with(|| describe(other, span));
            }
            open.push(span);
        }
    }
    found.into_values().collect()
}

/// Holds that exclude each other come one after the other, in the order in which they were seen in force.
pub fn not_rising<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Vec<String> {
    let mut found = BTreeMap::new();
    for spans in by_key(spans) {
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

/// Returns whether two holds exclude each other.
pub fn conflict(a: &Span, b: &Span) -> bool {
    a.hold.owner != b.hold.owner && (a.hold.mode == Mode::Exclusive || b.hold.mode == Mode::Exclusive)
}

/// Returns the spans of each lock, by their beginnings.
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

const LOOKED_BACK: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn span(owner: &str, mode: Mode, token: u64, from: u64, until: u64) -> Span {
        Span { hold: Hold { token, key: "k".into(), owner: owner.into(), mode }, from, until }
    }

    #[test]
    fn owners_at_once_are_refused_if_one_excludes_the_other() {
        let alice = span("alice", Mode::Exclusive, 1, 10, 20);
        let bob = |mode, from| span("bob", mode, 2, from, 30);
        assert_eq!(violations(&[alice.clone(), bob(Mode::Exclusive, 20)]), [""; 0]);
        assert_eq!(violations(&[alice.clone(), bob(Mode::Exclusive, 19)]).len(), 1);
        assert_eq!(violations(&[bob(Mode::Shared, 19), alice]).len(), 1);
        assert_eq!(violations(&[bob(Mode::Shared, 19), span("carol", Mode::Shared, 3, 10, 20)]), [""; 0]);
    }

    #[test]
    fn tokens_that_go_down_are_refused_unless_both_read() {
        let (first, second) = (Mode::Shared, Mode::Exclusive);
        let of = |first, second| [span("alice", first, 5, 1, 2), span("bob", second, 4, 3, 4)];
        assert_eq!(violations(&of(first, second)).len(), 1);
        assert_eq!(violations(&of(second, first)).len(), 1);
        assert_eq!(violations(&of(first, first)), [""; 0]);
    }
}
