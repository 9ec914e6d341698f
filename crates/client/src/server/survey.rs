//! Asks every primary, even if some of them do not answer.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::{Value, cmd, from_redis_value};
use tokio::task::JoinSet;

use super::Server;
use super::admin::{clock, look_at, unexpected};
use super::fault::Fault;
use super::link::Link;
use super::nodes::{LONG, Lane, REPLY};
use crate::error::Error;
use crate::inspect::LockInfo;
use crate::survey::{LogEntry, PerServer, ServerStats};

impl Server {
    /// Returns the addresses as they were given, without logins.
    pub fn place(&self) -> String {
        self.nodes.place().to_string()
    }

    pub async fn survey(self: &Arc<Self>, pattern: &[u8], depth: usize) -> Result<PerServer<Vec<LockInfo>>, Error> {
        let pattern = pattern.to_vec();
        self.ask_each(move |link| scan(link, pattern.clone(), depth)).await
    }

    pub async fn log(self: &Arc<Self>, count: u64) -> Result<PerServer<Vec<LogEntry>>, Error> {
        self.ask_each(move |link| async move {
            let entries = link.ask(cmd("DLOCK.LOG").arg("GET").arg(count), Some(LONG)).await?;
            let entries: Vec<Value> = from_redis_value(entries).map_err(|e| unexpected(e.into()))?;
            entries.into_iter().map(LogEntry::of).collect::<Result<_, _>>().map_err(unexpected)
        })
        .await
    }

    pub async fn server_stats(self: &Arc<Self>) -> Result<PerServer<ServerStats>, Error> {
        self.ask_each(|link| async move {
            let info = link.ask(cmd("INFO").arg("dlock"), Some(REPLY)).await?;
            let info: String = from_redis_value(info).map_err(|e| unexpected(e.into()))?;
            let fields = info.lines().filter_map(|line| line.split_once(':'));
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let max_waiters = match link.ask(cmd("CONFIG").arg("GET").arg("dlock.max-waiters"), Some(REPLY)).await {
                // The user may not read settings.
                Err(Fault::Refused(_)) => None,
                Err(fault) => return Err(fault.into()),
                Ok(setting) => from_redis_value::<Vec<(String, u64)>>(setting)
                    .ok()
                    .and_then(|settings| settings.first().map(|(_, value)| *value)),
            };
            Ok(ServerStats { fields, max_waiters })
        })
        .await
    }

    pub async fn addresses(self: &Arc<Self>) -> Result<PerServer<HashMap<i64, String>>, Error> {
        self.ask_each(|link| async move {
            let list = link.ask(cmd("CLIENT").arg("LIST"), Some(LONG)).await?;
            let list: String = from_redis_value(list).map_err(|e| unexpected(e.into()))?;
            let field = |line: &str, name: &str| {
                let value = line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
                value.map(str::to_owned)
            };
            Ok(list.lines().filter_map(|line| Some((field(line, "id")?.parse().ok()?, field(line, "addr")?))).collect())
        })
        .await
    }

    /// Asks all primaries at the same time.
    async fn ask_each<T, F, A>(self: &Arc<Self>, question: F) -> Result<PerServer<T>, Error>
    where
        T: Send + 'static,
        F: Fn(Link) -> A + Clone + Send + 'static,
        A: Future<Output = Result<T, Error>> + Send,
    {
        let mut asked = JoinSet::new();
        for node in self.nodes.primaries().await? {
            let (server, question) = (Arc::clone(self), question.clone());
            asked.spawn(async move {
                let address = node.addr().to_string();
                match server.nodes.link_to(&node, Lane::Shared).await {
                    Ok(link) => (address, question(link).await),
                    Err(fault) => (address, Err(fault.into())),
                }
            });
        }
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok((address, Ok(answer))) => answers.push((address, answer)),
                Ok((address, Err(error))) => missing.push((address, error)),
                Err(failed) => return Err(Error::Unreachable(failed.to_string().into())),
            }
        }
        answers.sort_by(|(one, _), (other, _)| one.cmp(other));
        missing.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(PerServer { answers, missing })
    }
}

/// Reads the locks of one server, ordered by name, each with at most `depth` holds and `depth` waiters.
async fn scan(link: Link, pattern: Vec<u8>, depth: usize) -> Result<Vec<LockInfo>, Error> {
    let mut pages = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("TYPE").arg("distrlock").arg("COUNT").arg(PAGE);
        let page = link.ask(&scan, Some(LONG)).await?;
        let (next, names): (String, Vec<Vec<u8>>) = from_redis_value(page).map_err(|e| unexpected(e.into()))?;
        if !names.is_empty() {
            let now = clock(&link).await?;
            pages.push((now, look_at(&link, names, now, depth).await?));
        }
        if next == "0" {
            break;
        }
        cursor = next;
    }
    // All times are given as of the same moment, so that locks can be compared.
    let end = clock(&link).await?;
    let as_of_end = |(seen, locks)| later(locks, Duration::from_micros(end.saturating_sub(seen)));
    let mut locks: Vec<_> = pages.into_iter().flat_map(as_of_end).collect();
    // SCAN may return a key twice.
    locks.sort_by(|one, other| one.name.cmp(&other.name));
    locks.dedup_by(|one, other| one.name == other.name);
    Ok(locks)
}

/// Returns the same locks after that time, if nothing else has happened.
fn later(locks: Vec<LockInfo>, time: Duration) -> impl Iterator<Item = LockInfo> {
    locks.into_iter().map(move |mut lock| {
        lock.ttl = lock.ttl.saturating_sub(time);
        for hold in &mut lock.holds {
            (hold.ttl, hold.age) = (hold.ttl.saturating_sub(time), hold.age + time);
            hold.cap = hold.cap.map(|cap| cap.saturating_sub(time));
        }
        lock.queue.iter_mut().for_each(|waiter| waiter.waiting += time);
        lock
    })
}

/// How many keys a step of a scan looks at: about half a millisecond of the server's time.
const PAGE: u32 = 250;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{HoldInfo, HoldMode, LockMode, WaiterInfo};

    #[test]
    fn all_times_of_a_lock_are_those_of_the_end_of_the_scan() {
        let ms = Duration::from_millis;
        let hold = HoldInfo {
            owner: b"a".to_vec(),
            mode: HoldMode::Exclusive,
            count: 1,
            token: 7,
            ttl: ms(900),
            age: ms(100),
            session: None,
            named_session: None,
            cap: Some(ms(2000)),
            slot: None,
        };
        let waiter = WaiterInfo {
            owner: b"b".to_vec(),
            mode: HoldMode::Exclusive,
            waiting: ms(50),
            client: 1,
            addr: None,
            name: None,
            permits: 1,
            limit: None,
            keys: 1,
        };
        let lock = LockInfo {
            name: b"k".to_vec(),
            mode: LockMode::Exclusive,
            holders: 1,
            count: 1,
            token: Some(7),
            ttl: ms(900),
            waiters: 1,
            holds: vec![hold.clone(), HoldInfo { cap: None, ..hold }],
            queue: vec![waiter],
        };
        let [lock] = <[_; 1]>::try_from(later(vec![lock], ms(30)).collect::<Vec<_>>()).expect("one lock");
        assert_eq!((lock.ttl, lock.queue[0].waiting), (ms(870), ms(80)));
        let times: Vec<_> = lock.holds.iter().map(|hold| (hold.ttl, hold.age, hold.cap)).collect();
        assert_eq!(times, [(ms(870), ms(130), Some(ms(1970))), (ms(870), ms(130), None)]);
    }
}
