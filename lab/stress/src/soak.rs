//! Millions of operations, mixed, with waiters and sessions, after which the server's memory is what it was.
//!
//! The operations come in parts. After each part every lock is freed and every hold unbound, and `used_memory` is read.
//! The first part makes whatever is made once (tables, buffers). From then on the memory has to stay flat.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dlock_testkit::client::{Client, Request};
use dlock_testkit::random::Random;
use dlock_testkit::redis::Value;
use dlock_testkit::replica::{counter, info_field};
use dlock_testkit::{Server, Setup};

use crate::round::now;

#[derive(clap::Args)]
pub struct Options {
    /// How many.
    #[arg(long, default_value_t = 10_000_000)]
    operations: u64,
    /// The seed. By the clock if there is none.
    #[arg(long)]
    seed: Option<u64>,
}

/// Works until this number of operations is done; an error if memory grew.
pub fn run(options: &Options) -> Result<(), String> {
    let Options { operations, seed } = *options;
    let seed = seed.unwrap_or_else(now);
    println!("{operations} operations from seed {seed}");
    let mut server = Setup::new().conf("hz 100").module_args("default-lease 60000").start();
    let mut soak = Soak::begin(&server, seed);
    let start = Instant::now();
    let mut readings = Vec::new();
    for part in 1..=PARTS {
        while soak.done < operations * part / PARTS {
            soak.batch(&server);
        }
        let read = soak.settle(&server);
        readings.push(read);
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
    server.shutdown();
    Ok(())
}

struct Soak {
    random: Random,
    workers: Vec<Client>,
    waiters: Vec<Client>,
    done: u64,
    batches: u64,
    answers: BTreeMap<String, u64>,
}

impl Soak {
    fn begin(server: &Server, seed: u64) -> Soak {
        // The server's log of slow commands does not count.
        server.client().ok("CONFIG SET slowlog-log-slower-than -1");
        Soak {
            random: Random::seeded(seed),
            workers: clients(server, WORKERS),
            waiters: clients(server, WAITERS),
            done: 0,
            batches: 0,
            answers: BTreeMap::new(),
        }
    }

    /// Every connection sends its part, then reads its replies.
    fn batch(&mut self, server: &Server) {
        self.batches += 1;
        let mut counts = Vec::new();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let mut lines = Vec::new();
            while lines.len() < PIPELINE {
                operation(&mut self.random, number, &mut lines);
            }
            counts.push(lines.len());
            send(worker, &lines);
        }
        for (number, waiter) in self.waiters.iter_mut().enumerate() {
            let lines: Vec<String> = (0..HAND_OFFS).flat_map(|_| hand_off(number)).collect();
            send(waiter, &lines);
            counts.push(lines.len());
        }
        for (client, count) in self.workers.iter_mut().chain(&mut self.waiters).zip(counts) {
            self.done += read(client, count, &mut self.answers);
        }
        if self.batches.is_multiple_of(20) {
            // A connection ends, and with it the holds that are bound to it.
            let at = usize::try_from(self.batches / 20).unwrap_or(0) % WORKERS;
            self.workers.splice(at..=at, [server.client()]);
        }
    }

    /// Waits until nothing is left of what was done. Returns how much memory the server then uses.
    fn settle(&mut self, server: &Server) -> u64 {
        self.workers.clear();
        let mut looker = server.client();
        looker.ok("FLUSHALL");
        let deadline = Instant::now() + Duration::from_secs(60);
        let field = |looker: &mut Client, section, field| -> u64 {
            info_field(looker, section, field).expect("a field of INFO").parse().expect("a number")
        };
        // Buffers of connections shrink when the server gets to it.
        let clients_left = WAITERS as u64 + 1;
        let mut least = u64::MAX;
        let mut quiet = 0;
        while quiet < 20 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(100));
            let used = field(&mut looker, "memory", "used_memory");
            let is_over = counter(&mut looker, "sessions") == 0
                && field(&mut looker, "clients", "connected_clients") == clients_left;
            quiet = if is_over && used >= least { quiet + 1 } else { 0 };
            if is_over {
                least = least.min(used);
            }
        }
        drop(looker);
        self.workers = clients(server, WORKERS);
        least
    }
}

