//! Reads one lock each time it changes.

use std::time::Duration;

use redis::{Cmd, cmd};
use tokio::time::timeout;

use super::Server;
use super::admin::clock;
use super::fault::Fault;
use super::link::Link;
use super::nodes::{Lane, REPLY};
use crate::inspect::{HoldInfo, LockInfo};

/// A connection on which the server reports changes of a lock.
pub(crate) struct Observation {
    link: Link,
    info: Cmd,
    name: Vec<u8>,
    /// The time to the last deadline of the lock, as it was last read.
    ttl: Duration,
}

impl Server {
    /// Begins to observe a lock. Read the holders first, then wait for changes.
    pub async fn observe(&self, name: &[u8]) -> Result<Observation, Fault> {
        let mut info = cmd("DLOCK.INFO");
        info.arg(name).arg("FULL");
        // Finds the server of the key, and a connection to it.
        let (_, link) = self.nodes.call(name, &info, Lane::Own, Some(REPLY)).await?;
        link.ask(cmd("CLIENT").arg("TRACKING").arg("ON"), Some(REPLY)).await?;
        Ok(Observation { link, info, name: name.to_vec(), ttl: Duration::ZERO })
    }
}

impl Observation {
    /// Reads the present holders.
    pub async fn holds(&mut self) -> Result<Vec<HoldInfo>, Fault> {
        self.link.forget_touches();
        let now = clock(&self.link).await?;
        let reply = self.link.ask(&self.info, Some(REPLY)).await?;
        let lock = LockInfo::of(&self.name, reply, now).map_err(|error| Fault::Refused(error.into()))?;
        self.ttl = lock.as_ref().map_or(Duration::ZERO, |lock| lock.ttl);
        Ok(lock.map(|lock| lock.holds).unwrap_or_default())
    }

    /// Waits until there may be other holders.
    pub async fn changed(&mut self) -> Result<(), Fault> {
        // The time to live is cut to whole milliseconds, so the hold may last up to one more.
        let ends = if self.ttl.is_zero() { Duration::MAX } else { self.ttl + MILLISECOND };
        match timeout(ends, self.link.touched()).await {
            Ok(true) | Err(_) => Ok(()),
            Ok(false) => Err(Fault::OutcomeUnknown("the connection has ended".into())),
        }
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
