//! dlock on one primary: `DLOCK.ACQUIRE … BLOCK 0 SESSION` and `DLOCK.RELEASE`, by the crate redis.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, cmd, pipe};

use super::{Held, Key, LEASE_MS};
use crate::result::{Result, failed};

pub struct Dlock {
    connection: MultiplexedConnection,
    owner: String,
    /// Whether a replica has to confirm what is written.
    confirmed: bool,
    /// The named session that holds are bound to, instead of the connection.
    session: Option<String>,
}

impl Dlock {
    pub async fn connect(addresses: &[String], confirmed: bool) -> Result<Self> {
        let Some(address) = addresses.first() else { return failed("no server") };
        let connection = connection(address).await?;
        Ok(Self { connection, owner: format!("{:016x}", rand::random::<u64>()), confirmed, session: None })
    }

    /// Opens a named session, with a heartbeat each third of its time for as long as this process lives.
    pub async fn open_session(&mut self) -> Result<()> {
        let id = format!("session-{}", self.owner);
        let beat = |only: &str| {
            let mut beat = cmd("DLOCK.SESSION");
            beat.arg(&id).arg("PX").arg(LEASE_MS).arg(only);
            beat
        };
        let (open, beat) = (beat("NX"), beat("XX"));
        let mut connection = self.connection.clone();
        let _: u64 = open.query_async(&mut connection).await?;
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(THIRD).await;
                // A failed heartbeat is repeated a third later.
                let _: redis::RedisResult<u64> = beat.query_async(&mut connection).await;
            }
        });
        self.session = Some(id);
        Ok(())
    }

    pub async fn acquire(&mut self, lock: &str) -> Result<Held> {
        let mut acquire = cmd("DLOCK.ACQUIRE");
        acquire.arg(lock).arg(&self.owner).arg("PX").arg(LEASE_MS).arg("BLOCK").arg(0);
        match &self.session {
            Some(id) => acquire.arg("SESSIONID").arg(id),
            None => acquire.arg("SESSION"),
        };
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
        // `WAIT` waits for what the server had written when the client's last command ended. A command that waits for a
        // lock ends, for this purpose, when it begins to wait: before the grant is written. The `PING` ends after it.
        let mut all = pipe();
        all.add_command(command).cmd("PING").ignore().cmd("WAIT").arg(1).arg(5000);
        match all.query_async(&mut self.connection).await? {
            (answer, 1) => Ok(answer),
            (_, confirmed) => failed(format!("{confirmed} replicas have confirmed")),
        }
    }
}

const THIRD: Duration = Duration::from_millis(LEASE_MS / 3);

/// A connection on which a command may wait forever.
pub async fn connection(address: &str) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(format!("redis://{address}"))?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}
