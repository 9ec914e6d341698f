//! Redlock as it is usually built: `SET NX PX` on all, a script to release, and polling.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, Value, cmd};
use tokio::time::{sleep, timeout};

use dlock_testkit::random::{Random, seeded};

pub struct Redlock {
    servers: Vec<MultiplexedConnection>,
    lease: Duration,
    /// How long a server may take to answer.
    patience: Duration,
    random: Random,
}

impl Redlock {
    pub async fn open(urls: &[String], lease: Duration, patience: Duration, seed: u64) -> Self {
        let mut servers = Vec::new();
        for url in urls {
            let client = Client::open(url.as_str()).expect("a URL");
            servers.push(client.get_multiplexed_async_connection().await.expect("a server"));
        }
        Self { servers, lease, patience, random: seeded(seed.wrapping_add(77)) }
    }

    /// Tries until the lock is granted. Returns the value of the key, which identifies this grant.
    pub async fn lock(&mut self, key: &str) -> String {
        loop {
            let value = self.random.number().to_string();
            let began = Instant::now();
            let mut set = cmd("SET");
            set.arg(key).arg(&value).arg("NX").arg("PX").arg(self.lease.as_millis() as u64);
            let granted = self.ask_all(&set).await.into_iter().filter(|reply| *reply == Some(Value::Okay)).count();
            if granted > self.servers.len() / 2 && began.elapsed() < self.lease {
                return value;
            }
            self.unlock(key, &value).await;
            // From 100 to 300 ms, at random.
            sleep(Duration::from_millis(100 + self.random.below(200))).await;
        }
    }

    pub async fn unlock(&mut self, key: &str, value: &str) {
        let mut eval = cmd("EVAL");
        eval.arg(RELEASE).arg(1).arg(key).arg(value);
        self.ask_all(&eval).await;
    }

    /// Asks all servers at once. All of that happens in this task, because a task for each would cost more.
    async fn ask_all(&self, command: &redis::Cmd) -> Vec<Option<Value>> {
        let ask = |mut server: MultiplexedConnection| async move {
            timeout(self.patience, server.send_packed_command(command)).await.ok()?.ok()
        };
        let mut asked: Vec<_> = self.servers.iter().map(|server| (Box::pin(ask(server.clone())), None)).collect();
        poll_fn(|context| {
            let mut is_ready = true;
            for (future, answer) in asked.iter_mut().filter(|(_, answer)| answer.is_none()) {
                match future.as_mut().poll(context) {
                    Poll::Ready(reply) => *answer = Some(reply),
                    Poll::Pending => is_ready = false,
                }
            }
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        asked.into_iter().map(|(_, answer)| answer.flatten()).collect()
    }
}

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
