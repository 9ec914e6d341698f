//! Random histories of clients: each request gets one reply, in order, however its wait ends.
//!
//! The server and its clients run in one thread, over sockets. `DLOCK_SEED` repeats from the seed that a failure names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dlock_core::{Name, Owner};
use dlock_testkit::random::Random;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, yield_now};

use super::options::ServeOptions;
use super::server::Server;
use crate::listen::Incoming;
use crate::stats::Stats;

#[test]
fn each_request_gets_one_reply_in_order() {
    let first = std::env::var("DLOCK_SEED").map_or(58, |text| text.parse().expect("a number in DLOCK_SEED"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (first..first + HISTORIES).for_each(|seed| runtime.block_on(play(seed)));
}

/// The number of histories, each with the seed after that of the one before.
const HISTORIES: u64 = 300;

/// Plays one history.
async fn play(seed: u64) {
    let mut random = Random::seeded(seed);
    let local = LocalSet::new();
    let mut world = World::new(seed, &local);
    local
        .run_until(async {
            for _ in 0..5 + random.below(20) {
                world.step(&mut random);
                for _ in 0..random.below(5) {
                    yield_now().await;
                }
            }
            // In the other histories, the server ends while requests wait.
            if !random.one_in(6) {
                world.finish().await;
            }
        })
        .await;
    // Ends the server with all its tasks. Connections may end now.
    drop(local);
    world.peers.iter_mut().for_each(|peer| (peer.may_end, peer.is_deaf) = (true, false));
    world.check();
    assert!(world.peers.iter().all(|peer| peer.has_ended), "seed {seed}: a connection is left");
}

struct World {
    seed: u64,
    server: Rc<RefCell<Server>>,
    /// The clients. The first one ends the waits and the connections of the others.
    peers: Vec<Peer>,
    /// The number of owners so far. Each owner asks once for a lock.
    owners: u64,
}

/// A client, as it sees its own connection.
struct Peer {
    stream: UnixStream,
    /// The bytes that the socket has not taken yet.
    to_send: Vec<u8>,
    /// The bytes that are not read as replies yet.
    received: Vec<u8>,
    /// The requests of the client that have no reply yet.
    asked: VecDeque<Asked>,
    /// Whether its connection may end before all replies have come.
    may_end: bool,
    has_ended: bool,
    /// Whether it reads nothing before the end of the history.
    is_deaf: bool,
}

/// A request of a client.
#[derive(Debug)]
enum Asked {
    Echo(String),
    Lock(String, &'static [&'static str]),
    /// A request whose reply may be any.
    Other,
}

impl World {
    fn new(seed: u64, local: &LocalSet) -> Self {
        let mut options = ServeOptions::new(Vec::new());
        options.test_clock = true;
        let stats = Rc::new(Stats::new(Box::new(|_| ())));
        let server = Rc::new(RefCell::new(Server::new(options, stats, 0)));
        let (to, incoming) = mpsc::channel(PEERS);
        let peers = (0..PEERS).map(|_| {
            let (own, other) = UnixStream::pair().unwrap();
            own.set_nonblocking(true).unwrap();
            other.set_nonblocking(true).unwrap();
            to.try_send(Incoming::Unix(tokio::net::UnixStream::from_std(other).unwrap())).ok().unwrap();
            let (to_send, received, asked) = (Vec::new(), Vec::new(), VecDeque::new());
            Peer { stream: own, to_send, received, asked, may_end: false, has_ended: false, is_deaf: false }
        });
        let peers = peers.collect();
        // The channel for new clients stays open, as it does while a server listens.
        let stop = async move {
            let _to = to;
            std::future::pending().await
        };
        local.spawn_local(super::drive(server.clone(), incoming, None, stop));
        let mut world = Self { seed, server, peers, owners: 0 };
        (0..PEERS).step_by(2).for_each(|at| world.peers[at].ask("HELLO 3", Asked::Other));
        world
    }

    /// Lets a client send some requests, stop reading or leave, or lets time pass. Checks the replies that have come.
    fn step(&mut self, random: &mut Random) {
        let at = random.below(PEERS as u64) as usize;
        if random.one_in(5) {
            // The time passes without a turn of the server in between: leases and waits end in one turn.
            let server = self.server.borrow();
            server.clock.advance(random.pick(&TIMES) * 1000);
            server.timer.notify_one();
        } else if at > 0 && random.one_in(40) {
            self.peers[at].may_end = true;
            let _ = self.peers[at].stream.shutdown(if random.one_in(2) { Shutdown::Write } else { Shutdown::Both });
        } else if at > 0 && random.one_in(40) {
            self.peers[at].is_deaf = true;
            (0..MANY).for_each(|_| self.peers[at].ask("DLOCK.HELP", Asked::Other));
        } else {
            for _ in 0..=random.below(4) {
                self.request(at, random);
                if random.one_in(3) {
                    let text = self.owners.to_string();
                    self.peers[at].ask(&format!("ECHO {text}"), Asked::Echo(text));
                }
            }
        }
        self.check();
    }

    fn request(&mut self, at: usize, random: &mut Random) {
        let owner = 1 + random.below(self.owners + 1);
        let key = KEYS[random.below(2) as usize];
        // The first client never asks for a lock, so it never waits, and can end the waits of others.
        let line = match random.below(if at == 0 { 12 } else { 32 }) {
            0..=2 => format!("DLOCK.CLOCK ADVANCE {}", random.pick(&TIMES)),
            3 | 4 => {
                let how = random.pick(&["", "TIMEOUT", "ERROR"]);
                format!("CLIENT UNBLOCK {} {how}", 2 + random.below(PEERS as u64 - 1))
            }
            5 if random.one_in(3) => {
                let other = 1 + random.below(PEERS as u64 - 1) as usize;
                self.peers[other].may_end = true;
                format!("CLIENT KILL ID {} SKIPME no", other + 1)
            }
            5 | 6 => random.pick(&["DLOCK.SESSION s PX 5000", "DLOCK.SESSION s CLOSE"]).to_owned(),
            7 | 8 => format!("DLOCK.RELEASE {key} {owner} BREAK"),
            9 => format!("DLOCK.RELEASE {key} {owner} ALL"),
            10 => random.pick(&["DEL a", "DEL b", "FLUSHALL", "DLOCK.INFO a", "PTTL b"]).to_owned(),
            11 => format!("DLOCK.RENEW {key} {owner} PX 5000"),
            12 => {
                let lines = ["MULTI", "DLOCK.ACQUIRE a multi PX 1000 BLOCK 0", "DLOCK.RELEASE a multi", "EXEC"];
                return lines.iter().for_each(|line| self.peers[at].ask(line, Asked::Other));
            }
            _ => return self.acquire(at, random),
        };
        self.peers[at].ask(&line, Asked::Other);
    }

    /// Lets a client ask for a lock, or for both.
    fn acquire(&mut self, at: usize, random: &mut Random) {
        self.owners += 1;
        let owner = self.owners.to_string();
        let both = random.one_in(6);
        let keys = if both { &KEYS[..] } else { &KEYS[random.below(2) as usize..][..1] };
        let words = match random.below(5) {
            _ if both => format!("DLOCK.MACQUIRE 2 a b {owner}"),
            0 => format!("DLOCK.ACQUIRE {} {owner}", keys[0]),
            1 => format!("DLOCK.SACQUIRE {} {owner} 2", keys[0]),
            2 | 3 => format!("DLOCK.RLOCK {} {owner}", keys[0]),
            _ => format!("DLOCK.WLOCK {} {owner}", keys[0]),
        };
        let lease = random.pick(&["PX 1000", "PX 5000", "PX 60000"]);
        let wait = random.pick(&["", "BLOCK 0", "BLOCK 1000", "BLOCK 1000", "BLOCK 5000", "BLOCK 5000"]);
        let session = random.pick(&["", "", "", "", "SESSION", "SESSIONID s"]);
        self.peers[at].ask(&format!("{words} {lease} {wait} {session}"), Asked::Lock(owner, keys));
    }

    /// Ends all waits, and waits for all replies.
    async fn finish(&mut self) {
        let began = Instant::now();
        self.peers.iter_mut().for_each(|peer| peer.is_deaf = false);
        while self.peers.iter().any(|peer| !peer.has_ended && !peer.asked.is_empty()) {
            for _ in 0..8 {
                yield_now().await;
            }
            if self.peers[0].asked.is_empty() {
                self.peers[0].ask("DLOCK.CLOCK ADVANCE 70000", Asked::Other);
                (2..=PEERS).for_each(|id| self.peers[0].ask(&format!("CLIENT UNBLOCK {id}"), Asked::Other));
            }
            self.check();
            if began.elapsed() > Duration::from_secs(1) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "seed {}: {}", self.seed, self.missing());
        }
    }

    /// Describes the requests without a reply.
    fn missing(&self) -> String {
        let missing = self.peers.iter().enumerate().filter(|(_, peer)| !peer.has_ended);
        missing.map(|(at, peer)| format!("client {} misses replies to {:?}\n", at + 1, peer.asked)).collect()
    }

    /// Checks the replies that have come.
    fn check(&mut self) {
        for at in 0..PEERS {
            self.peers[at].exchange();
            while let Some(length) = length(&self.peers[at].received) {
                let reply: Vec<u8> = self.peers[at].received.drain(..length).collect();
                let shown = reply.escape_ascii().to_string();
                let whose = format!("seed {}, client {}", self.seed, at + 1);
                let Some(asked) = self.peers[at].asked.pop_front() else { panic!("{whose}: too many: {shown}") };
                assert!(self.is_reply(&asked, &reply), "{whose}: {shown} to {asked:?}");
            }
            let peer = &self.peers[at];
            assert!(!peer.has_ended || peer.may_end, "seed {}: client {} was disconnected", self.seed, at + 1);
        }
    }

    /// Returns whether this may be the reply to the request. An owner that is refused must hold none of its locks.
    fn is_reply(&self, asked: &Asked, reply: &[u8]) -> bool {
        match asked {
            Asked::Echo(text) => reply == format!("${}\r\n{text}\r\n", text.len()).as_bytes(),
            Asked::Other => true,
            Asked::Lock(..) if reply[0] == b':' => true,
            Asked::Lock(owner, keys) => {
                let server = self.server.borrow();
                let (owner, now) = (Owner::new(owner.as_bytes()).expect("an owner"), server.clock.now());
                let holds = |key: &str| {
                    let name = Name { db: 0, key: key.as_bytes() };
                    server.keys.lock(name).live_holds_of(&owner, now.ms()).next().is_some()
                };
                let is_refused = matches!(reply, b"$-1\r\n" | b"_\r\n") || reply[0] == b'-';
                is_refused && !keys.iter().any(|key| holds(key))
            }
        }
    }
}

