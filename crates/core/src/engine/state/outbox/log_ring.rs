//! The entries of the log, and which of them makes room for a new one.
//!
//! A client with rights on keys of its own can cause entries as fast as it sends commands, and must not push those about the
//! keys of others out. The oldest entry makes room, unless keys that begin alike are a *crowd*, those of more than half of the
//! entries: then the oldest entry about one of them does, for as long as the older ones are younger than [`KEPT_MS`]. Rights
//! on keys are rights on names that begin alike, in all databases, so a client is not able to leave its crowd. It may have
//! rights on several beginnings: if no one has more than half, the most frequent ones are the crowd together.
//!
//! # Implementation details
//! The crowd is looked for in a sample, once in a while, and an entry lets [`PASSED_AT_ONCE`] be passed: it costs the same
//! however long the log is. Entries are boxed, so that another crowd moves pointers.

use std::collections::VecDeque;

use crate::engine::state::outbox::log_entry::LogEntry;

/// How many entries are looked at to find the crowd.
const SAMPLE: usize = 256;
/// A beginning counts if more than one of this many entries has it: the first of these numbers with which there is a crowd.
/// With 4, names of others that begin a little alike do not count together with those of one client. 2 is for a client whose
/// names are many unlike ones behind their common beginning.
const PARTS: [usize; 4] = [4, 2, 8, 16];
/// How many entries of a sample are the fewest that have a beginning. In a short log, two may begin alike by chance.
const FEWEST: usize = 4;
/// How long a crowd passes an older entry, in ms.
const KEPT_MS: u64 = 3_600_000;
/// The crowd is looked for again when this part of the log is new.
const LOOKS: usize = 8;
/// How many entries are passed or dropped at once. Each time that a crowd passes this many, the log is longer by one for a
/// while: by less than a hundredth in all.
const PASSED_AT_ONCE: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct LogRing {
    /// Entries that a crowd has passed: older than all others.
    passed: VecDeque<Box<LogEntry>>,
    /// The others, the oldest first.
    entries: VecDeque<Box<LogEntry>>,
    /// The beginnings of the names of the crowd.
    crowd: Vec<Box<[u8]>>,
    /// How many entries came since the crowd was looked for.
    new: usize,
}

impl LogRing {
    pub(crate) fn len(&self) -> usize {
        self.passed.len() + self.entries.len()
    }

    /// Returns the entries, newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().rev().chain(self.passed.iter().rev()).map(AsRef::as_ref)
    }

    /// Makes room for this many entries, and drops the oldest ones that are too many.
    pub(crate) fn set_len(&mut self, max_len: usize) {
        while self.len() > max_len {
            self.pop_oldest();
        }
        self.passed.shrink_to_fit();
        self.entries.shrink_to(max_len);
        // To grow a long list later would copy it.
        self.entries.reserve_exact((max_len + 1).saturating_sub(self.entries.len()));
    }

    /// Adds an entry. `max_len` stay, which is 1 or more, or a few more for a while.
    pub(crate) fn push(&mut self, entry: LogEntry, max_len: usize) {
        let now = entry.time;
        self.entries.push_back(Box::new(entry));
        self.new += 1;
        if self.len() <= max_len {
            return;
        }
        if self.new * LOOKS >= max_len {
            self.find_crowd();
        }
        let is_old = |oldest: &LogEntry| now.since(oldest.time) >= KEPT_MS;
        for _ in 0..PASSED_AT_ONCE {
            if self.len() <= max_len {
                break;
            }
            let oldest = self.passed.front().or(self.entries.front());
            if self.crowd.is_empty() || self.entries.len() <= 1 || oldest.is_some_and(|oldest| is_old(oldest)) {
                self.pop_oldest();
            } else if let Some(next) = self.entries.pop_front()
                && !self.crowd.iter().any(|beginning| name_of(&next).starts_with(beginning))
            {
                self.passed.push_back(next);
            }
        }
    }

    fn pop_oldest(&mut self) {
        if self.passed.pop_front().is_none() {
            self.entries.pop_front();
        }
    }

    /// Finds the crowd.
    fn find_crowd(&mut self) {
        self.new = 0;
        let step = self.len().div_ceil(SAMPLE);
        let mut names: Vec<&[u8]> = self.iter().step_by(step).map(name_of).collect();
        names.sort_unstable();
        let crowd = PARTS.iter().find_map(|parts| crowd_of(&names, *parts)).unwrap_or_default();
        if !self.crowd.iter().map(AsRef::as_ref).eq(crowd.iter().copied()) {
            self.crowd = crowd.into_iter().map(Into::into).collect();
            self.passed.append(&mut self.entries);
            std::mem::swap(&mut self.passed, &mut self.entries);
        }
    }
}

