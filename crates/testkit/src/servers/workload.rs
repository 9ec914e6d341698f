//! Thousands of random operations on a server, whose state is then compared with that of other servers.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::client::Client;
use crate::lock::Info;
use crate::random::{Random, seeded};
use crate::req;

pub const OPERATIONS: usize = 5000;
const ROUNDS: usize = 10;
/// The number of keys with many readers and rarely a writer. The other keys have one owner in both modes.
const CROWDED: u64 = 520;
const KEYS: u64 = 700;
/// The longest of the short leases, in ms. They end between two rounds.
const SHORT: u64 = 60;
/// The number of readers with short leases at the end of each round.
const VISITORS: usize = 50;

struct Workload<'a> {
    client: &'a mut Client,
    random: Random,
    /// The holds at the start of the round: `(key, owner, token)`.
    known: Vec<(String, Vec<u8>, i64)>,
}

/// Runs the operations and waits until every short lease has ended. Fails if the state has too few holds or holds of
/// too few kinds to be worth comparing.
#[track_caller]
pub fn random_operations(client: &mut Client, seed: u64) {
    let mut work = Workload { client, random: seeded(seed), known: Vec::new() };
    let mut lapsed_beside_live = 0;
    for round in 0..ROUNDS {
        let mut requests = Vec::new();
        for _ in 0..OPERATIONS / ROUNDS - VISITORS {
            work.operation(&mut requests);
        }
        work.client.pipeline(&requests);
        let visits: Vec<_> = (0..VISITORS).map(|n| (work.key(), format!("visitor-{round}-{n}"))).collect();
        let requests: Vec<_> = visits.iter().map(|(key, owner)| req!["DLOCK.RLOCK", key, owner, "PX", SHORT]).collect();
        let granted = work.client.pipeline(&requests);
        std::thread::sleep(Duration::from_millis(SHORT + 5));
        let after = work.live();
        for ((key, owner), reply) in visits.iter().zip(granted) {
            let beside = after.get(key).is_some_and(|info| info.holds().iter().all(|h| h.owner != owner.as_bytes()));
            lapsed_beside_live += usize::from(matches!(reply, Ok(Value::Int(_))) && beside);
        }
        let holds = |info: &Info| info.holds().to_vec();
        work.known = after
            .iter()
            .flat_map(|(key, info)| holds(info).into_iter().map(move |hold| (key.clone(), hold.owner, hold.token)))
            .collect();
        work.known.sort();
    }
    std::thread::sleep(Duration::from_millis(1300));
    let live = work.live();
    let holds: usize = live.values().map(|info| info.holds().len()).sum();
    let both = live.values().filter(|info| info.mode == "both").count();
    eprintln!(
        "{} keys, {holds} holds, {both} keys in both modes, {lapsed_beside_live} holds lapsed beside live ones",
        live.len()
    );
    assert!(live.len() >= 500 && holds >= 1000 && both >= 20 && lapsed_beside_live >= 100);
}