fn clients(server: &Server, count: usize) -> Vec<Client> {
    (0..count).map(|_| server.client()).collect()
}

/// Returns the commands of a waiter: it waits for the lock in its own way, and frees it.
fn hand_off(number: usize) -> Vec<String> {
    let bound = if number.is_multiple_of(2) { "SESSION" } else { "" };
    let wait = format!("PX 60000 BLOCK 0 {bound}");
    let free = format!("DLOCK.RELEASE hot waiter-{number}");
    match number % 8 {
        3 => vec![format!("DLOCK.RLOCK hot waiter-{number} {wait}"), free],
        5 | 6 => vec![format!("DLOCK.SACQUIRE hot waiter-{number} 3 PERMITS 2 {wait}"), format!("{free} PERMITS 2")],
        4 | 7 => vec![
            format!("DLOCK.MACQUIRE 2 hot warm waiter-{number} {wait}"),
            free,
            format!("DLOCK.RELEASE warm waiter-{number}"),
        ],
        _ => vec![format!("DLOCK.WLOCK hot waiter-{number} {wait}"), free],
    }
}

/// Draws an operation, or a transaction of some.
fn operation(random: &mut Random, worker: usize, lines: &mut Vec<String>) {
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
    let line = match random.below(38) {
        0..4 => format!("DLOCK.ACQUIRE {key} {owner} {lease} {request} {session}"),
        4..6 => format!("DLOCK.RACQUIRE {key} {owner} {lease} {request}"),
        6..12 => format!("DLOCK.RLOCK {key} {owner} {lease} {request} {session}"),
        // Few commands wait, because all commands that are sent behind one wait, too.
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
        31..34 => format!("DLOCK.SACQUIRE {key} {owner} 9 PERMITS {} {lease} {request} {session}", 1 + random.below(4)),
        34 => format!("DLOCK.RELEASE {key} {owner} PERMITS {} {request}", 1 + random.below(4)),
        35 | 36 => format!("DLOCK.MACQUIRE 3 {key} {key}-{worker} other-{worker} {owner} {lease} {request} {session}"),
        _ => {
            lines.push("MULTI".to_owned());
            lines.push(format!("DLOCK.RLOCK {key} {owner} {lease}"));
            lines.push(format!("DLOCK.RELEASE {key} {owner}"));
            "EXEC".to_owned()
        }
    };
    lines.push(line);
}

fn send(client: &mut Client, lines: &[impl Request]) {
    let bytes: Vec<u8> = lines.iter().flat_map(Request::packed).collect();
    client.send_raw(&bytes);
}

/// Reads `count` replies, and counts them by kind.
fn read(client: &mut Client, count: usize, answers: &mut BTreeMap<String, u64>) -> u64 {
    for _ in 0..count {
        let kind = match client.read() {
            Err(text) => text.split_whitespace().take(4).collect::<Vec<_>>().join(" "),
            Ok(Value::Int(_)) => "integer".to_owned(),
            Ok(Value::Nil) => "nil".to_owned(),
            Ok(Value::Okay) => "OK".to_owned(),
            Ok(Value::SimpleString(text)) => text,
            Ok(Value::BulkString(_)) => "text".to_owned(),
            Ok(_) => "list".to_owned(),
        };
        *answers.entry(kind).or_default() += 1;
    }
    count as u64
}

const PARTS: u64 = 20;
const WORKERS: usize = 4;
const WAITERS: usize = 8;
const PIPELINE: usize = 200;
/// How often each waiter gets the lock in a batch.
const HAND_OFFS: usize = 10;
const KEYS: u64 = 100;
/// A byte for every 40 operations would be seen: the smallest thing that could leak has 16.
const MOST_GROWTH: u64 = 256 * 1024;