/// Returns the most frequent beginnings that more than one of `parts` names have each, and more than half of all names
/// together. The names are in order.
fn crowd_of<'n>(names: &[&'n [u8]], parts: usize) -> Option<Vec<&'n [u8]>> {
    let (half, least) = (names.len() / 2, names.len() / parts + 1);
    if least < FEWEST.min(half + 1) {
        return None;
    }
    let mut found: Vec<(usize, &[u8])> = beginnings(names, least)
        .into_iter()
        .map(|beginning| (names.iter().filter(|name| name.starts_with(beginning)).count(), beginning))
        .collect();
    found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let (mut crowd, mut size) = (Vec::new(), 0);
    for (count, beginning) in found {
        if size > half {
            break;
        }
        size += count;
        crowd.push(beginning);
    }
    (size > half).then_some(crowd)
}

/// Returns the longest beginnings that `least` or more of these names have each. Digits at the end of one do not count: they
/// are those of numbers that grow.
fn beginnings<'n>(names: &[&'n [u8]], least: usize) -> Vec<&'n [u8]> {
    // In this order, names that begin alike are neighbors.
    let pairs = names.iter().zip(names.iter().skip(least - 1));
    let mut all: Vec<&[u8]> = pairs.map(|(first, last)| alike(first, last)).filter(|all| !all.is_empty()).collect();
    all.sort_unstable();
    all.dedup();
    let next = all.iter().copied().skip(1).map(Some).chain([None]);
    let longest = all.iter().zip(next).filter(|(one, next)| !next.is_some_and(|next| next.starts_with(one)));
    longest.map(|(one, _)| *one).collect()
}

/// Returns the beginning that both names have, without digits at its end.
fn alike<'n>(one: &'n [u8], other: &[u8]) -> &'n [u8] {
    let len = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let mut both = one.get(..len).unwrap_or_default();
    while let [rest @ .., b'0'..=b'9'] = both {
        both = rest;
    }
    both
}

/// Returns the name of the key that an entry is about.
fn name_of(entry: &LogEntry) -> &[u8] {
    entry.key.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UnixMs;
    use crate::engine::LogEvent;

    fn entry(key: &str) -> LogEntry {
        LogEntry { key: Some(key.as_bytes().into()), ..LogEntry::new(LogEvent::Lapse, UnixMs::new(1000)) }
    }

    /// Passes many entries in steps, and keeps them.
    #[test]
    fn an_entry_costs_the_same_however_many_are_passed() {
        const LEN: usize = 2000;
        const OTHERS: usize = 900;
        let mut ring = LogRing::default();
        ring.set_len(LEN);
        (0..OTHERS).for_each(|number| ring.push(entry(&format!("{number:03}:other")), LEN));
        for number in 0..LEN * 3 {
            let passed = ring.passed.len();
            ring.push(entry(&format!("crowd:{number}")), LEN);
            assert!(ring.passed.len() <= passed + 64, "{number}: {passed}, {}", ring.passed.len());
            assert!(ring.len() <= LEN + OTHERS / 64 + 1, "{number}: {}", ring.len());
        }
        assert_eq!(ring.len(), LEN);
        let others = ring.iter().filter(|entry| entry.key.as_ref().unwrap().ends_with(b"other"));
        assert_eq!(others.count(), OTHERS);
    }
}
