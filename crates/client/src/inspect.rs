//! Holders and waiters, for programs that inspect locks.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use redis::{ErrorKind, RedisError, Value, from_redis_value};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// By nobody. A request that waits for several locks waits for this one, too.
    Free,
    /// By one owner alone.
    Exclusive,
    /// By readers, or by the holders of permits.
    Shared,
    /// By one owner that reads and writes.
    Both,
}

/// How an owner holds a lock, or wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldMode {
    /// Alone.
    Exclusive,
    /// As a reader, or by permits.
    Shared,
}

impl LockMode {
    /// Returns the name, as the server and the command `dlock` print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Both => "both",
        }
    }
}

impl HoldMode {
    /// Returns the name, as the server and the command `dlock` print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for HoldMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A lock that is held or waited for, as its server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock's name.
    pub name: Vec<u8>,
    /// How it is held.
    pub mode: LockMode,
    /// How many owners it has.
    pub holders: u64,
    /// How many entries in total: more than holders if an owner entered again, or has several permits.
    pub count: u64,
    /// The highest token of its holds. `None`: it is free.
    pub token: Option<u64>,
    /// The time until the last hold lapses.
    pub ttl: Duration,
    /// How many requests wait in the queue.
    pub waiters: u64,
    /// The holds by token: all, or the first ones.
    pub holds: Vec<HoldInfo>,
    /// The requests that wait, in order: all, or the first ones.
    pub queue: Vec<WaiterInfo>,
}

/// A hold of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HoldInfo {
    /// The owner of the hold.
    pub owner: Vec<u8>,
    /// How it is held.
    pub mode: HoldMode,
    /// How many times the owner entered, or how many permits it has.
    pub count: u64,
    /// The fencing token.
    pub token: u64,
    /// The time until the hold lapses.
    pub ttl: Duration,
    /// The time since the grant. Taken from the token, which is the time of the grant in µs unless grants came faster
    /// than that, the server's clock was set back, or a client raised the token.
    pub age: Duration,
    /// The id of the connection that the hold is bound to.
    pub session: Option<i64>,
    /// The id of the named session that the hold is bound to.
    pub named_session: Option<Vec<u8>>,
    /// If the hold has a cap: how long it can last at most, even if it is renewed.
    pub cap: Option<Duration>,
    /// The number of the hold's place in a semaphore, if it has one.
    pub slot: Option<u32>,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The owner of the request.
    pub owner: Vec<u8>,
    /// How it wants to hold the lock.
    pub mode: HoldMode,
    /// How long it has waited.
    pub waiting: Duration,
    /// The id of the connection that it waits on.
    pub client: i64,
    /// The address of that connection. `None` if this user may not see it (`CLIENT LIST`), or the module is too old to
    /// show it.
    pub addr: Option<String>,
    /// The name of that connection, if it has one and this user may see it.
    pub name: Option<Vec<u8>>,
    /// How many permits it asks for; 1 for a lock.
    pub permits: u64,
    /// The limit of the semaphore, if it is one.
    pub limit: Option<u64>,
    /// The number of locks that it waits for together.
    pub keys: u64,
}

impl HoldInfo {
    /// Returns when it was granted, by the server's clock: the time in the token. The same reservations apply as to
    /// [`age`](HoldInfo::age).
    pub fn since(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.token)
    }
}

impl LockInfo {
    /// Reads the reply to `DLOCK.INFO … FULL`. `now`: the server's time in µs.
    pub(crate) fn of(name: &[u8], reply: Value, now: u64) -> Result<Option<Self>, RedisError> {
        if reply == Value::Nil {
            return Ok(None);
        }
        let mut fields = Fields::of(reply)?;
        let holds: Vec<Value> = fields.take("holds")?;
        let queue: Vec<Value> = fields.take("queue")?;
        Ok(Some(Self {
            name: name.to_vec(),
            mode: fields.lock_mode()?,
            holders: fields.take("holders")?,
            count: fields.take("count")?,
            token: fields.take("token")?,
            ttl: fields.millis("ttl")?,
            waiters: fields.take("waiters")?,
            holds: holds.into_iter().map(|hold| HoldInfo::of(hold, now)).collect::<Result<_, _>>()?,
            queue: queue.into_iter().map(WaiterInfo::of).collect::<Result<_, _>>()?,
        }))
    }
}

impl HoldInfo {
    fn of(value: Value, now: u64) -> Result<Self, RedisError> {
        let mut fields = Fields::of(value)?;
        let token = fields.take("token")?;
        // A number is a connection, a string a named session.
        let (session, named_session) = match fields.take("session")? {
            Value::Int(id) => (Some(id), None),
            other => (None, from_redis_value(other)?),
        };
        Ok(Self {
            owner: fields.take("owner")?,
            mode: fields.hold_mode()?,
            count: fields.take("count")?,
            token,
            ttl: fields.millis("ttl")?,
            age: Duration::from_micros(now.saturating_sub(token)),
            session,
            named_session,
            cap: fields.take::<Option<u64>>("cap")?.map(Duration::from_millis),
            slot: fields.take("slot")?,
        })
    }
}

impl WaiterInfo {
    fn of(value: Value) -> Result<Self, RedisError> {
        let mut fields = Fields::of(value)?;
        Ok(Self {
            owner: fields.take("owner")?,
            mode: fields.hold_mode()?,
            waiting: fields.millis("waiting")?,
            client: fields.take("client")?,
            addr: fields.take("addr")?,
            name: fields.take::<Option<Vec<u8>>>("name")?.filter(|name| !name.is_empty()),
            permits: fields.take("permits")?,
            limit: fields.take("limit")?,
            keys: fields.take("keys")?,
        })
    }
}

/// The fields of a map.
pub(crate) struct Fields(HashMap<String, Value>);

impl Fields {
    pub fn of(map: Value) -> Result<Self, RedisError> {
        Ok(Self(from_redis_value(map)?))
    }

    pub fn take<T: redis::FromRedisValue>(&mut self, name: &str) -> Result<T, RedisError> {
        Ok(from_redis_value(self.0.remove(name).unwrap_or(Value::Nil))?)
    }

    fn lock_mode(&mut self) -> Result<LockMode, RedisError> {
        let name: String = self.take("mode")?;
        let modes = [LockMode::Free, LockMode::Exclusive, LockMode::Shared, LockMode::Both];
        modes.into_iter().find(|mode| mode.as_str() == name).ok_or_else(|| unknown(name))
    }

    fn hold_mode(&mut self) -> Result<HoldMode, RedisError> {
        self.hold_mode_if_any()?.ok_or_else(|| unknown(String::new()))
    }

    pub fn hold_mode_if_any(&mut self) -> Result<Option<HoldMode>, RedisError> {
        let Some(name) = self.take::<Option<String>>("mode")? else { return Ok(None) };
        let modes = [HoldMode::Exclusive, HoldMode::Shared];
        modes.into_iter().find(|mode| mode.as_str() == name).map(Some).ok_or_else(|| unknown(name))
    }

    fn millis(&mut self, name: &str) -> Result<Duration, RedisError> {
        self.take(name).map(Duration::from_millis)
    }
}

fn unknown(mode: String) -> RedisError {
    (ErrorKind::UnexpectedReturnType, "an unknown mode", mode).into()
}
