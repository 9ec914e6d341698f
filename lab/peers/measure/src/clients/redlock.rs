//! Redlock as its page describes it: `SET NX PX` on all servers at once, a script to release, and another try after a
//! random delay. On one server, this is the "correct implementation with a single instance" of the same page.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Script, Value, cmd};
use tokio::time::{sleep, timeout};

use super::dlock::connection;
use super::{Held, Key, LEASE, LEASE_MS, SERVER_TIMEOUT};
use crate::result::{Result, failed};

pub struct Redlock {
    servers: Vec<MultiplexedConnection>,
    release: Script,
    extend: Script,
}

impl Redlock {
    pub async fn connect(addresses: &[String]) -> Result<Self> {
        let mut servers = Vec::new();
        for address in addresses {
            servers.push(connection(address).await?);
        }
        Ok(Self { servers, release: Script::new(RELEASE), extend: Script::new(EXTEND) })
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
        match self.script_on_all(&self.release, lock, value).await {
            0 => failed("released by nobody"),
            _ => Ok(()),
        }
    }

    /// Extends the lock as the page says, three times in a lease.
    pub async fn keep(&mut self, lock: &str, value: &str) -> Result<()> {
        loop {
            sleep(LEASE / 3).await;
            if self.script_on_all(&self.extend, lock, value).await <= self.servers.len() / 2 {
                return failed("the lock is lost");
            }
        }
    }

    async fn set_all(&self, lock: &str, value: &str) -> usize {
        let mut set = cmd("SET");
        set.arg(lock).arg(value).arg("NX").arg("PX").arg(LEASE_MS);
        let set = &set;
        let asked = self.servers.iter().cloned().map(|mut server| async move {
            let answer = timeout(SERVER_TIMEOUT, set.query_async::<Value>(&mut server)).await;
            matches!(answer, Ok(Ok(Value::Okay)))
        });
        join_all(asked).await.into_iter().filter(|granted| *granted).count()
    }

    async fn script_on_all(&self, script: &Script, lock: &str, value: &str) -> usize {
        let asked = self.servers.iter().cloned().map(|mut server| async move {
            let mut script = script.key(lock);
            script.arg(value).arg(LEASE_MS);
            let answer = timeout(SERVER_TIMEOUT, script.invoke_async::<u64>(&mut server)).await;
            matches!(answer, Ok(Ok(1)))
        });
        join_all(asked).await.into_iter().filter(|done| *done).count()
    }
}

/// Clocks may differ by this.
const DRIFT: Duration = Duration::from_millis(42);

/// Between two tries. The page names no numbers; these are of Redlock-rb, the implementation by its author.
const RETRY_MS: std::ops::Range<u64> = 0..200;

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

const EXTEND: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
