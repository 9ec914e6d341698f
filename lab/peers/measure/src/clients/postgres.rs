//! PostgreSQL's advisory locks, on a connection, with prepared statements.

use std::hash::{DefaultHasher, Hash, Hasher};

use tokio_postgres::{Client, NoTls, Statement};

use super::{Held, Key};
use crate::result::{Result, failed};

pub struct Postgres {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

impl Postgres {
    pub async fn connect(addresses: &[String]) -> Result<Self> {
        let Some(address) = addresses.first() else { return failed("no server") };
        let client = connect(address).await?;
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(Self { client, lock, unlock })
    }

    pub async fn acquire(&mut self, lock: &str) -> Result<Held> {
        self.client.query_one(&self.lock, &[&id(lock)]).await?;
        Ok(Held { token: None, key: Key::Implied })
    }

    pub async fn release(&mut self, lock: &str) -> Result<()> {
        if self.client.query_one(&self.unlock, &[&id(lock)]).await?.get(0) {
            Ok(())
        } else {
            failed("pg_advisory_unlock: not held")
        }
    }

    /// Cancels a wait, because a server process that waits for a lock does not notice that its client is gone.
    pub async fn close(self) {
        let _ = self.client.cancel_token().cancel_query(NoTls).await;
    }
}

pub async fn connect(address: &str) -> Result<Client> {
    let (host, port) = address.split_once(':').unwrap_or((address, "5432"));
    let settings = format!("host={host} port={port} user=postgres dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
    // The task ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

/// Returns the number of a lock: the advisory locks of PostgreSQL have numbers instead of names. The number is the same
/// in every client, because `DefaultHasher::new` has no random keys.
fn id(lock: &str) -> i64 {
    let mut hasher = DefaultHasher::new();
    lock.hash(&mut hasher);
    hasher.finish().cast_signed()
}
