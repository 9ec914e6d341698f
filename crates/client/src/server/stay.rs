//! Keeps a hold for a while after its guard.

use std::time::{Duration, Instant};

use redis::Value;
use tokio::time::{sleep, timeout_at};

use super::Server;
use super::acquire::PAUSE;
use super::commands;
use super::fault::Fault;
use super::nodes::{Lane, REPLY};
use crate::error::Error;
use crate::holding::Hold;
use crate::join::join_all;
use crate::options::up_to_millis;

impl Server {
    /// Sets the end of the hold to `end`. Tries again until `until`. Of several locks, tries all and returns the first
    /// error.
    pub async fn stay(&self, hold: &Hold, end: Instant, until: Instant) -> Result<(), Error> {
        join_all(hold.names.iter().map(|name| self.stay_one(hold, name, end, until))).await.into_iter().collect()
    }

    async fn stay_one(&self, hold: &Hold, name: &[u8], end: Instant, until: Instant) -> Result<(), Error> {
        let staying = timeout_at(until.into(), self.stay_until(hold, name, end, until)).await;
        staying.unwrap_or_else(|_| Err(Error::Unreachable("no reply in time".into())))
    }

    async fn stay_until(&self, hold: &Hold, name: &[u8], end: Instant, until: Instant) -> Result<(), Error> {
        loop {
            let rest = up_to_millis(end.saturating_duration_since(Instant::now()));
            // A lease of zero is invalid.
            let renew = commands::renew(hold, name, rest.max(Duration::from_millis(1)));
            match self.nodes.call(name, &renew, Lane::Shared, Some(REPLY)).await.map(|(reply, _)| reply) {
                // Even for a repeat, nil means that the hold is gone: a renewal does not end it, unlike a release.
                Ok(Value::Nil) => return Err(Error::Lost),
                Ok(_) => return Ok(()),
                Err(fault) if fault.is_wrong_type() => return Err(Error::Lost),
                Err(fault @ Fault::Refused(_)) => return Err(fault.into()),
                Err(fault) if Instant::now() + PAUSE >= until => return Err(fault.into()),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}
