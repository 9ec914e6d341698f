//! Inspection of locks, and the release of other owners' holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{RedisError, Value, cmd, from_redis_value};
use tokio::task::JoinSet;

use super::Server;
use super::fault::Fault;
use super::link::Link;
use super::nodes::{LONG, Lane, REPLY};
use crate::error::{Cause, Error};
use crate::inspect::LockInfo;

impl Server {
    /// Reads the lock with all holds and waiters that the server shows: at most 1,000 of each.
    pub async fn info(&self, name: &[u8]) -> Result<Option<LockInfo>, Error> {
        let mut info = cmd("DLOCK.INFO");
        info.arg(name).arg("FULL").arg("COUNT").arg(0);
        let (reply, link) = self.nodes.call(name, &info, Lane::Shared, Some(LONG)).await?;
        let now = clock(&link).await?;
        LockInfo::of(name, reply, now).map_err(unexpected)
    }

    /// Reads the locks whose names match, sorted by name, each with its first hold and its first waiter.
    pub async fn locks(self: &Arc<Self>, pattern: &[u8]) -> Result<Vec<LockInfo>, Error> {
        let found = self.survey(pattern, 1).await?.all()?;
        // A lock that moved to another server meanwhile may be in the answers of both.
        let by_name = found.into_iter().flat_map(|(_, locks)| locks).map(|lock| (lock.name.clone(), lock));
        Ok(by_name.collect::<BTreeMap<_, _>>().into_values().collect())
    }

    /// Releases the hold of an owner that has this token, or all holds of the owner. Returns false if there was none.
    pub async fn evict(&self, name: &[u8], owner: &[u8], token: Option<u64>) -> Result<bool, Error> {
        let mut release = cmd("DLOCK.RELEASE");
        release.arg(name).arg(owner).arg("ALL");
        if let Some(token) = token {
            release.arg("TOKEN").arg(token);
        }
        let (reply, _) = self.nodes.call(name, &release, Lane::Shared, Some(REPLY)).await?;
        Ok(reply != Value::Nil)
    }
}

/// Reads these locks, all at once, each with at most `depth` holds and `depth` waiters. `now` is the server's clock in
/// µs. Leaves out locks that were freed or have moved meanwhile, or that the server cannot show now.
pub(super) async fn look_at(link: &Link, names: Vec<Vec<u8>>, now: u64, depth: usize) -> Result<Vec<LockInfo>, Error> {
    let mut asked = JoinSet::new();
    for name in names {
        let link = link.clone();
        asked.spawn(async move {
            let mut info = cmd("DLOCK.INFO");
            info.arg(&name).arg("FULL").arg("COUNT").arg(depth);
            (link.ask(&info, Some(LONG)).await, name)
        });
    }
    let mut found = Vec::new();
    while let Some(Ok((reply, name))) = asked.join_next().await {
        match reply {
            Ok(reply) => found.extend(LockInfo::of(&name, reply, now).map_err(unexpected)?),
            Err(Fault::Moved(..) | Fault::Ask(_) | Fault::Later(_)) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(found)
}

/// Reads the server's clock in µs.
pub(super) async fn clock(link: &Link) -> Result<u64, Fault> {
    let time = link.ask(&cmd("TIME"), Some(REPLY)).await?;
    let (seconds, micros): (u64, u64) =
        from_redis_value(time).map_err(|e| Fault::Refused(RedisError::from(e).into()))?;
    Ok(seconds * 1_000_000 + micros)
}

pub(super) fn unexpected(error: RedisError) -> Error {
    Error::Refused(Cause::from(error))
}
