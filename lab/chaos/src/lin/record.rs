//! Histories of two locks on a real server: a few connections send what is drawn for them, all at once. In every other
//! history they wait for each other.

use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use dlock_testkit::random::Random;
use dlock_testkit::{Client as Connection, Server};

use super::Op;
use super::search::is_linearizable;
use crate::failure::{Failure, Result};
use crate::history::Reply;
use crate::time::{Micros, now, sleep_ms, unix_ahead};

/// Counts of recorded histories and of findings.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub histories: usize,
    pub commands: usize,
    /// Histories that were not judged, since the machine was so busy that their times say little.
    pub blurred: usize,
    pub violations: Vec<String>,
}

/// Records histories for `ms` milliseconds, on a busy machine for longer, and checks each.
pub fn record_and_check(server: &Server, seed: u64, ms: u64) -> Result<Tally> {
    let mut tally = Tally::default();
    let end = now() + ms * 1000;
    let mut number = 0;
    let is_over = |tally: &Tally| now() >= end && (tally.histories >= FEWEST || now() >= end + LONGER_US);
    while tally.violations.is_empty() && !is_over(&tally) {
        let history = record(server, seed, number)?;
        number += 1;
        let is_blurred = |op: &Op| op.until_ms.saturating_sub(op.from_ms) > BLURRED_MS && !op.command.contains("BLOCK");
        if history.iter().any(is_blurred) {
            tally.blurred += 1;
            continue;
        }
        tally.histories += 1;
        tally.commands += history.len();
        if !is_linearizable(&history) {
            let lines: Vec<String> = history.iter().map(describe).collect();
            tally.violations.push(format!("history {number} of seed {seed} has no order:\n{}", lines.concat()));
        }
        sleep_ms(PAUSE_MS);
    }
    server.client().ok("FLUSHALL");
    Ok(tally)
}

const CONNECTIONS: usize = 4;
/// The commands of each connection. Together at most what a search can order.
const COMMANDS: usize = 12;
/// The longest time between sending and reply. Beyond it, the times say little, and a search takes long.
const BLURRED_MS: u64 = 100;
/// The fewest histories to judge. On a busy machine, recording goes on for them.
const FEWEST: usize = 4;
/// How long recording goes on at most.
const LONGER_US: u64 = 60_000_000;
/// Between histories: this is no load test.
const PAUSE_MS: u64 = 10;

/// Records a history on two keys of its own; the second ends with a plus.
fn record(server: &Server, seed: u64, number: u64) -> Result<Vec<Op>> {
    let key = format!("history-{number}");
    let (ops, barrier) = (Mutex::new(Vec::new()), Barrier::new(CONNECTIONS));
    let connections: Vec<Connection> = (0..CONNECTIONS).map(|_| server.client()).collect();
    let ahead = unix_ahead();
    let failed = thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(at, connection)| {
                let (random, ops, barrier) = (Random::of(seed, &format!("{key}-{at}")), &ops, &barrier);
                let own = (number % 2 == 1).then(|| format!("own-{at}"));
                let mut client = Client { connection, random, key: &key, ahead, token: 1, own };
                scope.spawn(move || {
                    barrier.wait();
                    (0..COMMANDS).try_for_each(|_| {
                        let op = client.step()?;
                        ops.lock().unwrap_or_else(PoisonError::into_inner).push(op);
                        Ok::<_, Failure>(())
                    })
                })
            })
            .collect();
        threads.into_iter().any(|thread| !matches!(thread.join(), Ok(Ok(()))))
    });
    if failed || (unix_ahead() - ahead).abs() > 900 {
        return Err(Failure(format!(
            "no history: a connection ended, or the machine's clock was set\n{}",
            server.log()
        )));
    }
    let mut ops = ops.into_inner().unwrap_or_else(PoisonError::into_inner);
    ops.sort_by_key(|op| op.sent);
    Ok(ops)
}

