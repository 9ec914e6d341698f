//! dlock on a majority of three servers, by the crate dlock-client.

use std::time::Duration;

use super::{Held, Key, LEASE, server_timeout};
use crate::result::Result;

pub struct Quorum(dlock_client::Client);

impl Quorum {
    pub fn open(addresses: &[String], on_disk: bool, clients: usize) -> Result<Self> {
        let urls = addresses.iter().map(|address| format!("redis://{address}"));
        let quorum = dlock_client::Client::quorum(urls, LEASE).server_timeout(server_timeout(TIMEOUT, clients));
        Ok(Self(if on_disk { quorum.persistent() } else { quorum }.open()?))
    }

    pub async fn acquire(&self, lock: &str) -> Result<Held> {
        let guard = self.0.acquire(lock).lease(LEASE).await?;
        Ok(Held { token: Some(guard.token()), key: Key::Guard(Box::new(guard)) })
    }

    /// Acquires and releases a lock. Fails unless a majority of the servers grants it.
    pub async fn answers(&self) -> Result<()> {
        Ok(self.0.try_acquire("answers").lease(LEASE).await?.release().await?)
    }
}

/// The default of the crate.
const TIMEOUT: Duration = Duration::from_millis(100);
