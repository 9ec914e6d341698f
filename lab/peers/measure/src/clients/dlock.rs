//! dlock on one primary: `DLOCK.ACQUIRE … BLOCK 0 SESSION` and `DLOCK.RELEASE`, by the crate redis.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, cmd, pipe};

use super::{Held, Key, LEASE_MS};
use crate::result::{Result, failed};

pub struct Dlock {
    connection: MultiplexedConnection,
    owner: String,
    /// Whether a replica has to confirm what is written.
    confirmed: bool,
}

impl Dlock {
    pub async fn connect(addresses: &[String], confirmed: bool) -> Result<Self> {
        let Some(address) = addresses.first() else { return failed("no server") };
        let connection = connection(address).await?;
        Ok(Self { connection, owner: format!("{:016x}", rand::random::<u64>()), confirmed })
    }

    pub async fn acquire(&mut self, lock: &str) -> Result<Held> {
        let mut acquire = cmd("DLOCK.ACQUIRE");
        acquire.arg(lock).arg(&self.owner).arg("PX").arg(LEASE_MS).arg("BLOCK").arg(0).arg("SESSION");
        let token = self.send(acquire).await?;
        Ok(Held { token: Some(token), key: Key::Implied })
    }

    pub async fn release(&mut self, lock: &str, token: Option<u64>) -> Result<()> {
        let mut release = cmd("DLOCK.RELEASE");
        release.arg(lock).arg(&self.owner).arg("TOKEN").arg(token);
        match self.send(release).await? {
            1 => Ok(()),
            other => failed(format!("DLOCK.RELEASE: {other}")),
        }
    }

    async fn send(&mut self, command: Cmd) -> Result<u64> {
        if !self.confirmed {
            return Ok(command.query_async(&mut self.connection).await?);
        }
        // `WAIT` waits for what had been written when the last command of the client ended. Of a command that waited,
        // that is before the grant; hence a `PING` behind it.
        let mut all = pipe();
        all.add_command(command).cmd("PING").ignore().cmd("WAIT").arg(1).arg(5000);
        match all.query_async(&mut self.connection).await? {
            (answer, 1) => Ok(answer),
            (_, confirmed) => failed(format!("{confirmed} replicas have confirmed")),
        }
    }
}

/// A connection on which a command may wait for ever.
pub async fn connection(address: &str) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(format!("redis://{address}"))?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}
