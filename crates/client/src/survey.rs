//! Locks, logs and statistics of all servers, for programs that inspect them.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use redis::{RedisError, Value};

use crate::client::Client;
use crate::error::Error;
use crate::inspect::{Fields, HoldMode, LockInfo};

/// The answers of several servers to one question, and the servers that did not answer.
#[derive(Debug)]
#[non_exhaustive]
pub struct PerServer<T> {
    /// The addresses of the servers and their answers, in the order of the addresses.
    pub answers: Vec<(String, T)>,
    /// The servers that did not answer, and why.
    pub missing: Vec<(String, Error)>,
}

impl<T> PerServer<T> {
    /// Returns the answers if no server is missing.
    ///
    /// # Errors
    ///
    /// The reason why the first missing server did not answer.
    pub fn all(self) -> Result<Vec<(String, T)>, Error> {
        match self.missing.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(self.answers),
        }
    }
}

/// An event in the server's log of locks (`DLOCK.LOG`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogEvent {
    /// A request was granted after a long wait.
    Wait,
    /// A request got nil after a long wait.
    Timeout,
    /// A hold was released in full after a long time.
    Hold,
    /// A lease ran out.
    Lapse,
    /// A hold ended at its cap (`MAXHOLD`, `dlock.max-hold`).
    Cap,
    /// The session of a hold ended.
    SessionEnd,
    /// A client released a hold, or an entry of it, with `BREAK`.
    Break,
    /// A key was removed while the lock was held.
    Delete,
    /// A flush removed locks.
    Flush,
    /// A request was refused because it would have waited for itself.
    Deadlock,
    /// An event of a newer server, which this version of the crate does not know.
    Other(String),
}

impl LogEvent {
    const KNOWN: [Self; 10] = [
        Self::Wait,
        Self::Timeout,
        Self::Hold,
        Self::Lapse,
        Self::Cap,
        Self::SessionEnd,
        Self::Break,
        Self::Delete,
        Self::Flush,
        Self::Deadlock,
    ];

    /// Returns the name, as the server and the command `dlock` print it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Wait => "wait",
            Self::Timeout => "timeout",
            Self::Hold => "hold",
            Self::Lapse => "lapse",
            Self::Cap => "cap",
            Self::SessionEnd => "session-end",
            Self::Break => "break",
            Self::Delete => "delete",
            Self::Flush => "flush",
            Self::Deadlock => "deadlock",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for LogEvent {
    fn from(name: &str) -> Self {
        Self::KNOWN.into_iter().find(|event| event.as_str() == name).unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

impl fmt::Display for LogEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An entry of the server's log of locks (`DLOCK.LOG`). Fields that do not apply to the event are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEntry {
    /// Counts from the start of the server.
    pub id: u64,
    /// When it was logged, by the server's clock: since the Unix epoch. A lapse is logged when the server notices it.
    pub time: Duration,
    /// The kind of event.
    pub event: LogEvent,
    /// The database. `None`: all (`FLUSHALL`).
    pub db: Option<u64>,
    /// The name of the lock, or of the first of several. Cut at 128 bytes.
    pub key: Option<Vec<u8>>,
    /// The owner. Cut at 128 bytes.
    pub owner: Option<Vec<u8>>,
    /// How the lock was held or wanted.
    pub mode: Option<HoldMode>,
    /// The fencing token of the hold.
    pub token: Option<u64>,
    /// For how long the request waited.
    pub waited: Option<Duration>,
    /// For how long the lock was held. A lapsed hold counts until its deadline.
    pub held: Option<Duration>,
    /// The id of the connection that waited, asked or released, or that was the session of the hold.
    pub client: Option<i64>,
    /// The address of the connection.
    pub addr: Option<String>,
    /// The name of the connection (`CLIENT SETNAME`). Cut at 128 bytes.
    pub name: Option<Vec<u8>>,
    /// The named session that the hold was bound to.
    pub session: Option<Vec<u8>>,
}

impl LogEntry {
    /// Makes an entry without details, for tests of programs that read logs.
    pub fn new(id: u64, time: Duration, event: LogEvent) -> Self {
        Self {
            id,
            time,
            event,
            db: None,
            key: None,
            owner: None,
            mode: None,
            token: None,
            waited: None,
            held: None,
            client: None,
            addr: None,
            name: None,
            session: None,
        }
    }

    pub(crate) fn of(value: Value) -> Result<Self, RedisError> {
        let mut fields = Fields::of(value)?;
        let mut millis = |name| fields.take::<Option<u64>>(name).map(|time| time.map(Duration::from_millis));
        let [time, waited, held] = [millis("time")?, millis("waited")?, millis("held")?];
        Ok(Self {
            id: fields.take("id")?,
            time: time.unwrap_or_default(),
            event: fields.take::<String>("event")?.as_str().into(),
            db: fields.take("db")?,
            key: fields.take("key")?,
            owner: fields.take("owner")?,
            mode: fields.hold_mode_if_any()?,
            token: fields.take("token")?,
            waited,
            held,
            client: fields.take("client")?,
            addr: fields.take("addr")?,
            name: fields.take("name")?,
            session: fields.take("session")?,
        })
    }
}

/// The statistics of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// The fields of `INFO dlock` in their order, with their names and values.
    pub fields: Vec<(String, String)>,
    /// `dlock.max-waiters`, if this user may read it.
    pub max_waiters: Option<u64>,
}

impl Client {
    /// Returns the addresses that the client was opened with, without logins: `host:port`, separated by commas,
    /// followed by the name that Sentinels know (`host:port/name`). For messages about servers that do not answer.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a quorum.
    pub fn place(&self) -> Result<String, Error> {
        Ok(self.backend().server()?.place())
    }

    /// Reads the locks whose names match a pattern, by server and name, with up to `depth` holds and waiters of each
    /// (0: with all). In a cluster, asks all primaries, and names those that do not answer.
    ///
    /// Costs what [`locks`](Client::locks) costs.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] or [`Error::Refused`], if no server can be asked which others there are.
    /// [`Error::Invalid`] for a quorum.
    pub async fn survey(&self, pattern: impl AsRef<[u8]>, depth: usize) -> Result<PerServer<Vec<LockInfo>>, Error> {
        self.backend().server()?.survey(pattern.as_ref(), depth).await
    }

    /// Reads up to `count` entries of each server's log, the newest first. In a cluster, asks all primaries.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] or [`Error::Refused`], if no server can be asked which others there are.
    /// [`Error::Invalid`] for a quorum.
    pub async fn log(&self, count: u64) -> Result<PerServer<Vec<LogEntry>>, Error> {
        self.backend().server()?.log(count).await
    }

    /// Reads the statistics of the servers (`INFO dlock`). In a cluster, asks all primaries.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] or [`Error::Refused`], if no server can be asked which others there are.
    /// [`Error::Invalid`] for a quorum.
    pub async fn server_stats(&self) -> Result<PerServer<ServerStats>, Error> {
        self.backend().server()?.server_stats().await
    }

    /// Reads the addresses of the servers' connections (`CLIENT LIST`), by their ids. In a cluster, asks all primaries.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] or [`Error::Refused`], if no server can be asked which others there are.
    /// [`Error::Invalid`] for a quorum.
    pub async fn addresses(&self) -> Result<PerServer<HashMap<i64, String>>, Error> {
        self.backend().server()?.addresses().await
    }
}
