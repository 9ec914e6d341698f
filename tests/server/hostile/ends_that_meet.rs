//! The end of a key and the end of a session or lease meet in the same millisecond, thousands of times on one server.
//!
//! On Redis 7.0 the clock runs on while a timer works: a key can expire between two calls of the module.

use std::time::{Duration, SystemTime};

use crate::support::lock::Info;
use crate::support::random::{Random, seeded};
use crate::support::replica::counter;
use crate::support::{Client, Server, soon};

/// Locks of a round, each with a waiter.
const LOCKS: usize = 100;

/// The machine's clock, which is the server's.
fn machine() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

fn each(request: impl Fn(usize) -> String) -> Vec<String> {
    (0..LOCKS).map(request).collect()
}

struct Stage {
    server: Server,
    client: Client,
    waiters: Vec<Client>,
    /// The ms over which the keys of a round end: about as many as the server needs for what ends with them.
    spread: u64,
    random: Random,
}

impl Stage {
    fn new(spread: u64) -> Self {
        let server = Server::start();
        let (client, waiters) = (server.client(), (0..LOCKS).map(|_| server.client()).collect());
        Self { server, client, waiters, spread, random: seeded(spread) }
    }

    /// Has a client wait for each lock.
    #[track_caller]
    fn wait(&mut self) {
        for (n, waiter) in self.waiters.iter_mut().enumerate() {
            waiter.send(format!("DLOCK.WLOCK k{n} w PX 600000 BLOCK 0"));
        }
        self.server.left_waiting(LOCKS as i64);
    }

    /// Requests that have the keys end around this time (unix ms).
    fn ends(&mut self, at: u64) -> Vec<String> {
        let (random, spread) = (&mut self.random, self.spread);
        (0..LOCKS).map(|n| format!("PEXPIREAT k{n} {}", at + random.below(spread))).collect()
    }

    /// Everybody who waited has the lock, once and alone, and nothing is left after them.
    #[track_caller]
    fn all_change_hands(&mut self) {
        let tokens: Vec<_> = self.waiters.iter_mut().map(|waiter| waiter.granted()).collect();
        let shown = self.client.pipeline(&each(|n| format!("DLOCK.INFO k{n} FULL")));
        for (token, shown) in tokens.into_iter().zip(shown) {
            let info = Info::of(&shown.expect("no error"));
            let hold = &info.holds()[0];
            assert_eq!((info.holders, info.count, info.token, info.waiters), (1, 1, token, 0));
            assert_eq!((hold.owner.as_slice(), hold.mode.as_str()), (b"w".as_slice(), "exclusive"));
        }
        let releases = self.client.pipeline(&each(|n| format!("DLOCK.RELEASE k{n} w")));
        assert!(releases.iter().all(|reply| *reply == Ok(redis::Value::Int(1))), "{releases:?}");
        assert_eq!((self.client.int("DBSIZE"), counter(&mut self.client, "waiters")), (0, 0));
    }
}

/// Waits until a moment, to the microsecond.
fn spin_until(moment: Duration) {
    while machine() < moment {
        std::hint::spin_loop();
    }
}

/// A session that holds each lock `holds` times over ends when the keys do. It is closed, or killed in the pipeline
/// that sets the ends.
#[track_caller]
fn a_session_ends_with_its_keys(holds: usize, rounds: usize) {
    let mut stage = Stage::new(2 + holds as u64 / 5);
    for round in 0..rounds {
        let mut session = stage.server.client();
        let id = session.id();
        let owners = (0..holds).flat_map(|owner| each(|n| format!("DLOCK.RLOCK k{n} o{owner} PX 600000 SESSION")));
        session.pour(owners);
        stage.wait();
        if round % 4 == 0 {
            let now = machine().as_millis() as u64;
            let ends = stage.ends(now + 8);
            stage.client.pipeline(&ends);
            spin_until(Duration::from_micros((now + 7) * 1000 + stage.random.below(2000)));
            drop(session);
        } else {
            // The fewer ms the server needs for the end of the session, the earlier the keys end.
            let after = 1 + round as u64 % (stage.spread / 4).max(1);
            let mut requests = stage.ends(machine().as_millis() as u64 + after);
            requests.push(format!("CLIENT KILL ID {id}"));
            stage.client.pipeline(&requests);
        }
        stage.all_change_hands();
    }
    soon("no session is left", || counter(&mut stage.client, "sessions") == 0);
}

#[test]
fn a_session_with_one_hold_per_lock_may_end_when_the_keys_do() {
    a_session_ends_with_its_keys(1, 400);
}

#[test]
fn a_session_with_64_holds_per_lock_may_end_when_the_keys_do() {
    a_session_ends_with_its_keys(64, 80);
}

#[test]
fn a_lease_that_is_waited_for_may_end_when_the_key_does() {
    let mut stage = Stage::new(3);
    for _ in 0..30 {
        stage.client.pipeline(&each(|n| format!("DLOCK.ACQUIRE k{n} a PX 600000")));
        stage.wait();
        let end = machine().as_millis() as u64 + 25;
        let renewals = each(|n| format!("DLOCK.RENEW k{n} a PXAT {}", end + n as u64 % 2));
        let requests = [renewals, stage.ends(end)].concat();
        stage.client.pipeline(&requests);
        stage.all_change_hands();
    }
}

#[test]
fn a_lease_may_be_extended_when_the_key_ends() {
    let mut stage = Stage::new(4);
    for _ in 0..15 {
        let mut session = stage.server.client();
        session.pipeline(&each(|n| format!("DLOCK.ACQUIRE k{n} a PX 900 SESSION")));
        // The server extends a lease when a third of it is over.
        let extended = machine().as_millis() as u64 + 300;
        stage.wait();
        let middle = stage.spread / 2;
        let ends = stage.ends(extended - middle);
        stage.client.pipeline(&ends);
        stage.all_change_hands();
    }
}
