//! What `DLOCK.LOG` shows: the last waits that were long, leases that ran out, and locks that went.
//!
//! # Implementation details
//! The log is in the memory of this server: [`LogRing`] says which entries it keeps. A lock whose wait and hold were short costs a comparison and one
//! addition to a [`Histogram`]. One cause, such as a removed key with many holds, logs at most [`AT_ONCE`] entries and
//! takes a sample of times, so that it costs the same however large the lock was.

use smallvec::SmallVec;

use super::histogram::Histogram;
use super::log_ring::LogRing;
use crate::settings::LogSettings;
use crate::{ClientId, Hold, Lock, Mode, Name, Now, Owner, SessionId, Token, UnixMs};

/// The last events, and how long all waits and holds took.
#[derive(Clone, Debug)]
pub struct Log {
    /// The waits that ended with a grant.
    pub waits: Histogram,
    /// The holds that were released in full, or lapsed.
    pub holds: Histogram,
    settings: LogSettings,
    entries: LogRing,
    next_id: u64,
    identify: fn(ClientId) -> Option<Peer>,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// A request was granted after a long wait.
    Wait,
    /// A request got nil after a long wait.
    Timeout,
    /// A hold was released after a long time.
    Hold,
    /// A lease ran out.
    Lapse,
    /// A hold ended at its cap.
    Cap,
    /// The session of a hold ended.
    SessionEnd,
    /// A client released a hold that was not its own.
    Break,
    /// A key was removed with a live hold.
    Delete,
    /// A flush removed locks.
    Flush,
    /// A request got `DEADLOCK`.
    Deadlock,
}

/// One event. A field that does not apply is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Rises by 1, and never starts again.
    pub id: u64,
    /// When it happened.
    pub time: UnixMs,
    /// The kind of event.
    pub event: LogEvent,
    /// The database; `None`: all.
    pub db: Option<i32>,
    /// The key, or the first of several. Cut at 128 bytes.
    pub key: Option<Box<[u8]>>,
    /// The owner. Cut at 128 bytes.
    pub owner: Option<Box<[u8]>>,
    /// The mode of the hold or of the request.
    pub mode: Option<Mode>,
    /// The token of the hold.
    pub token: Option<Token>,
    /// How long the request waited, in ms.
    pub waited: Option<u64>,
    /// How long the lock was held, in ms.
    pub held: Option<u64>,
    /// The client that waited or released, or whose session the hold was bound to, if it is connected.
    pub client: Option<(ClientId, Peer)>,
    /// The named session that the hold was bound to.
    pub session: Option<SessionId>,
}

/// The server's knowledge of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address, as `CLIENT LIST` prints it.
    pub addr: Box<[u8]>,
    /// Its name, if it has given itself one.
    pub name: Option<Box<[u8]>>,
}

/// Owner, key and name are cut after this many bytes.
pub const CUT: usize = 128;
/// How many entries one cause may log.
pub(super) const AT_ONCE: usize = 16;
/// Of how many holds the time is measured when many lapse together.
const SAMPLE: usize = 256;

impl Log {
    pub(super) fn new() -> Log {
        Log {
            waits: Histogram::new(),
            holds: Histogram::new(),
            settings: LogSettings::default(),
            entries: LogRing::default(),
            next_id: 0,
            identify: |_| None,
        }
    }