struct Client<'a> {
    connection: Connection,
    random: Random,
    key: &'a str,
    /// See [`unix_ahead`].
    ahead: i64,
    /// The last token this connection was given.
    token: i64,
    /// The owner of this connection alone, in a history of waiting.
    own: Option<String>,
}

impl Client<'_> {
    fn step(&mut self) -> Result<Op> {
        if self.random.one_in(3) {
            sleep_ms(1 + self.random.below(12));
        }
        let command = self.draw();
        let sent = now();
        let reply = Reply::of(self.connection.outcome(&command)?);
        let replied = now();
        // Tokens are unix times in µs. Other numbers are small.
        if let Reply::Int(token) = reply
            && token > 1_000_000
        {
            self.token = token;
        }
        // The server's clock is that of the machine, read in whole µs: 1 ms is more than enough.
        let (from_ms, until_ms) = (self.unix_ms(sent) - 1, self.unix_ms(replied) + 1);
        Ok(Op { command, from_ms, until_ms, sent, replied, reply })
    }

    fn unix_ms(&self, time: Micros) -> u64 {
        time.saturating_add_signed(self.ahead) / 1000
    }

    fn draw(&mut self) -> String {
        let plus = if self.random.one_in(4) { "+" } else { "" };
        let key = format!("{}{plus}", self.key);
        let (owner, patience) = match &self.own {
            // An owner that waits is one thread of control.
            Some(own) => (own.clone(), self.patience()),
            None => (self.random.pick(&["alice", "bob", "carol"]).to_owned(), String::new()),
        };
        let lease = if self.random.one_in(2) { 5 + self.random.below(25) } else { 60_000 };
        let request = if self.random.one_in(3) { format!(" REQUEST r{}", self.random.below(2)) } else { String::new() };
        let options = format!("PX {lease}{patience}{request}");
        match self.random.below(21) {
            0 | 1 => format!("DLOCK.ACQUIRE {key} {owner} {options}"),
            2 => format!("DLOCK.RACQUIRE {key} {owner} {options}"),
            3 => format!("DLOCK.WLOCK {key} {owner} {options}"),
            4 => format!("DLOCK.RLOCK {key} {owner} {options}"),
            5..=7 => {
                let limit = self.random.within(1..5);
                let permits = self.random.within(1..limit + 1);
                format!("DLOCK.SACQUIRE {key} {owner} {limit} PERMITS {permits} {options}")
            }
            8 | 9 => {
                let key = self.key;
                let keys = if self.random.one_in(2) { format!("{key} {key}+") } else { format!("{key}+ {key}") };
                format!("DLOCK.MACQUIRE 2 {keys} {owner} {options}")
            }
            10 | 11 => format!("DLOCK.RELEASE {key} {owner}{request}"),
            12 => format!("DLOCK.RELEASE {key} {owner} PERMITS {}{request}", self.random.within(1..4)),
            13 | 14 => format!("DLOCK.RELEASE {key} {owner} ALL"),
            15 => format!("DLOCK.RELEASE {key} {owner} {}{request}", self.mode()),
            16 => format!("DLOCK.RELEASE {key} {owner} TOKEN {}", self.token),
            17 => format!("DLOCK.RENEW {key} {owner} PX {lease}"),
            18 => format!("DLOCK.RENEW {key} {owner} PX {lease} {}", self.mode()),
            19 => format!("DLOCK.CHECK {key} {}", self.token),
            _ => format!("DLOCK.INFO {key}"),
        }
    }

    /// Returns whether and for how long to wait.
    fn patience(&mut self) -> String {
        if self.random.one_in(4) { String::new() } else { format!(" BLOCK {}", 1 + self.random.below(20)) }
    }

    fn mode(&mut self) -> &'static str {
        if self.random.one_in(2) { "READ" } else { "WRITE" }
    }
}

fn describe(op: &Op) -> String {
    format!("  {} .. {}  {}  {:?}\n", op.sent, op.replied, op.command, op.reply)
}
