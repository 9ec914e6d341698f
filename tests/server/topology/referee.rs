//! The owners inside, as the clients see it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use dlock_core::Mode;
use dlock_testkit::exclusion::{Hold, Span, violations};

/// Writes down who goes in and out of every lock.
pub struct Referee {
    begin: Instant,
    gates: Vec<Mutex<Gate>>,
    /// The answers to clients, apart from grants: the first words of errors, `closed`, `nil`.
    told: Mutex<BTreeSet<String>>,
}

#[derive(Default)]
struct Gate {
    spans: Vec<Span>,
    /// First releases that got nil: the lock was gone.
    lost: usize,
}

impl Referee {
    pub fn new(locks: usize) -> Self {
        let gates = (0..locks).map(|_| Mutex::default()).collect();
        Self { begin: Instant::now(), gates, told: Mutex::default() }
    }

    fn gate(&self, lock: usize) -> MutexGuard<'_, Gate> {
        self.gates[lock].lock().expect("no other client has failed")
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// A client has been granted the lock, and goes in.
    pub fn enters(&self, lock: usize, owner: &str, mode: Mode, token: i64) {
        let hold = Hold { token: token as u64, key: lock.to_string(), owner: owner.to_owned(), mode };
        let mut gate = self.gate(lock);
        gate.spans.push(Span { hold, from: self.now(), until: u64::MAX });
    }

    /// Notes that an owner goes out, before it releases the lock.
    pub fn leaves(&self, lock: usize, owner: &str) {
        let mut gate = self.gate(lock);
        let now = self.now();
        let span = gate.spans.iter_mut().rfind(|span| span.hold.owner == owner);
        span.expect("it is inside").until = now;
    }

    /// Notes that a hold was not there any more.
    pub fn has_lost(&self, lock: usize) {
        self.gate(lock).lost += 1;
    }

    pub fn is_told(&self, what: &str) {
        self.told.lock().expect("no other client has failed").insert(what.to_owned());
    }

    pub fn told(&self) -> BTreeSet<String> {
        self.told.lock().expect("no other client has failed").clone()
    }

    /// Returns how often an owner went in, by lock.
    pub fn entries(&self) -> Vec<usize> {
        (0..self.gates.len()).map(|lock| self.gate(lock).spans.len()).collect()
    }

    /// Returns the highest token of all.
    pub fn highest(&self) -> i64 {
        let of_lock = |lock| self.gate(lock).spans.iter().map(|span| span.hold.token).max();
        (0..self.gates.len()).filter_map(of_lock).max().expect("a lock that was had") as i64
    }

    /// Fails if two owners were inside at once, or if tokens did not rise.
    #[track_caller]
    pub fn judge(&self) {
        let found: Vec<_> = (0..self.gates.len()).flat_map(|lock| violations(&self.gate(lock).spans)).collect();
        assert!(found.is_empty(), "{found:#?}");
    }

    pub fn lost(&self) -> usize {
        (0..self.gates.len()).map(|lock| self.gate(lock).lost).sum()
    }
}
