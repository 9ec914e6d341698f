//! The common state of the threads that contend.
//!
//! A client that has released the lock asks again only when another client has got it. A holder releases the lock only
//! when all others wait in the queue. Every hand-off is therefore to a client that waits, in every way of waiting.
//! Without these rules, where waiting is not fair, the client that has just released the lock would often be first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::way::Way;
use crate::error::Error;

pub struct Round {
    pub(super) way: Way,
    /// How long a holder is busy.
    pub(super) held: Duration,
    pub(super) clients: usize,
    start: Instant,
    /// When the lock was released last, in nanoseconds since the start. 0: never.
    pub(super) given_back: AtomicU64,
    pub(super) is_watched: AtomicBool,
    is_over: AtomicBool,
    line: Mutex<Line>,
    /// Notified whenever the queue changes, and when the round ends.
    news: Condvar,
    commands: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Default)]
pub(super) struct Line {
    /// How many clients have asked for the lock and not got it yet.
    pub(super) waiting: usize,
    /// The number of grants.
    pub(super) grants: u64,
}

/// The traffic of all clients.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    /// The time in which the traffic was measured.
    pub time: Duration,
    pub hand_offs: u64,
    pub commands: u64,
    /// Sent and received.
    pub bytes: u64,
}

impl Round {
    pub fn new(way: Way, held: Duration, clients: usize) -> Self {
        Self {
            way,
            held,
            clients,
            start: Instant::now(),
            given_back: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            line: Mutex::default(),
            news: Condvar::new(),
            commands: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Returns the traffic in that time, or in a longer one until [`HAND_OFFS_AT_LEAST`] are seen.
    pub fn watch(&self, time: Duration) -> Traffic {
        self.is_watched.store(true, Ordering::SeqCst);
        let (before, start) = (self.traffic(), Instant::now());
        thread::sleep(time);
        let some = before.hand_offs + HAND_OFFS_AT_LEAST;
        let line = self.line();
        let rest = (time * STRETCHED_AT_MOST).saturating_sub(start.elapsed());
        drop(self.news.wait_timeout_while(line, rest, |line| line.grants < some && !self.is_over()));
        let (after, time) = (self.traffic(), start.elapsed());
        self.is_watched.store(false, Ordering::SeqCst);
        Traffic {
            time,
            hand_offs: after.hand_offs - before.hand_offs,
            commands: after.commands - before.commands,
            bytes: after.bytes - before.bytes,
        }
    }

    /// Waits for the second grant: the first holder releases only when all other clients are in the queue.
    pub fn until_all_wait(&self) -> Result<(), Error> {
        let absent = |line: &mut Line| line.grants < 2 && !self.is_over();
        let waited = self.news.wait_timeout_while(self.line(), PATIENCE, absent);
        let (line, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(line);
        match timeout.timed_out() {
            false => Ok(()),
            true => Err(Error::Server("this machine is too slow: not all clients get into line".into())),
        }
    }

    /// Ends the round for all clients.
    pub fn end(&self) {
        let line = self.line();
        self.is_over.store(true, Ordering::SeqCst);
        self.news.notify_all();
        drop(line);
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Returns the time since the lock was released last, in microseconds.
    pub(super) fn latency(&self) -> Option<f64> {
        let given_back = self.given_back.load(Ordering::SeqCst);
        (given_back > 0).then(|| self.nanoseconds().saturating_sub(given_back) as f64 / 1e3)
    }

    pub(super) fn nanoseconds(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Counts one more client that waits in the queue.
    pub fn note_join(&self) {
        self.line().waiting += 1;
        self.news.notify_all();
    }

    /// Returns the number of the grant.
    pub(super) fn note_grant(&self) -> u64 {
        let mut line = self.line();
        line.waiting -= 1;
        line.grants += 1;
        self.news.notify_all();
        line.grants
    }

    /// Waits until the condition holds, or the round ends.
    pub(super) fn until(&self, condition: impl Fn(&Line) -> bool) {
        let line = self.news.wait_while(self.line(), |line| !condition(line) && !self.is_over());
        drop(line.unwrap_or_else(PoisonError::into_inner));
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self, commands: u64, sent: usize, received: u64) {
        self.commands.fetch_add(commands, Ordering::Relaxed);
        self.bytes.fetch_add(u64::try_from(sent).unwrap_or(0) + received, Ordering::Relaxed);
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            time: self.start.elapsed(),
            hand_offs: self.line().grants,
            commands: self.commands.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

const HAND_OFFS_AT_LEAST: u64 = 2;
/// The longest watch, in multiples of its time.
const STRETCHED_AT_MOST: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);
