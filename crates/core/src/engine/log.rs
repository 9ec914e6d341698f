//! What `DLOCK.LOG` shows: the last waits that were long, leases that ran out, and locks that went.
//!
//! # Implementation details
//! The log is a ring in the memory of this server. A lock whose wait and hold were short costs a comparison and one
//! addition to a [`Histogram`]. One cause, such as a removed key with many holds, logs at most [`AT_ONCE`] entries and
//! takes a sample of times, so that it costs the same however large the lock was.

use std::collections::{BTreeSet, VecDeque};

use smallvec::SmallVec;

use super::bound::NextRenewal;
use super::histogram::Histogram;
use super::queue::WaiterId;
use super::record::{Record, RecordId};
use super::{Ask, Call, Engine, OpenKey, OpenLock};
use crate::{ClientId, Hold, Lock, Mode, Name, Now, Owner, Token, UnixMs};

/// The last events, and how long all waits and holds took.
#[derive(Clone, Debug)]
pub struct Log {
    /// The waits that ended with a grant.
    pub waits: Histogram,
    /// The holds that were released in full, or lapsed.
    pub holds: Histogram,
    settings: LogSettings,
    /// The oldest first.
    entries: VecDeque<LogEntry>,
    next_id: u64,
    identify: fn(ClientId) -> Option<Peer>,
}

/// What the operator wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How many entries are kept.
    pub max_len: usize,
    /// Waits of this many ms or more are logged; `None`: none are.
    pub wait_ms: Option<u64>,
    /// Holds that are released after this many ms or more are logged; `None`: none are.
    pub hold_ms: Option<u64>,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings { max_len: 128, wait_ms: Some(1000), hold_ms: None }
    }
}

/// What happened.
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
    /// The session of a hold ended.
    SessionEnd,
    /// A key was removed with a live hold.
    Delete,
    /// A flush removed locks.
    Flush,
    /// A request got `DEADLOCK`.
    Deadlock,
}

/// One event. What does not apply is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Rises by 1, and never starts again.
    pub id: u64,
    /// When it happened.
    pub time: UnixMs,
    /// What happened.
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
}

/// What the server knows of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address, as `CLIENT LIST` prints it.
    pub addr: Box<[u8]>,
    /// Its name, if it has given itself one.
    pub name: Option<Box<[u8]>>,
}

/// Owner, key and name are cut after so many bytes.
pub const CUT: usize = 128;
/// How many entries one cause may log.
const AT_ONCE: usize = 16;
/// Of how many holds the time is measured when many lapse together.
const SAMPLE: usize = 256;
/// At how many locks the end of a session looks for holds to log.
const LOOKS: usize = AT_ONCE;
/// How many records are looked through for a lock in a database that is flushed, and how many of these are brought up to
/// date.
const RECORDS: usize = 10_000;
const FEW: usize = 64;

impl Log {
    pub(super) fn new() -> Log {
        Log {
            waits: Histogram::new(),
            holds: Histogram::new(),
            settings: LogSettings::default(),
            entries: VecDeque::new(),
            next_id: 0,
            identify: |_| None,
        }
    }

    /// Sets by what the log learns who a client is. It asks only when it logs an entry.
    pub fn identify_by(&mut self, identify: fn(ClientId) -> Option<Peer>) {
        self.identify = identify;
    }

    /// Sets what is logged, and trims the log.
    pub fn configure(&mut self, settings: LogSettings) {
        self.settings = settings;
        if settings.max_len < self.entries.len() {
            self.entries.drain(..self.entries.len() - settings.max_len);
            self.entries.shrink_to_fit();
        }
        // To grow a long list later would copy it.
        self.entries.reserve_exact(settings.max_len - self.entries.len());
    }

    /// The entries, newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &LogEntry> {
        self.entries.iter().rev()
    }

    /// Empties the log. Ids go on.
    pub fn reset(&mut self) {
        self.entries = VecDeque::new();
    }

    fn is_on(&self) -> bool {
        self.settings.max_len > 0
    }

    fn add(&mut self, entry: LogEntry, client: Option<ClientId>) {
        if !self.is_on() {
            return;
        }
        if self.entries.len() >= self.settings.max_len {
            self.entries.pop_front();
        }
        let identify = self.identify;
        let client = client.and_then(|client| Some((client, identify(client)?)));
        let client = client.map(|(id, peer)| (id, Peer { name: peer.name.as_deref().map(cut), ..peer }));
        self.entries.push_back(LogEntry { id: self.next_id, client, ..entry });
        self.next_id += 1;
    }
}

