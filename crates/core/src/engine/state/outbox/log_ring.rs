//! The entries of the log, and the choice of the entry that makes room for a new one.
//!
//! A client with rights on some keys can cause entries as fast as it sends commands, and must not push out the entries
//! about the keys of others. If more than half of all entries are about keys with a common prefix, these entries are a
//! *crowd*, and the oldest entry of the crowd makes room. Without a crowd, or if the oldest entry of all is older than
//! [`KEPT_MS`], the oldest entry of all makes room. Rights on keys are rights on prefixes, in all databases, so a
//! client cannot leave its crowd. A client may have rights on several prefixes: if no prefix has more than half of the
//! entries, the most frequent prefixes together make the crowd.
//!
//! # Implementation details
//! A search for the crowd, once in a while, looks only at a sample, and a new entry passes over [`PASSED_AT_ONCE`]
//! others at most: the cost does not depend on the length of the log. Entries are boxed, so that a change of the crowd
//! moves only pointers.

use std::collections::VecDeque;

use crate::engine::state::outbox::log_entry::LogEntry;

/// How many entries are looked at to find the crowd.
const SAMPLE: usize = 256;
/// A prefix counts if more than one in this many entries has it. The numbers are tried in this order until one gives a
/// crowd. 4 comes first, because longer prefixes than with 2 are enough then: names of others that share only a short
/// prefix with a client's names do not count as the client's. 2 finds a client whose names differ right after their
/// common prefix. 8 and 16 find a client with many prefixes.
const PARTS: [usize; 4] = [4, 2, 8, 16];
/// How many entries of a sample must have a prefix at least, unless the sample is smaller. In a short log, two names
/// may begin alike by chance.
const FEWEST: usize = 4;
/// How long an entry of others is kept while a crowd makes room, in ms.
const KEPT_MS: u64 = 3_600_000;
/// The search for the crowd is repeated when one in this many entries is new.
const LOOKS: usize = 8;
/// How many entries a new entry passes over or drops, at most. If it passes over this many and drops none, the log
/// stays one entry longer for a while: by less than a hundredth in all.
const PASSED_AT_ONCE: usize = 64;

/// The entries, in two parts: `passed`, then `entries`.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogRing {
    /// The entries that were passed over, because they are not of the crowd. They are older than all others.
    passed: VecDeque<Box<LogEntry>>,
    /// The others, the oldest first.
    entries: VecDeque<Box<LogEntry>>,
    /// The prefixes of the names of the crowd.
    crowd: Vec<Box<[u8]>>,
    /// How many entries came since the last search for the crowd.
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
        // Memory for the whole log is reserved now: a long list that grows later would be copied.
        self.entries.reserve_exact((max_len + 1).saturating_sub(self.entries.len()));
    }

    /// Adds an entry, and drops entries so that `max_len` stay, or a few more for a while. `max_len` is 1 or more.
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
                && !self.crowd.iter().any(|prefix| name_of(&next).starts_with(prefix))
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

    /// Finds the crowd. If it has changed, the entries that were passed over are judged again.
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

/// Returns the most frequent prefixes, each of more than one in `parts` names, and together of more than half of all
/// names; `None` if there are none. The names are in order.
fn crowd_of<'n>(names: &[&'n [u8]], parts: usize) -> Option<Vec<&'n [u8]>> {
    let (half, least) = (names.len() / 2, names.len() / parts + 1);
    if least < FEWEST.min(half + 1) {
        return None;
    }
    let mut found: Vec<(usize, &[u8])> = prefixes(names, least)
        .into_iter()
        .map(|prefix| (names.iter().filter(|name| name.starts_with(prefix)).count(), prefix))
        .collect();
    found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let (mut crowd, mut size) = (Vec::new(), 0);
    for (count, prefix) in found {
        if size > half {
            break;
        }
        size += count;
        crowd.push(prefix);
    }
    (size > half).then_some(crowd)
}

/// Returns the longest prefixes that `least` or more of these names have each. Digits at the end of a prefix are left
/// out: they belong to numbers that grow. The names are in order.
fn prefixes<'n>(names: &[&'n [u8]], least: usize) -> Vec<&'n [u8]> {
    // Names with a common prefix are neighbors in the order.
    let pairs = names.iter().zip(names.iter().skip(least - 1));
    let mut all: Vec<&[u8]> =
        pairs.map(|(first, last)| common_prefix(first, last)).filter(|prefix| !prefix.is_empty()).collect();
    all.sort_unstable();
    all.dedup();
    let next = all.iter().copied().skip(1).map(Some).chain([None]);
    let longest = all.iter().zip(next).filter(|(one, next)| !next.is_some_and(|next| next.starts_with(one)));
    longest.map(|(one, _)| *one).collect()
}

/// Returns the common prefix of two names, without digits at its end.
fn common_prefix<'n>(one: &'n [u8], other: &[u8]) -> &'n [u8] {
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

    /// 900 entries of others stand before those of the crowd. The log passes over them in steps of 64, and keeps them.
    #[test]
    fn a_new_entry_passes_over_64_others_at_most() {
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
