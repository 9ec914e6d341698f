//! Who is inside, as the clients see it: it must never be two.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Write,
    Read,
}

/// Sees everybody who goes in and out, for every lock, and fails the test that lets in one too many.
pub struct Referee {
    gates: Vec<Mutex<Gate>>,
    /// What clients were told, apart from grants: the first words of errors, `closed`, `nil`.
    told: Mutex<BTreeSet<String>>,
}

#[derive(Default)]
struct Gate {
    writer: Option<String>,
    readers: BTreeSet<String>,
    /// The highest token of all that went in, and of the writers among them.
    highest: i64,
    highest_write: i64,
    entries: usize,
    /// First releases that got nil: the lock was gone.
    lost: usize,
}

impl Referee {
    pub fn new(locks: usize) -> Self {
        Self { gates: (0..locks).map(|_| Mutex::default()).collect(), told: Mutex::default() }
    }

    fn gate(&self, lock: usize) -> MutexGuard<'_, Gate> {
        self.gates[lock].lock().expect("no other client has failed")
    }

    /// A client has been granted the lock, and goes in.
    #[track_caller]
    pub fn enters(&self, lock: usize, owner: &str, mode: Mode, token: i64) {
        let mut gate = self.gate(lock);
        assert_eq!(gate.writer, None, "{owner} gets lock {lock} beside its writer");
        match mode {
            Mode::Write => {
                assert!(gate.readers.is_empty(), "{owner} writes lock {lock} beside {:?}", gate.readers);
                assert!(token > gate.highest, "{owner} gets {token} after {}", gate.highest);
                gate.writer = Some(owner.to_owned());
                gate.highest_write = token;
            }
            Mode::Read => {
                assert!(token > gate.highest_write, "{owner} gets {token} after {}", gate.highest_write);
                gate.readers.insert(owner.to_owned());
            }
        }
        gate.highest = gate.highest.max(token);
        gate.entries += 1;
    }

    /// It goes out, before it gives the lock back.
    pub fn leaves(&self, lock: usize, owner: &str) {
        let mut gate = self.gate(lock);
        if gate.writer.as_deref() == Some(owner) {
            gate.writer = None;
        }
        gate.readers.remove(owner);
    }

    /// What it held was not there any more.
    pub fn has_lost(&self, lock: usize) {
        self.gate(lock).lost += 1;
    }

    pub fn is_told(&self, what: &str) {
        self.told.lock().expect("no other client has failed").insert(what.to_owned());
    }

    pub fn told(&self) -> BTreeSet<String> {
        self.told.lock().expect("no other client has failed").clone()
    }

    /// How often somebody went in, by lock.
    pub fn entries(&self) -> Vec<usize> {
        (0..self.gates.len()).map(|lock| self.gate(lock).entries).collect()
    }

    /// The highest token of all.
    pub fn highest(&self) -> i64 {
        (0..self.gates.len()).map(|lock| self.gate(lock).highest).max().expect("a lock")
    }

    pub fn lost(&self) -> usize {
        (0..self.gates.len()).map(|lock| self.gate(lock).lost).sum()
    }
}
