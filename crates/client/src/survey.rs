//! What happens on servers: for people who look after locks, and for those who follow a leader.

use std::collections::HashMap;
use std::time::Duration;

use redis::{RedisError, Value};

use crate::client::Client;
use crate::error::Error;
use crate::inspect::{Fields, LockInfo};

/// What the servers answered that could be asked, and which could not.
#[derive(Debug)]
pub struct Answers<T> {
    /// The answers, by the addresses of the servers.
    pub answers: Vec<(String, T)>,
    /// The servers that did not answer, and why.
    pub missing: Vec<(String, Error)>,
}

impl<T> Answers<T> {
    /// The answers, if no server is missing.
    ///
    /// # Errors
    ///
    /// Why the first server that is missing did not answer.
    pub fn all(self) -> Result<Vec<(String, T)>, Error> {
        match self.missing.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(self.answers),
        }
    }
}

/// An entry of the server's log of locks (`DLOCK.LOG`). Fields that do not apply to the event are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Counts from the start of the server.
    pub id: u64,
    /// When it happened, by the server's clock: since the Unix epoch.
    pub time: Duration,
    /// `wait`, `timeout`, `hold`, `lapse`, `session-end`, `delete`, `flush` or `deadlock`.
    pub event: String,
    /// The database.
    pub db: Option<u64>,
    /// The lock, cut at 128 bytes.
    pub key: Option<Vec<u8>>,
    /// The owner, cut at 128 bytes.
    pub owner: Option<Vec<u8>>,
    /// `exclusive` or `shared`.
    pub mode: Option<String>,
    /// The fencing token of the hold.
    pub token: Option<u64>,
    /// For how long the request waited.
    pub waited: Option<Duration>,
    /// For how long the lock was held.
    pub held: Option<Duration>,
    /// The id of the connection.
    pub client: Option<i64>,
    /// The address of the connection.
    pub addr: Option<String>,
    /// The name of the connection (`CLIENT SETNAME`).
    pub name: Option<Vec<u8>>,
}

impl LogEntry {
    pub(crate) fn of(value: Value) -> Result<Self, RedisError> {
        let mut fields = Fields::of(value)?;
        let mut millis = |name| fields.take::<Option<u64>>(name).map(|time| time.map(Duration::from_millis));
        let [time, waited, held] = [millis("time")?, millis("waited")?, millis("held")?];
        Ok(Self {
            id: fields.take("id")?,
            time: time.unwrap_or_default(),
            event: fields.take("event")?,
            db: fields.take("db")?,
            key: fields.take("key")?,
            owner: fields.take("owner")?,
            mode: fields.take("mode")?,
            token: fields.take("token")?,
            waited,
            held,
            client: fields.take("client")?,
            addr: fields.take("addr")?,
            name: fields.take("name")?,
        })
    }
}

/// What a server counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The fields of `INFO dlock` in their order, with their names and values.
    pub fields: Vec<(String, String)>,
    /// `dlock.max-waiters`, if this user may read it.
    pub max_waiters: Option<u64>,
}

impl Client {
    /// The addresses that the client was opened with, without logins: `host:port`, separated by commas, and the name
    /// that Sentinels know behind theirs (`host:port/name`). What to call servers that do not answer.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a quorum.
    pub fn place(&self) -> Result<String, Error> {
        Ok(self.backend().server()?.place())
    }

    /// The locks whose names match a pattern, by server and name, with up to `depth` holds and waiters of each (0: with
    /// all). In a cluster of all primaries: those that do not answer are named.
    ///
    /// Costs what [`locks`](Client::locks) costs.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] or [`Error::Refused`], if no server can be asked which others there are.
    pub async fn survey(&self, pattern: impl AsRef<[u8]>, depth: usize) -> Result<Answers<Vec<LockInfo>>, Error> {
        self.backend().server()?.survey(pattern.as_ref(), depth).await
    }

    /// The newest entries of the servers' logs, newest first. In a cluster of all primaries.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] or [`Error::Refused`], if no server can be asked which others there are.
    pub async fn log(&self, count: u64) -> Result<Answers<Vec<LogEntry>>, Error> {
        self.backend().server()?.log(count).await
    }

    /// What the servers count (`INFO dlock`). In a cluster all primaries.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] or [`Error::Refused`], if no server can be asked which others there are.
    pub async fn figures(&self) -> Result<Answers<Figures>, Error> {
        self.backend().server()?.figures().await
    }

    /// The addresses of the connections of the servers (`CLIENT LIST`), by their ids. In a cluster of all primaries.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] or [`Error::Refused`], if no server can be asked which others there are.
    pub async fn addresses(&self) -> Result<Answers<HashMap<i64, String>>, Error> {
        self.backend().server()?.addresses().await
    }
}
