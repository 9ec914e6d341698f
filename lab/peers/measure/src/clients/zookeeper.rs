//! ZooKeeper's lock recipe, as its client has it: an ephemeral sequential node, and a watch on the one before it.

use std::time::Instant;

use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode, Error, LockOptions, LockPrefix};

use super::{Held, Key, LEASE};
use crate::result::Result;

pub struct ZooKeeper(Client);

impl ZooKeeper {
    pub async fn connect(addresses: &[String]) -> Result<Self> {
        Ok(Self(Client::connector().with_session_timeout(LEASE).connect(&addresses.join(",")).await?))
    }

    pub async fn acquire(&mut self, lock: &str) -> Result<Held> {
        let folder = format!("/{lock}");
        let made = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(made)?;
        let held = self.0.lock(LockPrefix::new_curator(&folder, "lock-")?, b"", options).await?;
        let path = held.lock_path().to_owned();
        // Dropped, it would be deleted in the background, and nobody could wait for that.
        std::mem::forget(held);
        let digits = path.rsplit('-').next().unwrap_or_default();
        Ok(Held { token: digits.parse().ok(), key: Key::Text(path) })
    }

    pub async fn release(&mut self, path: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.0.delete(path, None).await {
                Err(Error::ConnectionLoss) if began.elapsed() < LEASE => sleep(LEASE / 200).await,
                // What was sent before the connection was lost.
                Err(Error::NoNode) if began.elapsed() > LEASE / 200 => return Ok(()),
                done => return Ok(done?),
            }
        }
    }
}
