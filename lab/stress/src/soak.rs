//! Millions of operations, mixed, with waiters and sessions, after which the server's memory is what it was.
//!
//! The operations come in parts. After each part every lock is freed and every hold unbound, and `used_memory` is read.
//! The first part makes whatever is made once (tables, buffers); from then on it has to stay flat.

use std::collections::BTreeMap;
use std::time::Instant;

use dlock_testkit::random::Random;

use crate::encode::{Words, words};
use crate::option;
use crate::round::now;
use crate::server::Server;
use crate::wire::{Answer, Connection, write_request};

/// Works until so many operations are done; an error if memory grew.
pub fn run(options: &[String]) -> Result<(), String> {
    let operations = option(options, "--operations")?.unwrap_or(10_000_000);
    let seed = option(options, "--seed")?.unwrap_or_else(now);
    println!("{operations} operations from seed {seed}");
    let server = Server::start("default-lease 60000")?;
    let mut soak = Soak::begin(&server, seed)?;
    let start = Instant::now();
    let mut readings = Vec::new();
    for part in 1..=PARTS {
        while soak.done < operations * part / PARTS {
            soak.batch()?;
        }
        readings.push(soak.settle()?);
        let read = readings.last().copied().unwrap_or(0);
        println!("{:>10} operations, {:>5} s, used_memory {read}", soak.done, start.elapsed().as_secs());
    }
    for (what, times) in &soak.answers {
        println!("{times:>10}  {what}");
    }
    let (first, last) = (readings.first().copied().unwrap_or(0), readings.last().copied().unwrap_or(0));
    let most = readings.iter().copied().max().unwrap_or(0);
    println!("after the first part {first}, at most {most}, at the end {last} bytes");
    if most > first + MOST_GROWTH {
        return Err(format!("used_memory grew by {} bytes, {MOST_GROWTH} are allowed; seed {seed}", most - first));
    }
    drop(soak);
    server.stop()
}

struct Soak {
    port: u16,
    random: Random,
    workers: Vec<Connection>,
    waiters: Vec<Connection>,
    done: u64,
    batches: u64,
    answers: BTreeMap<String, u64>,
}

impl Soak {
    fn begin(server: &Server, seed: u64) -> Result<Soak, String> {
        let open = |count: usize| (0..count).map(|_| Connection::open(server.port)).collect::<Result<Vec<_>, _>>();
        let (workers, waiters) = (open(WORKERS)?, open(WAITERS)?);
        let random = Random::seeded(seed);
        let soak = Soak { port: server.port, random, workers, waiters, done: 0, batches: 0, answers: BTreeMap::new() };
        // What the server remembers of slow commands is not ours.
        soak.looker()?.call(&[b"CONFIG", b"SET", b"slowlog-log-slower-than", b"-1"])?;
        Ok(soak)
    }

    /// Every connection sends its part, then reads its replies.
    fn batch(&mut self) -> Result<(), String> {
        self.batches += 1;
        let mut counts = Vec::new();
        for number in 0..WORKERS {
            let mut lines: Vec<Words> = Vec::new();
            while lines.len() < PIPELINE {
                operation(&mut self.random, number, &mut lines);
            }
            counts.push(lines.len());
            send(self.workers.get_mut(number), &lines)?;
        }
        for number in 0..WAITERS {
            let bound = if number % 2 == 0 { "SESSION" } else { "" };
            let command = if number % 4 == 3 { "RLOCK" } else { "WLOCK" };
            let pair = [
                words(&format!("DLOCK.{command} hot waiter-{number} PX 60000 BLOCK 0 {bound}")),
                words(&format!("DLOCK.RELEASE hot waiter-{number}")),
            ];
            let lines: Vec<Words> = pair.iter().cycle().take(HAND_OFFS * 2).cloned().collect();
            send(self.waiters.get_mut(number), &lines)?;
        }
        for (connection, count) in self.workers.iter_mut().zip(counts) {
            self.done += read(connection, count, &mut self.answers)?;
        }
        for connection in &mut self.waiters {
            self.done += read(connection, HAND_OFFS * 2, &mut self.answers)?;
        }
        if self.batches.is_multiple_of(20) {
            self.replace_a_worker()?;
        }
        Ok(())
    }

    /// A connection ends, and with it the holds that are bound to it.
    fn replace_a_worker(&mut self) -> Result<(), String> {
        let new = Connection::open(self.port)?;
        let at = usize::try_from(self.batches / 20).unwrap_or(0) % WORKERS;
        if let Some(place) = self.workers.get_mut(at) {
            *place = new;
        }
        Ok(())
    }

