//! Clients of all systems, each with the recipe that its documentation recommends.

pub mod dlock;
pub mod etcd;
pub mod postgres;
pub mod quorum;
pub mod redlock;
pub mod zookeeper;

use std::time::Duration;

use crate::result::{Result, failed};

/// A client with a connection and a session of its own, as a process of its own would have them.
pub enum Client {
    Dlock(dlock::Dlock),
    Quorum(quorum::Quorum),
    Redlock(redlock::Redlock),
    Etcd(Box<etcd::Etcd>),
    ZooKeeper(zookeeper::ZooKeeper),
    Postgres(Box<postgres::Postgres>),
}

/// A lock that is held.
pub struct Held {
    /// The number by which a resource refuses a former owner, where the system has one.
    pub token: Option<u64>,
    key: Key,
}

/// The system's name for this hold.
enum Key {
    Implied,
    Text(String),
    Bytes(Vec<u8>),
    Guard(Box<dlock_client::Guard>),
}

impl Client {
    /// Waits for the lock.
    pub async fn acquire(&mut self, lock: &str) -> Result<Held> {
        match self {
            Self::Dlock(client) => client.acquire(lock).await,
            Self::Quorum(client) => client.acquire(lock).await,
            Self::Redlock(client) => client.acquire(lock).await,
            Self::Etcd(client) => client.acquire(lock).await,
            Self::ZooKeeper(client) => client.acquire(lock).await,
            Self::Postgres(client) => client.acquire(lock).await,
        }
    }

    pub async fn release(&mut self, lock: &str, held: Held) -> Result<()> {
        match (self, held.key) {
            (Self::Dlock(client), Key::Implied) => client.release(lock, held.token).await,
            (Self::Quorum(_), Key::Guard(guard)) => Ok(guard.release().await?),
            (Self::Redlock(client), Key::Text(value)) => client.release(lock, &value).await,
            (Self::Etcd(client), Key::Bytes(key)) => client.release(key).await,
            (Self::ZooKeeper(client), Key::Text(path)) => client.release(&path).await,
            (Self::Postgres(client), Key::Implied) => client.release(lock).await,
            _ => failed("held by another system"),
        }
    }

    /// Keeps a hold for as long as this process lives, where the system does not do so by itself.
    pub async fn keep(&mut self, lock: &str, held: &Held) -> Result<()> {
        match (self, &held.key) {
            (Self::Redlock(client), Key::Text(value)) => client.keep(lock, value).await,
            _ => std::future::pending().await,
        }
    }

    /// Ends its session, where dropping it does not.
    pub async fn close(self) {
        match self {
            Self::Etcd(client) => client.close().await,
            Self::Postgres(client) => client.close().await,
            Self::Dlock(_) | Self::Quorum(_) | Self::Redlock(_) | Self::ZooKeeper(_) => {}
        }
    }
}

/// The lease, session timeout or TTL of every system: the shortest that ZooKeeper grants with its usual `tickTime`.
pub const LEASE: Duration = Duration::from_secs(4);

/// The same in milliseconds.
const LEASE_MS: u64 = 4000;

/// Returns how long each of several independent servers has to answer, if it usually has `usual` and this number of
/// clients run. All clients share a core here; dozens of them wait for each other longer than for any server.
fn server_timeout(usual: Duration, clients: usize) -> Duration {
    if clients > 50 { Duration::from_secs(1) } else { usual }
}
