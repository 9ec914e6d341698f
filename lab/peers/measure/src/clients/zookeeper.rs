//! ZooKeeper's lock recipe, as its client has it: an ephemeral sequential node, and a watch on the one before it.

use std::time::Instant;

use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode, Error, LockOptions, LockPrefix};

use super::{Held, Key, LEASE};
use crate::result::Result;

pub struct ZooKeeper {
    client: Client,
    addresses: String,
}

impl ZooKeeper {
    pub async fn connect(addresses: &[String]) -> Result<Self> {
        let addresses = addresses.join(",");
        Ok(Self { client: session(&addresses).await?, addresses })
    }

    pub async fn acquire(&mut self, lock: &str) -> Result<Held> {
        let folder = format!("/{lock}");
        let made = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(made)?;
        let mut tries = 0;
        let path = loop {
            tries += 1;
            match self.client.lock(LockPrefix::new_curator(&folder, "lock-")?, b"", options.clone()).await {
                Ok(held) => {
                    let path = held.lock_path().to_owned();
                    // Dropped, it would be deleted in the background, and nobody could wait for that.
                    std::mem::forget(held);
                    break path;
                }
                // On a busy machine, a ping may come too late. As with Curator, it is for the application to try again.
                Err(error) if tries == TRIES => return Err(error.into()),
                Err(_) => {}
            }
            self.client = session(&self.addresses).await?;
        };
        let digits = path.rsplit('-').next().unwrap_or_default();
        Ok(Held { token: digits.parse().ok(), key: Key::Text(path) })
    }

    pub async fn release(&mut self, path: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.client.delete(path, None).await {
                Err(Error::ConnectionLoss) if began.elapsed() < LEASE => sleep(LEASE / 200).await,
                // An earlier request has deleted it, whose answer was lost with the connection.
                Err(Error::NoNode) if began.elapsed() > LEASE / 200 => return Ok(()),
                done => return Ok(done?),
            }
        }
    }
}

async fn session(addresses: &str) -> Result<Client> {
    let mut tries = 0;
    loop {
        tries += 1;
        match Client::connector().with_session_timeout(LEASE).connect(addresses).await {
            Err(_) if tries < TRIES => sleep(LEASE / 40).await,
            client => return Ok(client?),
        }
    }
}

/// How often a session is opened.
const TRIES: usize = 5;
