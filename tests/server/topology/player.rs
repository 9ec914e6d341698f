//! A client as it should be: it finds the server that is in charge, follows redirections, repeats what it does not
//! know the outcome of, and counts as its own only what it was granted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use dlock_core::Mode;
use redis::Value;

use super::referee::Referee;
use crate::support::wait::PATIENCE;
use crate::support::{Client, int_of};

/// Longer than a failover takes, shorter than the test waits until it calls a lock stuck.
const LEASE_MS: u64 = 20_000;
/// Short, so that a player that waits sees the end of the test.
const BLOCK_MS: u64 = 2_000;
/// How long a player is inside.
const VISIT: Duration = Duration::from_millis(1);
/// How long a player pauses before it tries once more.
const BREATH: Duration = Duration::from_millis(5);
/// How long a player waits for replicas.
const WAIT_MS: u64 = 1_000;

/// Where to look for the server in charge, at the n-th try.
pub type Guide = Arc<dyn Fn(usize) -> Option<u16> + Send + Sync>;

/// The state that all players share.
pub struct Field {
    pub guide: Guide,
    pub referee: Referee,
    pub is_over: AtomicBool,
    /// How many replicas must have a grant before it counts.
    pub copies: AtomicI64,
}

pub struct Player {
    field: Arc<Field>,
    /// The locks that it takes together, and their keys.
    locks: Vec<(usize, String)>,
    name: String,
    part: Part,
    server: Option<Client>,
    tries: usize,
}

/// How a player uses its locks.
#[derive(Clone, Copy)]
enum Part {
    /// `ACQUIRE`.
    Writes,
    /// `MACQUIRE`.
    TakesSeveral,
    /// `RLOCK`.
    Reads,
    /// `SACQUIRE` with the limit 1: to the referee, which knows no limits, it excludes everybody.
    TakesThePermit,
}

impl Part {
    fn mode(self) -> Mode {
        match self {
            Self::Reads => Mode::Shared,
            Self::Writes | Self::TakesSeveral | Self::TakesThePermit => Mode::Exclusive,
        }
    }
}

enum Verdict {
    Answered(Value),
    NotDone,
    /// The command may have been done.
    Unknown,
}

/// A reply, and whether the command had been sent before: then the first one may have been executed.
struct Answer {
    value: Value,
    is_repeated: bool,
}

impl Player {
    /// Two of a lock's players write, and one takes the next lock together with it. The other players read if it is the
    /// first lock, and take its one permit otherwise.
    pub fn new(field: &Arc<Field>, keys: &[String], lock: usize, number: usize) -> Self {
        let part = match number {
            0 | 1 => Part::Writes,
            2 => Part::TakesSeveral,
            _ if lock == 0 => Part::Reads,
            _ => Part::TakesThePermit,
        };
        let several = if matches!(part, Part::TakesSeveral) { 2 } else { 1 };
        let locks = (0..keys.len()).cycle().skip(lock).take(several).map(|at| (at, keys[at].clone())).collect();
        Self { field: field.clone(), locks, name: format!("{lock}-{number}"), part, server: None, tries: 0 }
    }

    /// Plays until it is over.
    pub fn play(mut self) {
        for round in 0.. {
            if self.field.is_over.load(Ordering::Relaxed) {
                return;
            }
            self.round(&format!("{}-{round}", self.name));
        }
    }

    fn round(&mut self, owner: &str) {
        let keys = self.locks.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(" ");
        let start = match self.part {
            Part::Writes => format!("ACQUIRE {keys} {owner}"),
            Part::TakesSeveral => format!("MACQUIRE {} {keys} {owner}", self.locks.len()),
            Part::Reads => format!("RLOCK {keys} {owner}"),
            Part::TakesThePermit => format!("SACQUIRE {keys} {owner} 1"),
        };
        let acquire = format!("DLOCK.{start} PX {LEASE_MS} BLOCK {BLOCK_MS} REQUEST r");
        let answer = self.answer(&acquire);
        let Value::Int(token) = answer.value else {
            assert_eq!(answer.value, Value::Nil, "{acquire}");
            return self.field.referee.is_told("nil");
        };
        let is_inside = self.is_kept();
        if is_inside {
            let (referee, mode) = (&self.field.referee, self.part.mode());
            self.locks.iter().for_each(|(lock, _)| referee.enters(*lock, owner, mode, token));
            std::thread::sleep(VISIT);
            self.locks.iter().for_each(|(lock, _)| referee.leaves(*lock, owner));
        }
        self.release(owner, token, is_inside);
    }

    fn release(&mut self, owner: &str, token: i64, was_inside: bool) {
        for (lock, key) in self.locks.clone() {
            let answer = self.answer(&format!("DLOCK.RELEASE {key} {owner} TOKEN {token}"));
            if answer.value == Value::Nil && was_inside && !answer.is_repeated {
                self.field.referee.has_lost(lock);
            }
        }
        // The release must arrive, so that the lock is free on the next primary, too.
        let _ = self.is_kept();
    }

    /// Says whether enough replicas have what this connection did last.
    fn is_kept(&mut self) -> bool {
        let copies = self.field.copies.load(Ordering::Relaxed);
        if copies == 0 {
            return true;
        }
        let Some(client) = &mut self.server else { return false };
        match client.outcome(format!("WAIT {copies} {WAIT_MS}")) {
            Ok(Ok(acknowledged)) => int_of(&acknowledged) >= copies,
            Ok(Err(_)) => false,
            Err(_) => {
                self.server = None;
                false
            }
        }
    }

    /// Sends a command until the server in charge has answered it.
    fn answer(&mut self, request: &str) -> Answer {
        let start = Instant::now();
        let mut is_repeated = false;
        loop {
            assert!(start.elapsed() < PATIENCE, "{}: no answer to {request}", self.name);
            let Some(client) = &mut self.server else {
                self.find();
                continue;
            };
            let outcome = client.outcome(request);
            match self.judge(request, outcome) {
                Verdict::Answered(value) => return Answer { value, is_repeated },
                Verdict::NotDone => {}
                Verdict::Unknown => is_repeated = true,
            }
        }
    }

    /// Says how an outcome counts, and where to send the command next.
    fn judge(&mut self, request: &str, outcome: std::io::Result<Result<Value, String>>) -> Verdict {
        let error = match outcome {
            Ok(Ok(value)) => return Verdict::Answered(value),
            Ok(Err(error)) => error,
            Err(_) => {
                self.field.referee.is_told("closed");
                self.server = None;
                return Verdict::Unknown;
            }
        };
        let words: Vec<_> = error.split(' ').collect();
        self.field.referee.is_told(words[0]);
        let there = || words[2].rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address");
        match words[0] {
            "MOVED" => self.server = Client::connect(there()).ok(),
            "ASK" => {
                let Ok(mut client) = Client::connect(there()) else { return Verdict::NotDone };
                let outcome = client.outcome("ASKING").and_then(|_| client.outcome(request));
                return self.judge(request, outcome);
            }
            "TRYAGAIN" => std::thread::sleep(BREATH),
            // The server is no primary, or not yet.
            "READONLY" | "UNBLOCKED" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" => {
                std::thread::sleep(BREATH);
                self.server = None;
            }
            _ => panic!("{}: {error} to {request}", self.name),
        }
        if words[0] == "UNBLOCKED" { Verdict::Unknown } else { Verdict::NotDone }
    }

    fn find(&mut self) {
        self.server = (self.field.guide)(self.tries).and_then(|port| Client::connect(port).ok());
        self.tries += 1;
        if self.server.is_none() {
            std::thread::sleep(BREATH);
        }
    }
}
