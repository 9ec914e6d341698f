//! The entries of the log, and which of them makes room for a new one.
//!
//! A client with rights on keys of its own can cause entries as fast as it sends commands, and must not push those about the
//! keys of others out. The oldest entry makes room, unless keys that begin alike are a *crowd*, those of more than half of the
//! entries: then the oldest entry about one of them does, for as long as the older ones are younger than [`KEPT_MS`]. Rights
//! on keys are rights on names that begin alike, so a client is not able to leave its crowd.
//!
//! # Implementation details
//! The crowd is looked for in a sample, once in a while: an entry costs the same however long the log is.

use std::collections::VecDeque;

use super::log::LogEntry;

/// How many entries are looked at to find the crowd.
const SAMPLE: usize = 256;
/// How long a crowd passes an older entry, in ms.
const KEPT_MS: u64 = 3_600_000;
/// The crowd is looked for again when this part of the log is new.
const LOOKS: usize = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct LogRing {
    /// Entries that a crowd has passed: older than all others.
    passed: VecDeque<LogEntry>,
    /// The others, the oldest first.
    entries: VecDeque<LogEntry>,
    /// The beginning of the names of the crowd, with the database before it; empty if there is no crowd.
    crowd: Vec<u8>,
    /// How many entries came since the crowd was looked for.
    new: usize,
}

impl LogRing {
    pub(super) fn len(&self) -> usize {
        self.passed.len() + self.entries.len()
    }

    /// Returns the entries, newest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().rev().chain(self.passed.iter().rev())
    }

    /// Makes room for this many entries, and drops the oldest ones that are too many.
    pub(super) fn set_len(&mut self, max_len: usize) {
        while self.len() > max_len {
            self.pop_oldest();
        }
        self.passed.shrink_to_fit();
        self.entries.shrink_to(max_len);
        // To grow a long list later would copy it.
        self.entries.reserve_exact((max_len + 1).saturating_sub(self.entries.len()));
    }

    /// Adds an entry. At most `max_len` stay, which is 1 or more.
    pub(super) fn push(&mut self, entry: LogEntry, max_len: usize) {
        let now = entry.time;
        self.entries.push_back(entry);
        self.new += 1;
        if self.len() <= max_len {
            return;
        }
        if self.new * LOOKS >= max_len {
            self.find_crowd();
        }
        let is_old = |oldest: Option<&LogEntry>| oldest.is_some_and(|oldest| now.since(oldest.time) >= KEPT_MS);
        while !self.crowd.is_empty() && self.entries.len() > 1 && !is_old(self.passed.front().or(self.entries.front()))
        {
            let Some(oldest) = self.entries.pop_front() else { break };
            if name_of(&oldest).starts_with(&self.crowd) {
                return;
            }
            self.passed.push_back(oldest);
        }
        self.pop_oldest();
    }

    fn pop_oldest(&mut self) {
        if self.passed.pop_front().is_none() {
            self.entries.pop_front();
        }
    }

    /// Finds the longest beginning that the names of more than half of the entries have. Digits at its end do not count:
    /// they are those of numbers that grow.
    fn find_crowd(&mut self) {
        self.new = 0;
        let step = self.len().div_ceil(SAMPLE);
        let mut names: Vec<Vec<u8>> = self.iter().step_by(step).map(name_of).collect();
        names.sort_unstable();
        // In this order, names that begin alike are neighbors.
        let pairs = names.iter().zip(names.iter().skip(names.len() / 2));
        let alike = |(first, last): (&Vec<u8>, &Vec<u8>)| first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let longest = pairs.map(|(first, last)| (alike((first, last)), first)).max_by_key(|(len, _)| *len);
        let mut crowd = longest.and_then(|(len, name)| name.get(..len)).unwrap_or_default();
        while let [rest @ .., b'0'..=b'9'] = crowd {
            crowd = rest;
        }
        if *self.crowd != *crowd {
            self.crowd = crowd.to_vec();
            self.passed.drain(..).rev().for_each(|entry| self.entries.push_front(entry));
        }
    }
}

/// Returns the database and the name of the key that an entry is about.
fn name_of(entry: &LogEntry) -> Vec<u8> {
    let db = entry.db.map(i32::to_be_bytes);
    [db.as_ref().map_or(&[][..], <[u8; 4]>::as_slice), entry.key.as_deref().unwrap_or_default()].concat()
}