impl Peer {
    /// Adds a request to those that are sent with the next exchange.
    fn ask(&mut self, line: &str, asked: Asked) {
        self.to_send.extend_from_slice(line.as_bytes());
        self.to_send.extend_from_slice(b"\r\n");
        self.asked.push_back(asked);
    }

    /// Sends what the socket takes, and reads what it has.
    fn exchange(&mut self) {
        match self.stream.write(&self.to_send) {
            Ok(count) => drop(self.to_send.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.to_send.clear(),
        }
        let mut chunk = [0; 16 << 10];
        while !self.is_deaf {
            match self.stream.read(&mut chunk) {
                Ok(count @ 1..) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(0) | Err(_) => return self.has_ended = true,
            }
        }
    }
}

/// Returns the length of the first reply, if all of it has come.
fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let number = std::str::from_utf8(&bytes[1..line - 2]).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let parts = match bytes[0] {
        b'$' if number >= 0 => return Some(line + number as usize + 2).filter(|all| *all <= bytes.len()),
        b'*' => number,
        b'%' => 2 * number,
        _ => 0,
    };
    (0..parts).try_fold(line, |at, _: i64| Some(at + length(&bytes[at..])?))
}

const PEERS: usize = 6;
const KEYS: [&str; 2] = ["a", "b"];
/// How far the clock moves at once, in ms.
const TIMES: [u64; 6] = [1, 999, 1000, 1001, 5000, 60_000];
/// More replies of 5 kB than the server keeps for a client that reads nothing.
const MANY: usize = 100;