impl LogEntry {
    fn new(event: LogEvent, time: UnixMs) -> LogEntry {
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
        }
    }

    fn of(self, name: Name<'_>, owner: &Owner, mode: Mode) -> LogEntry {
        let (key, owner) = (Some(cut(name.key)), Some(cut(&owner.text())));
        LogEntry { db: Some(name.db), key, owner, mode: Some(mode), ..self }
    }

    fn held(self, token: Token, until: UnixMs) -> LogEntry {
        LogEntry { token: Some(token), held: Some(held_ms(token, until)), ..self }
    }
}

/// The holds of a key that was removed by others than the module.
#[derive(Debug)]
pub struct Lost {
    db: i32,
    /// Cut.
    key: Box<[u8]>,
    at: Now,
    /// Those that are logged.
    holds: SmallVec<[Hold; 1]>,
    lapsed: u64,
    /// How long some of those that had lapsed were held, in µs.
    sample: Vec<u64>,
}

impl Lost {
    /// What goes with this lock. One step for each 512 holds.
    pub fn of(name: Name<'_>, lock: &Lock, at: Now) -> Lost {
        let mut holds: SmallVec<[Hold; 1]> = lock.holds.by_deadline().take(AT_ONCE).cloned().collect();
        holds.reverse();
        let lapsed = lock.lapsed(at.ms()) as u64;
        let sample = if lapsed > 0 { sample(lock, at.ms()) } else { Vec::new() };
        Lost { db: name.db, key: cut(name.key), at, holds, lapsed, sample }
    }
}

impl<T> Engine<T> {
    /// Counts and logs what went with a removed key.
    pub fn lose(&mut self, lost: &Lost) {
        self.stats.lapses += lost.lapsed;
        self.log.holds.record_all(&lost.sample, lost.lapsed);
        let name = Name { db: lost.db, key: &lost.key };
        let id = if lost.key.len() < CUT { self.find(name) } else { None };
        for hold in &lost.holds {
            self.log_end(id, name, hold, lost.at.ms());
        }
    }

    /// Logs that a flush of this database, or of all, removes at least one lock.
    pub fn log_flush(&mut self, db: Option<i32>, now: Now) {
        self.log.add(LogEntry { db, ..LogEntry::new(LogEvent::Flush, now.ms()) }, None);
    }

    /// Whether a live hold that is bound to a session is known in a database; `None`: in any. Looks at some records only.
    pub fn has_session_hold(&mut self, db: Option<i32>, now: Now) -> bool {
        let is_there = |record: &Record| db.is_none_or(|db| db == record.db) && !record.bound.is_empty();
        let some = self.records.iter().take(RECORDS).filter(|(_, record)| is_there(record)).map(|(id, _)| id);
        let some: Vec<RecordId> = some.take(FEW).collect();
        some.into_iter().any(|id| {
            self.refresh(id);
            self.records.get(id).is_some_and(|record| {
                let is_live = |renewal: NextRenewal| now.ms() < renewal.deadline;
                !record.bound.has_ended() && record.bound.next_renewal().is_some_and(is_live)
            })
        })
    }

    /// Takes out a waiter whose time is over: it gets nil.
    pub fn time_out(&mut self, id: WaiterId, now: Now) {
        self.note_waited(id, LogEvent::Timeout, None, now);
        self.take_waiter(id, None);
    }

    /// Counts a wait that ends with a grant, and logs it if it was long.
    pub(super) fn note_granted(&mut self, id: WaiterId, token: Token, now: Now) {
        let Some(waiter) = self.waiters.get(id) else { return };
        let waited = now.us().saturating_sub(waiter.since.us());
        self.stats.wait_usec_total = self.stats.wait_usec_total.wrapping_add(waited);
        self.stats.wait_usec_max = self.stats.wait_usec_max.max(waited);
        self.log.waits.record(waited);
        self.note_waited(id, LogEvent::Wait, Some(token), now);
    }

    /// Logs a wait that ends, if it was long.
    pub(super) fn note_waited(&mut self, id: WaiterId, event: LogEvent, token: Option<Token>, now: Now) {
        let Some(waiter) = self.waiters.get(id) else { return };
        let waited = now.ms().since(waiter.since.ms());
        if !self.log.is_on() || self.log.settings.wait_ms.is_none_or(|least| waited < least) {
            return;
        }
        let Some(record) = waiter.records.first().and_then(|id| self.records.get(*id)) else { return };
        let entry = LogEntry::new(event, now.ms()).of(record.name(), &waiter.owner, waiter.mode());
        self.log.add(LogEntry { token, waited: Some(waited), ..entry }, Some(waiter.client));
    }