impl Workload<'_> {
    /// Returns `DLOCK.INFO` of every key of database 0.
    fn live(&mut self) -> HashMap<String, Info> {
        let keys: Vec<_> = (0..KEYS).map(|n| format!("k{n}")).collect();
        let requests: Vec<_> = keys.iter().map(|key| format!("DLOCK.INFO {key} FULL COUNT 0")).collect();
        let replies = self.client.pipeline(&requests);
        let shown = |reply: Result<Value, String>| match reply {
            Ok(Value::Nil) | Err(_) => None,
            Ok(value) => Some(Info::of(&value)),
        };
        keys.into_iter().zip(replies).filter_map(|(key, reply)| Some((key, shown(reply)?))).collect()
    }

    fn operation(&mut self, requests: &mut Vec<Cmd>) {
        let request = match self.random.below(100) {
            0..48 => self.acquire(true),
            48..60 => self.acquire(false),
            60..68 => self.release(),
            68..74 => self.release_known(),
            74..82 => self.renew(),
            82..86 => self.renew_known(),
            86..90 => self.expire(),
            90..92 => self.remove(),
            92..95 => return self.transaction(requests),
            95..98 => self.script(),
            _ => return self.elsewhere(requests),
        };
        requests.push(request);
    }

    fn key(&mut self) -> String {
        format!("k{}", self.random.below(KEYS))
    }

    /// Draws a key, an owner of that key, and whether the owner asks for an exclusive hold.
    fn player(&mut self) -> (String, Vec<u8>, bool) {
        let number = self.random.below(KEYS);
        if number >= CROWDED {
            let writes = self.random.one_in(2);
            return (format!("k{number}"), format!("owner-of-{number}").into_bytes(), writes);
        }
        let owner = match self.random.below(14) {
            0 => b"\0\r\n\xff".to_vec(),
            1 => b"0f8fad5b-d9cb-469f-a165-70867728950e".to_vec(),
            2 => b"0F8FAD5B-D9CB-469F-A165-70867728950E".to_vec(),
            3 => vec![b'l'; 300],
            n => format!("o{n}").into_bytes(),
        };
        (format!("k{number}"), owner, self.random.one_in(12))
    }

    fn lease(&mut self, long: bool) -> (&'static str, u64) {
        match (long, self.random.below(10)) {
            (false, _) => ("PX", 1 + self.random.below(SHORT)),
            (true, 0) => ("EX", 600 + self.random.below(1000)),
            (true, 1) => ("PXAT", self.client.now().unsigned_abs() + 600_000 + self.random.below(1_000_000)),
            (true, 2) => ("EXAT", self.client.now().unsigned_abs() / 1000 + 600 + self.random.below(1000)),
            (true, _) => ("PX", 600_000 + self.random.below(1_000_000)),
        }
    }

    fn acquire(&mut self, long: bool) -> Cmd {
        let (key, owner, writes) = self.player();
        let command = match writes {
            true => self.random.pick(&["DLOCK.ACQUIRE", "DLOCK.RACQUIRE", "DLOCK.WLOCK"]),
            false => "DLOCK.RLOCK",
        };
        let (unit, time) = self.lease(long);
        req![command, key, owner, unit, time]
    }

    fn release(&mut self) -> Cmd {
        let (key, owner, _) = self.player();
        let mut request = req!["DLOCK.RELEASE", key, owner];
        if let Some(options) = self.random.pick(&[None, None, Some("READ"), Some("WRITE"), Some("ALL")]) {
            request.arg(options);
        }
        request
    }

    fn release_known(&mut self) -> Cmd {
        if self.known.is_empty() {
            return self.release();
        }
        let (key, owner, token) = self.random.pick(&self.known);
        let mut request = req!["DLOCK.RELEASE", key, owner, "TOKEN", token];
        if self.random.one_in(3) {
            request.arg("ALL");
        }
        request
    }

    fn renew(&mut self) -> Cmd {
        let (key, owner, _) = self.player();
        let mut request = req!["DLOCK.RENEW", key, owner];
        if self.random.one_in(2) {
            let long = !self.random.one_in(4);
            let (unit, time) = self.lease(long);
            request.arg(unit).arg(time);
        }
        if let Some(mode) = self.random.pick(&[None, Some("READ"), Some("WRITE")]) {
            request.arg(mode);
        }
        request
    }

    fn renew_known(&mut self) -> Cmd {
        if self.known.is_empty() {
            return self.renew();
        }
        let (key, owner, token) = self.random.pick(&self.known);
        match self.random.below(3) {
            0 => req!["DLOCK.RENEW", key, owner, "MINTOKEN", token + self.random.below(100).cast_signed()],
            1 => req!["DLOCK.RENEW", key, owner, "TOKEN", token, "PX", 1 + self.random.below(SHORT)],
            _ => req!["DLOCK.RENEW", key, owner, "TOKEN", token],
        }
    }

    fn expire(&mut self) -> Cmd {
        let key = self.key();
        match self.random.below(8) {
            0 => req!["PEXPIRE", key, 1 + self.random.below(SHORT)],
            1 => req!["PEXPIRE", key, 300_000 + self.random.below(100_000)],
            2 => req!["EXPIRE", key, 5000],
            3 => req!["PEXPIREAT", key, self.client.now() + 9_000_000],
            _ => req!["PERSIST", key],
        }
    }

    fn remove(&mut self) -> Cmd {
        let (key, other) = (self.key(), self.key());
        match self.random.below(4) {
            0 => req!["UNLINK", key],
            1 if key != other => req!["RENAME", key, other],
            _ => req!["DEL", key],
        }
    }

    fn transaction(&mut self, requests: &mut Vec<Cmd>) {
        let mut inner = vec![self.acquire(true), self.acquire(false), self.renew(), self.release()];
        requests.push(req!["MULTI"]);
        requests.append(&mut inner);
        requests.push(req!["EXEC"]);
    }

    fn script(&mut self) -> Cmd {
        let (key, owner, _) = self.player();
        let body = "local t = redis.call('DLOCK.RLOCK', KEYS[1], ARGV[1], 'PX', ARGV[2])
            if t then redis.call('DLOCK.RLOCK', KEYS[1], ARGV[1]) end
            redis.pcall('DLOCK.RENEW', KEYS[1], ARGV[1], 'PX', ARGV[2], 'READ')
            return redis.pcall('DLOCK.RELEASE', KEYS[1], ARGV[1], 'READ')";
        let long = !self.random.one_in(4);
        let lease = if long { 700_000 } else { 1 + self.random.below(SHORT) };
        req!["EVAL", body, 1, key, owner, lease]
    }

    /// Adds requests that use other databases, or that restore a dump under another name.
    fn elsewhere(&mut self, requests: &mut Vec<Cmd>) {
        let key = self.key();
        match self.random.below(5) {
            0 => requests.push(req!["MOVE", key, 1 + self.random.below(3)]),
            1 => requests.push(req!["SWAPDB", 1, 2 + self.random.below(2)]),
            2 => requests.extend([req!["SELECT", 3], req!["FLUSHDB"], req!["SELECT", 0]]),
            3 => {
                let inner = self.acquire(true);
                requests.extend([req!["SELECT", 1 + self.random.below(3)], inner, req!["SELECT", 0]]);
            }
            _ => {
                let end = self.client.int(format!("PEXPIRETIME {key}"));
                if let (Value::BulkString(dump), 1..) = (self.client.run(format!("DUMP {key}")), end) {
                    let other = self.key();
                    requests.push(req!["RESTORE", other, end, dump, "REPLACE", "ABSTTL"]);
                }
            }
        }
    }
}
