//! Redlock as its page describes it, "Distributed Locks with Redis" of Redis' documentation: `SET NX PX` on all servers
//! at once, a script to release, and another try after a random delay. On one server, this is the "correct
//! implementation with a single instance" of the same page.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Script, Value, cmd};
use tokio::time::{sleep, timeout};

use super::dlock::connection;
use super::{Held, Key, LEASE, LEASE_MS, server_timeout};
use crate::result::{Result, failed};

pub struct Redlock {
    servers: Vec<MultiplexedConnection>,
    release: Script,
    extend: Script,
    timeout: Duration,
}

impl Redlock {
    pub async fn connect(addresses: &[String], clients: usize) -> Result<Self> {
        let mut servers = Vec::new();
        for address in addresses {
            servers.push(connection(address).await?);
        }
        let timeout = server_timeout(TIMEOUT, clients);
        Ok(Self { servers, release: Script::new(RELEASE), extend: Script::new(EXTEND), timeout })
    }

    pub async fn acquire(&mut self, lock: &str) -> Result<Held> {
        loop {
            let value = format!("{:032x}", rand::random::<u128>());
            let began = Instant::now();
            if self.set_all(lock, &value).await > self.servers.len() / 2 && began.elapsed() + DRIFT < LEASE {
                return Ok(Held { token: None, key: Key::Text(value) });
            }
            if self.servers.len() > 1 {
                self.script_on_all(&self.release, lock, &value).await;
            }
            sleep(Duration::from_millis(rand::random_range(RETRY_MS))).await;
        }
    }

    pub async fn release(&mut self, lock: &str, value: &str) -> Result<()> {
        // All servers are asked: one that did not answer in time may still have set the key.
        self.script_on_all(&self.release, lock, value).await;
        Ok(())
    }

    /// Extends the lock as the page says, three times in a lease. It is lost after a lease without a majority.
    pub async fn keep(&mut self, lock: &str, value: &str) -> Result<()> {
        let mut extended = Instant::now();
        loop {
            sleep(LEASE / 3).await;
            let began = Instant::now();
            if self.script_on_all(&self.extend, lock, value).await > self.servers.len() / 2 {
                extended = began;
            } else if extended.elapsed() + DRIFT > LEASE {
                return failed("the lock is lost");
            }
        }
    }

    async fn set_all(&self, lock: &str, value: &str) -> usize {
        let mut set = cmd("SET");
        set.arg(lock).arg(value).arg("NX").arg("PX").arg(LEASE_MS);
        let set = &set;
        let asked = self.servers.iter().cloned().map(|mut server| async move {
            let answer = timeout(self.timeout, set.query_async::<Value>(&mut server)).await;
            matches!(answer, Ok(Ok(Value::Okay)))
        });
        join_all(asked).await.into_iter().filter(|granted| *granted).count()
    }

    async fn script_on_all(&self, script: &Script, lock: &str, value: &str) -> usize {
        let asked = self.servers.iter().cloned().map(|mut server| async move {
            let mut script = script.key(lock);
            script.arg(value).arg(LEASE_MS);
            let answer = timeout(self.timeout, script.invoke_async::<u64>(&mut server)).await;
            matches!(answer, Ok(Ok(1)))
        });
        join_all(asked).await.into_iter().filter(|done| *done).count()
    }
}

/// How long a server may take to answer. The page: "the timeout could be in the ~ 5-50 milliseconds range".
const TIMEOUT: Duration = Duration::from_millis(50);

/// How far clocks may drift apart during a lease: a hundredth of it (`LEASE`, 4 s) and 2 ms, as in Redlock-rb.
const DRIFT: Duration = Duration::from_millis(42);

/// The random delay between two tries, in ms. The page names no numbers; these are of Redlock-rb, the implementation by
/// the author of the page.
const RETRY_MS: std::ops::Range<u64> = 0..200;

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

const EXTEND: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
