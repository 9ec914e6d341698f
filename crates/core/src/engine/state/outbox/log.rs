//! The log that `DLOCK.LOG` shows: long waits and holds, leases that ran out, removed locks, and the like.
//!
//! # Implementation details
//! The log is in the memory of this server. [`LogRing`] decides which entries it keeps. A wait or a hold that was short
//! costs a comparison and one addition to a [`Histogram`]. One cause, such as a removed key with many holds, logs at
//! most [`AT_ONCE`] entries and takes a sample of times, so that it costs about the same however large the lock was.

use smallvec::SmallVec;

use crate::engine::state::outbox::histogram::Histogram;
use crate::engine::state::outbox::log_entry::{CUT, LogEntry, Peer, cut, held_ms, held_us};
use crate::engine::state::outbox::log_ring::LogRing;
use crate::settings::LogSettings;
use crate::{ClientId, Hold, Lock, Name, Now, Token, UnixMs};

/// The logged events, and how long all waits and holds took.
#[derive(Clone, Debug)]
pub struct Log {
    /// The waits that ended with a grant.
    pub waits: Histogram,
    /// The holds that were released in full, lapsed, or ended with their sessions.
    pub holds: Histogram,
    settings: LogSettings,
    entries: LogRing,
    next_id: u64,
    identify: fn(ClientId, usize) -> Option<Peer>,
}

/// How many entries one cause may log.
pub(crate) const AT_ONCE: usize = 16;
/// The most holds of which the time is measured when many lapse together.
const SAMPLE: usize = 256;
/// The most holds of a lock of which the time is measured when they end with their sessions: each is looked up, and one
/// command may settle 64 locks.
const ENDED_SAMPLE: usize = 32;

impl Log {
    pub(crate) fn new() -> Log {
        Log {
            waits: Histogram::new(),
            holds: Histogram::new(),
            settings: LogSettings::default(),
            entries: LogRing::default(),
            next_id: 0,
            identify: |_, _| None,
        }
    }

    /// Sets the function that tells the log who a client is. The log calls it only when it adds an entry. The number is
    /// how many bytes of the client's name are used: to copy a name of megabytes for each entry would take too long.
    pub fn identify_by(&mut self, identify: fn(ClientId, usize) -> Option<Peer>) {
        self.identify = identify;
    }

    /// Sets which events are logged, and trims the log.
    pub fn configure(&mut self, settings: LogSettings) {
        self.settings = settings;
        self.entries.set_len(settings.max_len);
    }

    /// Returns the entries, newest first.
    pub fn entries(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter()
    }

    /// Returns how many entries there are.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Empties the log. Ids go on.
    pub fn reset(&mut self) {
        self.entries = LogRing::default();
    }

    pub(crate) fn is_on(&self) -> bool {
        self.settings.max_len > 0
    }

    /// Returns whether a wait of this many ms is logged.
    pub(crate) fn shows_wait(&self, waited: u64) -> bool {
        self.is_on() && self.settings.wait_ms.is_some_and(|least| waited >= least)
    }

    /// Returns whether a hold that is released now is logged.
    pub(crate) fn shows_hold(&self, token: Token, now: UnixMs) -> bool {
        self.settings.hold_ms.is_some_and(|least| held_ms(token, now) >= least)
    }

    pub(crate) fn add(&mut self, entry: LogEntry, client: Option<ClientId>) {
        if !self.is_on() {
            return;
        }
        let identify = self.identify;
        let client = client.and_then(|client| Some((client, identify(client, CUT)?)));
        let client = client.map(|(id, peer)| (id, Peer { name: peer.name.as_deref().map(cut), ..peer }));
        self.entries.push(LogEntry { id: self.next_id, client, ..entry }, self.settings.max_len);
        self.next_id += 1;
    }
}

/// The holds that are lost with a key: the key has expired, or a command has deleted or replaced it.
#[derive(Debug)]
pub struct Lost {
    db: i32,
    /// The key, cut after [`CUT`] bytes.
    key: Box<[u8]>,
    pub(crate) at: Now,
    /// The holds that are logged, the first deadline first: those with the last deadlines, [`AT_ONCE`] at most.
    pub(crate) holds: SmallVec<[Hold; 1]>,
    pub(crate) lapsed: u64,
    /// The lapsed holds that had reached their cap.
    pub(crate) capped: u64,
    /// How long some of the lapsed holds were held, in µs.
    pub(crate) sample: Vec<u64>,
}

impl Lost {
    /// Returns the holds of this lock to log, and the counts of the lapsed ones. One step for each 512 of those.
    pub fn of(name: Name<'_>, lock: &Lock, at: Now) -> Lost {
        let mut holds: SmallVec<[Hold; 1]> = lock.holds.by_deadline().take(AT_ONCE).cloned().collect();
        holds.reverse();
        let (lapsed, capped) = (lock.lapsed(at.ms()) as u64, lock.lapsed_at_cap(at.ms()) as u64);
        let sample = if lapsed > 0 { sample(lock, at.ms()) } else { Vec::new() };
        Lost { db: name.db, key: cut(name.key), at, holds, lapsed, capped, sample }
    }

    pub(crate) fn name(&self) -> Name<'_> {
        Name { db: self.db, key: &self.key }
    }

    /// Returns whether the name is surely whole: one of exactly [`CUT`] bytes may be cut.
    pub(crate) fn has_whole_name(&self) -> bool {
        self.key.len() < CUT
    }
}

/// Returns the lapsed holds, the first deadline first.
pub(crate) fn lapsed(lock: &Lock, now: UnixMs) -> impl Iterator<Item = &Hold> {
    lock.holds.by_deadline().rev().take_while(move |hold| !hold.is_live(now))
}

/// Returns how long some of the lapsed holds were held, in µs.
pub(crate) fn sample(lock: &Lock, now: UnixMs) -> Vec<u64> {
    lapsed(lock, now).take(SAMPLE).map(|hold| held_us(hold.token, hold.deadline.get() * 1000)).collect()
}

/// Returns for how long the holds with the first of these tokens were held at `until_us`, in µs.
pub(crate) fn sample_of(tokens: impl Iterator<Item = Token>, until_us: u64) -> SmallVec<[u64; 1]> {
    tokens.take(ENDED_SAMPLE).map(|token| held_us(token, until_us)).collect()
}