    /// Sets the function that tells the log who a client is. The log calls it only when it adds an entry.
    pub fn identify_by(&mut self, identify: fn(ClientId) -> Option<Peer>) {
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

    pub(super) fn is_on(&self) -> bool {
        self.settings.max_len > 0
    }

    /// Returns whether a wait of this many ms is logged.
    pub(super) fn shows_wait(&self, waited: u64) -> bool {
        self.is_on() && self.settings.wait_ms.is_some_and(|least| waited >= least)
    }

    /// Returns whether a hold that is released now is logged.
    pub(super) fn shows_hold(&self, token: Token, now: UnixMs) -> bool {
        self.settings.hold_ms.is_some_and(|least| held_ms(token, now) >= least)
    }

    pub(super) fn add(&mut self, entry: LogEntry, client: Option<ClientId>) {
        if !self.is_on() {
            return;
        }
        let identify = self.identify;
        let client = client.and_then(|client| Some((client, identify(client)?)));
        let client = client.map(|(id, peer)| (id, Peer { name: peer.name.as_deref().map(cut), ..peer }));
        self.entries.push(LogEntry { id: self.next_id, client, ..entry }, self.settings.max_len);
        self.next_id += 1;
    }
}

impl LogEntry {
    pub(super) fn new(event: LogEvent, time: UnixMs) -> LogEntry {
        LogEntry {
            id: 0,
            time,
            event,
            db: None,
            key: None,
            owner: None,
            mode: None,
            token: None,
            waited: None,
            held: None,
            client: None,
            session: None,
        }
    }

    pub(super) fn of(self, name: Name<'_>, owner: &Owner, mode: Mode) -> LogEntry {
        let (key, owner) = (Some(cut(name.key)), Some(cut(&owner.text())));
        LogEntry { db: Some(name.db), key, owner, mode: Some(mode), ..self }
    }

    pub(super) fn held(self, token: Token, until: UnixMs) -> LogEntry {
        LogEntry { token: Some(token), held: Some(held_ms(token, until)), ..self }
    }
}

/// The holds of a key that was removed by others than the module.
#[derive(Debug)]
pub struct Lost {
    db: i32,
    /// Cut.
    key: Box<[u8]>,
    pub(super) at: Now,
    /// Those that are logged.
    pub(super) holds: SmallVec<[Hold; 1]>,
    pub(super) lapsed: u64,
    /// Those of them that had reached their cap.
    pub(super) capped: u64,
    /// How long some of those that had lapsed were held, in µs.
    pub(super) sample: Vec<u64>,
}

impl Lost {
    /// Returns the losses with this lock. One step for each 512 holds.
    pub fn of(name: Name<'_>, lock: &Lock, at: Now) -> Lost {
        let mut holds: SmallVec<[Hold; 1]> = lock.holds.by_deadline().take(AT_ONCE).cloned().collect();
        holds.reverse();
        let (lapsed, capped) = (lock.lapsed(at.ms()) as u64, lock.lapsed_at_cap(at.ms()) as u64);
        let sample = if lapsed > 0 { sample(lock, at.ms()) } else { Vec::new() };
        Lost { db: name.db, key: cut(name.key), at, holds, lapsed, capped, sample }
    }

    pub(super) fn name(&self) -> Name<'_> {
        Name { db: self.db, key: &self.key }
    }

    /// Returns whether the name is a whole one.
    pub(super) fn has_whole_name(&self) -> bool {
        self.key.len() < CUT
    }
}

/// Returns the lapsed holds, the last deadline first.
pub(super) fn lapsed(lock: &Lock, now: UnixMs) -> impl Iterator<Item = &Hold> {
    lock.holds.by_deadline().rev().take_while(move |hold| !hold.is_live(now))
}

/// Returns how long some of the lapsed holds were held, in µs.
pub(super) fn sample(lock: &Lock, now: UnixMs) -> Vec<u64> {
    lapsed(lock, now).take(SAMPLE).map(|hold| held_us(hold.token, hold.deadline.get() * 1000)).collect()
}

/// Returns how long some holds with these tokens were held until then, in µs.
pub(super) fn sample_of(tokens: impl Iterator<Item = Token>, until_us: u64) -> SmallVec<[u64; 1]> {
    tokens.take(SAMPLE).map(|token| held_us(token, until_us)).collect()
}

/// Returns how long a hold was held: its token is the time of its grant in µs. The token may be ahead of the clock.
pub(super) fn held_us(token: Token, until_us: u64) -> u64 {
    until_us.saturating_sub(token.get())
}

/// Returns the same in ms, as the log shows it.
fn held_ms(token: Token, until: UnixMs) -> u64 {
    until.get().saturating_sub(token.get() / 1000)
}

fn cut(bytes: &[u8]) -> Box<[u8]> {
    bytes.get(..CUT).unwrap_or(bytes).into()
}
