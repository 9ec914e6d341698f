//! etcd: a lease that is kept alive, and the `Lock` RPC, which is etcd's own `concurrency.Mutex` behind gRPC.

use std::time::{Duration, Instant};

use etcd_client::{Client, LockOptions};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Held, Key, LEASE};
use crate::result::{Result, failed};

pub struct Etcd {
    client: Client,
    lease: i64,
    keeper: JoinHandle<()>,
}

impl Etcd {
    pub async fn connect(addresses: &[String]) -> Result<Self> {
        let mut client = Client::connect(addresses, None).await?;
        let (lease, keeper) = session(&mut client).await?;
        Ok(Self { client, lease, keeper })
    }

    pub async fn acquire(&mut self, lock: &str) -> Result<Held> {
        let mut tries = 0;
        let answer = loop {
            tries += 1;
            match self.client.lock(lock, Some(LockOptions::new().with_lease(self.lease))).await {
                // The lease has ended: on a busy machine, the keeper may come too late.
                Err(error) if error.to_string().contains("lease not found") => {
                    self.keeper.abort();
                    (self.lease, self.keeper) = session(&mut self.client).await?;
                }
                // A server is gone or takes too long. A request that is repeated with the same lease keeps its place.
                Err(_) if tries < TRIES => {}
                answer => break answer?,
            }
        };
        let Some(header) = answer.header() else { return failed("an answer without a revision") };
        Ok(Held { token: u64::try_from(header.revision()).ok(), key: Key::Bytes(answer.key().to_vec()) })
    }

    pub async fn release(&mut self, key: Vec<u8>) -> Result<()> {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            match self.client.unlock(key.clone()).await {
                // A server is gone. The lease is kept alive, so nobody else would free the lock.
                Err(_) if tries < TRIES => {}
                Err(_) if began.elapsed() < PATIENCE => sleep(LEASE / 200).await,
                done => return Ok(done.map(drop)?),
            }
        }
    }

    pub async fn close(mut self) {
        // The lease would end by itself, later.
        let _ = self.client.lease_revoke(self.lease).await;
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// A lease, and what keeps it alive.
async fn session(client: &mut Client) -> Result<(i64, JoinHandle<()>)> {
    let lease = client.lease_grant(LEASE.as_secs().cast_signed(), None).await?.id();
    Ok((lease, tokio::spawn(keep_alive(client.clone(), lease))))
}

/// Keeps a lease alive three times in a TTL, as etcd's own client does. Begins again when a server is gone.
async fn keep_alive(mut client: Client, lease: i64) {
    loop {
        if let Ok((mut keeper, mut answers)) = client.lease_keep_alive(lease).await {
            while keeper.keep_alive().await.is_ok() && matches!(answers.message().await, Ok(Some(_))) {
                sleep(LEASE / 3).await;
            }
        }
        sleep(LEASE / 40).await;
    }
}

/// How often a call is made without a pause: the channel of this client still tries servers that are gone, which etcd's
/// own client leaves out.
const TRIES: usize = 5;

/// How long an unlock is tried. A server that has passed it on to a leader that died answers after 7 s.
const PATIENCE: Duration = Duration::from_secs(10);