    /// Nothing is left of what was done; how much memory the server uses.
    fn settle(&mut self) -> Result<u64, String> {
        self.workers.clear();
        let mut looker = self.looker()?;
        looker.call(&[b"FLUSHALL"])?;
        let deadline = Instant::now() + std::time::Duration::from_secs(60);
        let field = |looker: &mut Connection, section: &str, field: &str| -> Result<u64, String> {
            let info = looker.call(&[b"INFO", section.as_bytes()])?;
            let info = String::from_utf8_lossy(info.text()?).into_owned();
            let found = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().parse().ok());
            found.ok_or_else(|| format!("no {field}"))
        };
        // Buffers of connections shrink when the server gets to it.
        let clients = WAITERS as u64 + 1;
        let mut least = u64::MAX;
        let mut quiet = 0;
        while quiet < 20 && Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let used = field(&mut looker, "memory", "used_memory")?;
            let is_over = field(&mut looker, "dlock", "dlock_sessions")? == 0
                && field(&mut looker, "clients", "connected_clients")? == clients;
            quiet = if is_over && used >= least { quiet + 1 } else { 0 };
            if is_over {
                least = least.min(used);
            }
        }
        drop(looker);
        self.workers = (0..WORKERS).map(|_| Connection::open(self.port)).collect::<Result<_, _>>()?;
        Ok(least)
    }

    fn looker(&self) -> Result<Connection, String> {
        Connection::open(self.port)
    }
}

/// One operation, or a transaction of some.
fn operation(random: &mut Random, worker: usize, lines: &mut Vec<Words>) {
    let key = format!("k{}", random.below(KEYS));
    let owner = match random.below(12) {
        0 => format!("0f8fad5b-d9cb-469f-a165-{:012}", random.below(6)),
        1 => "*".to_owned(),
        number => format!("owner-{number}"),
    };
    let lease = match random.below(8) {
        0 => format!("PX {}", 1 + random.below(30)),
        1..4 => format!("PX {}", 20_000 + random.below(20_000)),
        4 => format!("EX {}", 20 + random.below(20)),
        _ => String::new(),
    };
    let request =
        if owner != "*" && random.one_in(4) { format!("REQUEST r{}", random.below(4)) } else { String::new() };
    // A hold that is bound lives until its connection ends.
    let session = if !lease.starts_with("PX ") && random.one_in(10) { "SESSION" } else { "" };
    let line = match random.below(32) {
        0..4 => format!("DLOCK.ACQUIRE {key} {owner} {lease} {request} {session}"),
        4..6 => format!("DLOCK.RACQUIRE {key} {owner} {lease} {request}"),
        6..12 => format!("DLOCK.RLOCK {key} {owner} {lease} {request} {session}"),
        // Its time runs out when the server gets to it, and all that is sent behind it waits: so only few.
        12 if random.one_in(50) => format!("DLOCK.WLOCK {key} {owner} {lease} BLOCK 1"),
        12 => format!("DLOCK.WLOCK {key} {owner} {lease}"),
        13..19 => format!("DLOCK.RELEASE {key} {owner} {request}"),
        19..22 => format!("DLOCK.RELEASE {key} {owner} ALL"),
        22..24 => format!("DLOCK.RENEW {key} {owner} {lease}"),
        24 => format!("DLOCK.INFO {key} FULL"),
        25 => format!("DLOCK.CHECK {key} 1"),
        26 | 27 => format!("DEL {key}"),
        28 => format!("RENAME {key} {key}-{worker}"),
        29 => format!("PEXPIRE {key} {}", 1 + random.below(50_000)),
        30 => format!("DLOCK.ACQUIRE {key} {owner} PX none"),
        _ => {
            lines.push(words("MULTI"));
            lines.push(words(&format!("DLOCK.RLOCK {key} {owner} {lease}")));
            lines.push(words(&format!("DLOCK.RELEASE {key} {owner}")));
            "EXEC".to_owned()
        }
    };
    lines.push(words(&line));
}

fn send(connection: Option<&mut Connection>, lines: &[Words]) -> Result<(), String> {
    let mut bytes = Vec::new();
    for line in lines {
        let line: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
        write_request(&mut bytes, &line);
    }
    connection.ok_or("no connection")?.send_bytes(&bytes)
}

/// Reads so many replies, and counts them by kind.
fn read(connection: &mut Connection, count: usize, answers: &mut BTreeMap<String, u64>) -> Result<u64, String> {
    for _ in 0..count {
        let kind = match connection.read()? {
            Answer::Error(text) => text.split_whitespace().take(4).collect::<Vec<_>>().join(" "),
            Answer::Integer(_) => "integer".to_owned(),
            Answer::Nil => "nil".to_owned(),
            Answer::Status(text) => text,
            Answer::List(_) => "list".to_owned(),
            Answer::Bytes(_) => "text".to_owned(),
        };
        *answers.entry(kind).or_default() += 1;
    }
    Ok(count as u64)
}

const PARTS: u64 = 20;
const WORKERS: usize = 4;
const WAITERS: usize = 8;
const PIPELINE: usize = 200;
/// How often each waiter gets the lock in a batch.
const HAND_OFFS: usize = 10;
const KEYS: u64 = 100;
/// One byte for every 40 operations would be seen: the smallest thing that could leak has 16.
const MOST_GROWTH: u64 = 256 * 1024;
