//! Who holds what and who waits: for people who look after locks, not for those who take them.

use std::collections::HashMap;
use std::time::Duration;

use redis::{RedisError, Value, from_redis_value};

/// A lock that is held, as its server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The lock's name.
    pub name: Vec<u8>,
    /// `exclusive`, `shared` or `both` (one owner that reads and writes).
    pub mode: String,
    /// How many owners it has.
    pub holders: u64,
    /// How many entries in total: more than holders if an owner entered again.
    pub count: u64,
    /// The highest token of its holds.
    pub token: u64,
    /// Until the last hold lapses.
    pub ttl: Duration,
    /// How many requests stand in line.
    pub waiters: u64,
    /// Its holds by token: all, or the first ones.
    pub holds: Vec<HoldInfo>,
    /// Those who wait, in order: all, or the first ones.
    pub queue: Vec<WaiterInfo>,
}

/// One hold of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldInfo {
    /// Whose it is.
    pub owner: Vec<u8>,
    /// `exclusive` or `shared`.
    pub mode: String,
    /// How many times the owner entered.
    pub count: u64,
    /// Its fencing token.
    pub token: u64,
    /// Until it lapses.
    pub ttl: Duration,
    /// Since the grant. Taken from the token, which is the time of the grant in µs unless grants came faster than that, the
    /// server's clock was set back, or a client lifted it.
    pub age: Duration,
    /// The id of the connection that it is bound to.
    pub session: Option<i64>,
}

/// One request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterInfo {
    /// Whose it is.
    pub owner: Vec<u8>,
    /// `exclusive` or `shared`.
    pub mode: String,
    /// For how long.
    pub waiting: Duration,
    /// The id of the connection that it waits on.
    pub client: i64,
}

impl LockInfo {
    /// From the reply to `DLOCK.INFO … FULL`, at this time of the server in µs.
    pub(crate) fn of(name: &[u8], reply: Value, now: u64) -> Result<Option<Self>, RedisError> {
        if reply == Value::Nil {
            return Ok(None);
        }
        let mut fields = Fields::of(reply)?;
        let holds: Vec<Value> = fields.take("holds")?;
        let queue: Vec<Value> = fields.take("queue")?;
        Ok(Some(Self {
            name: name.to_vec(),
            mode: fields.take("mode")?,
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
        Ok(Self {
            owner: fields.take("owner")?,
            mode: fields.take("mode")?,
            count: fields.take("count")?,
            token,
            ttl: fields.millis("ttl")?,
            age: Duration::from_micros(now.saturating_sub(token)),
            session: fields.take("session")?,
        })
    }
}

impl WaiterInfo {
    fn of(value: Value) -> Result<Self, RedisError> {
        let mut fields = Fields::of(value)?;
        Ok(Self {
            owner: fields.take("owner")?,
            mode: fields.take("mode")?,
            waiting: fields.millis("waiting")?,
            client: fields.take("client")?,
        })
    }
}

/// The fields of a map.
struct Fields(HashMap<String, Value>);

impl Fields {
    fn of(map: Value) -> Result<Self, RedisError> {
        Ok(Self(from_redis_value(map)?))
    }

    fn take<T: redis::FromRedisValue>(&mut self, name: &str) -> Result<T, RedisError> {
        Ok(from_redis_value(self.0.remove(name).unwrap_or(Value::Nil))?)
    }

    fn millis(&mut self, name: &str) -> Result<Duration, RedisError> {
        self.take(name).map(Duration::from_millis)
    }
}