    /// Logs a request that gets `DEADLOCK`.
    pub(super) fn log_deadlock(&mut self, call: Call<'_>, ask: &Ask) {
        let entry = LogEntry::new(LogEvent::Deadlock, call.now.ms()).of(call.name, &ask.owner, ask.want.mode());
        self.log.add(entry, Some(call.client));
    }

    /// Counts the holds that a command releases in full, and logs those that were long.
    #[inline]
    pub(super) fn note_release(&mut self, call: Call<'_>, lock: &Lock, owner: &Owner, mode: Option<Mode>) {
        let (exclusive, shared) = lock.named(call.now.ms(), owner, mode);
        for hold in exclusive.into_iter().chain(shared) {
            self.log.holds.record(held_us(hold.token, call.now.us()));
            if self.log.settings.hold_ms.is_some_and(|least| held_ms(hold.token, call.now.ms()) >= least) {
                let entry = LogEntry::new(LogEvent::Hold, call.now.ms()).of(call.name, owner, hold.mode);
                self.log.add(entry.held(hold.token, call.now.ms()), Some(call.client));
            }
        }
    }

    /// Counts and logs the holds of an open lock that have lapsed at `now`: it is about to drop them.
    #[cold]
    pub(super) fn note_lapses<K: OpenKey>(&mut self, id: Option<RecordId>, open: &OpenLock<K>, now: UnixMs) {
        let (lock, name) = (open.lock(), open.name());
        self.log.holds.record_all(&sample(lock, now), lock.lapsed(now) as u64);
        for hold in lapsed(lock, now).take(AT_ONCE) {
            self.log_end(id, name, hold, now);
        }
    }

    /// A hold ends without a release.
    fn log_end(&mut self, id: Option<RecordId>, name: Name<'_>, hold: &Hold, now: UnixMs) {
        let record = id.and_then(|id| self.records.get(id));
        let client = record.and_then(|record| record.bound.client_of(&hold.owner, hold.mode));
        let event = if hold.is_live(now) { LogEvent::Delete } else { LogEvent::Lapse };
        let entry = LogEntry::new(event, now).of(name, &hold.owner, hold.mode);
        self.log.add(entry.held(hold.token, hold.deadline.min(now)), client);
    }

    /// Logs the holds of a client whose connection has ended: they are on these locks.
    pub(super) fn log_session_end(&mut self, client: ClientId, records: &BTreeSet<RecordId>, now: UnixMs) {
        if !self.log.is_on() {
            return;
        }
        let mut entries: SmallVec<[LogEntry; 1]> = SmallVec::new();
        for id in records.iter().take(LOOKS) {
            self.notice_flush(*id);
            let Some(record) = self.records.get(*id) else { continue };
            let live = record.bound.of_client(client).filter(|binding| now < binding.deadline);
            entries.extend(live.take(AT_ONCE - entries.len()).map(|binding| {
                let entry = LogEntry::new(LogEvent::SessionEnd, now);
                entry.of(record.name(), &binding.owner, binding.mode).held(binding.token, now)
            }));
        }
        entries.into_iter().for_each(|entry| self.log.add(entry, Some(client)));
    }

    /// Counts `count` holds that are released because their sessions have ended. `tokens` are theirs.
    pub(super) fn note_departed(&mut self, tokens: impl Iterator<Item = Token>, count: u64, now_us: u64) {
        let sample: SmallVec<[u64; 1]> = tokens.take(SAMPLE).map(|token| held_us(token, now_us)).collect();
        self.log.holds.record_all(&sample, count);
    }
}

fn lapsed(lock: &Lock, now: UnixMs) -> impl Iterator<Item = &Hold> {
    lock.holds.by_deadline().rev().take_while(move |hold| !hold.is_live(now))
}

/// How long some of the lapsed holds were held, in µs.
fn sample(lock: &Lock, now: UnixMs) -> Vec<u64> {
    lapsed(lock, now).take(SAMPLE).map(|hold| held_us(hold.token, hold.deadline.get() * 1000)).collect()
}

/// A token is the time of its grant in µs. It may be ahead of the clock.
fn held_us(token: Token, until_us: u64) -> u64 {
    until_us.saturating_sub(token.get())
}

/// The same in ms, as the log shows it.
fn held_ms(token: Token, until: UnixMs) -> u64 {
    until.get().saturating_sub(token.get() / 1000)
}

fn cut(bytes: &[u8]) -> Box<[u8]> {
    bytes.get(..CUT).unwrap_or(bytes).into()
}
