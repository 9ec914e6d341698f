//! Finds the server that a key lives on, and a connection to it.
//!
//! The known nodes are only ever a guess from the last answer: a node that does not answer, or says that it is a
//! replica, is forgotten, and the search begins again at the URL's servers or with Sentinel.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionInfo, Value, cmd};
use tokio::time::{Instant, timeout_at};

use super::fault::Fault;
use super::in_flight::InFlight;
use super::link::Link;
use super::slot::slot;
use crate::error::Cause;
use crate::join::first_ok;
use crate::profile::Setup;
use crate::profile::{self, Place};

/// The connection that a command takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The connection for all short commands.
    Shared,
    /// A connection that nobody else uses meanwhile: for a command that waits, or to bind a hold to.
    Own,
}

pub(crate) struct Nodes {
    place: Place,
    setup: Setup,
    known: Mutex<Known>,
    /// A connection of the program, for short commands.
    given: Option<Link>,
}

#[derive(Default)]
struct Known {
    /// The database of the program's connection when it was asked last.
    given_db: Option<i64>,
    /// The server that was found when none was known, until it is forgotten.
    home: Option<ConnectionInfo>,
    /// The node of each slot of a cluster, as far as it is known.
    slots: HashMap<u16, ConnectionInfo>,
    shared: HashMap<String, Link>,
    /// Free connections of [`Lane::Own`].
    idle: HashMap<String, Vec<Link>>,
}

impl Nodes {
    pub fn new(place: Place, setup: Setup) -> Self {
        Self { place, setup, known: Mutex::default(), given: None }
    }

    /// Uses this connection to the first node as long as it works.
    pub fn with(place: Place, connection: MultiplexedConnection) -> Self {
        let mut nodes = Self::new(place, Setup::default());
        if let Place::Nodes(infos) = &nodes.place
            && let Some(info) = infos.first()
        {
            let link = Link::of(connection, info.clone());
            nodes.known().shared.insert(link.address(), link.clone());
            nodes.given = Some(link);
        }
        nodes
    }

    /// Returns the servers to look at first, and the setup of each connection.
    pub fn origin(&self) -> (&Place, &Setup) {
        (&self.place, &self.setup)
    }

    /// Sends a command to the server of the key, following redirections. Returns the reply and its connection.
    pub async fn call(
        &self,
        key: &[u8],
        command: &Cmd,
        lane: Lane,
        within: Option<Duration>,
    ) -> Result<(Value, Link), Fault> {
        let command = slice::from_ref(command);
        let (mut replies, link) = self.call_all(key, command, lane, within, Duration::ZERO).await?;
        Ok((replies.pop().unwrap_or(Value::Nil), link))
    }

    /// Does what `call` does, for several commands at once: see [`Link::ask_all`].
    pub async fn call_all(
        &self,
        key: &[u8],
        commands: &[Cmd],
        lane: Lane,
        within: Option<Duration>,
        rest: Duration,
    ) -> Result<(Vec<Value>, Link), Fault> {
        self.call_at(key, commands, lane, within, rest, &InFlight::default()).await
    }

    /// Does what `call_all` does, and records in `at` the connection, and whether the first reply was other than nil.
    pub async fn call_at(
        &self,
        key: &[u8],
        commands: &[Cmd],
        lane: Lane,
        within: Option<Duration>,
        rest: Duration,
        at: &InFlight,
    ) -> Result<(Vec<Value>, Link), Fault> {
        let mut asked = None;
        for _ in 0..REDIRECTIONS {
            let link = match &asked {
                Some(node) => self.link_to(node, lane).await?,
                None => self.link_for(key, lane).await?,
            };
            at.sent(&link);
            let replies = match (asked.take(), commands) {
                (Some(_), [command]) => link.ask_importing(command, within).await.map(|reply| vec![reply]),
                _ => link.ask_all(commands, within, rest, at.has_begun()).await,
            };
            match replies {
                Ok(replies) => return Ok((replies, link)),
                Err(Fault::Moved(slot, node)) => {
                    self.known().slots.insert(slot, *node);
                    self.park(link, lane);
                }
                // `ASKING` is for one command, and of several keys some may still be here.
                Err(Fault::Ask(_)) if commands.len() > 1 => return Err(Fault::Later("the slot is moving".into())),
                Err(Fault::Ask(node)) => {
                    asked = Some(*node);
                    self.park(link, lane);
                }
                Err(fault) => {
                    if !matches!(fault, Fault::Refused(_)) {
                        self.forget(&link);
                    }
                    return Err(fault);
                }
            }
        }
        Err(Fault::Later("redirected again and again".into()))
    }

    /// Sends a command to this node. The reply may take `within`, and connecting and the reply together twice as long.
    pub async fn call_node(&self, node: &ConnectionInfo, command: &Cmd, within: Duration) -> Result<Value, Fault> {
        let end = Instant::now() + within * 2;
        let silent = |_| Err(Fault::NotSent(Cause::from("no connection in time").at(node.addr())));
        let link = timeout_at(end, self.link_to(node, Lane::Shared)).await.unwrap_or_else(silent)?;
        let left = end.saturating_duration_since(Instant::now());
        let reply = link.ask(command, Some(within.min(left))).await;
        if matches!(reply, Err(Fault::OutcomeUnknown(_) | Fault::Later(_))) {
            self.forget(&link);
        }
        reply
    }

    /// Returns the node that had the key last, if that is known.
    pub fn known_node_of(&self, key: &[u8]) -> Option<ConnectionInfo> {
        self.known().slots.get(&slot(key)).cloned()
    }

    /// Records which node has the key.
    pub fn note(&self, key: &[u8], node: &ConnectionInfo) {
        self.known().slots.insert(slot(key), node.clone());
    }

    /// Keeps a request's own connection as the shared one, or for the next request. Closes it if a reply is still on
    /// its way, or enough are kept.
    pub fn park(&self, link: Link, lane: Lane) {
        let mut known = self.known();
        let address = link.address();
        if lane == Lane::Shared || !link.is_clear() {
            return;
        }
        match known.shared.entry(address.clone()) {
            Entry::Vacant(shared) => _ = shared.insert(link),
            Entry::Occupied(_) => {
                let idle = known.idle.entry(address).or_default();
                if idle.len() < MAX_IDLE {
                    idle.push(link);
                }
            }
        }
    }

    /// Returns the place of the URL.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the primary; of a cluster, all primaries that have slots.
    pub async fn primaries(&self) -> Result<Vec<ConnectionInfo>, Fault> {
        let link = self.link_for(b"", Lane::Shared).await?;
        let slots = match link.ask(cmd("CLUSTER").arg("SLOTS"), Some(REPLY)).await {
            // The server is not in a cluster, or does not let us ask.
            Err(Fault::Refused(_)) => return Ok(vec![link.info().clone()]),
            Err(fault) => {
                self.forget(&link);
                return Err(fault);
            }
            Ok(slots) => slots,
        };
        let mut primaries: Vec<ConnectionInfo> = Vec::new();
        for node in primaries_of(slots, link.info())? {
            if !primaries.iter().any(|known| known.addr() == node.addr()) {
                primaries.push(node);
            }
        }
        Ok(primaries)
    }

    /// Pings the server of a key. Returns the connection on which it answered.
    pub async fn ping(&self, key: &[u8]) -> Result<Link, Fault> {
        let at = InFlight::default();
        match self.call_at(key, &[cmd("PING")], Lane::Shared, Some(REPLY), Duration::ZERO, &at).await {
            Ok((_, link)) => Ok(link),
            // The server answers, even if with an error only.
            Err(refused @ Fault::Refused(_)) => at.take_link().ok_or(refused),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the shared connection to the server of the key, as far as that is known.
    pub async fn link(&self, key: &[u8]) -> Result<Link, Fault> {
        self.link_for(key, Lane::Shared).await
    }

    /// Returns a connection to this node.
    pub async fn link_to(&self, node: &ConnectionInfo, lane: Lane) -> Result<Link, Fault> {
        let profile = match &self.given {
            Some(given) => Box::pin(self.profile_like(given, node, lane)).await?,
            None => None,
        };
        let node = profile.as_ref().unwrap_or(node);
        if let Some(link) = self.open_link(node, lane) {
            return Ok(link);
        }
        // Boxed: rare, and large.
        let link = Box::pin(Link::open(node, &self.setup)).await?;
        if lane == Lane::Shared {
            self.known().shared.insert(link.address(), link.clone());
        }
        Ok(link)
    }

    /// Returns how to connect to a node so that locks are the same as over the program's connection, which may have
    /// selected another database or logged in as another user since it was made. `None`: as the URL says.
    async fn profile_like(
        &self,
        given: &Link,
        node: &ConnectionInfo,
        lane: Lane,
    ) -> Result<Option<ConnectionInfo>, Fault> {
        let known = self.known().given_db;
        if !given.is_closed() && (lane == Lane::Own || known.is_none()) {
            let said = match given.ask(cmd("CLIENT").arg("INFO"), Some(REPLY)).await {
                Ok(reply) => redis::from_redis_value::<String>(reply).unwrap_or_default(),
                // The user may not ask, or the connection has ended, which the next command reports.
                Err(_) => String::new(),
            };
            let field = |name: &str| said.split_ascii_whitespace().find_map(|word| word.strip_prefix(name));
            let own = node.redis_settings().username().unwrap_or("default");
            if let Some(user) = field("user=").filter(|user| *user != own) {
                let why =
                    format!("the connection is one of user {user}, and the client has the password of {own} only");
                return Err(Fault::Refused(why.into()));
            }
            if let Some(db) = field("db=").and_then(|db| db.parse().ok()) {
                self.known().given_db = Some(db);
            }
        }
        let db = self.known().given_db;
        Ok(db.map(|db| node.clone().set_redis_settings(node.redis_settings().clone().set_db(db))))
    }

    async fn link_for(&self, key: &[u8], lane: Lane) -> Result<Link, Fault> {
        let candidates = self.candidates(slot(key)).await?;
        self.first_of(candidates, lane).await
    }

    async fn first_of(&self, candidates: Vec<ConnectionInfo>, lane: Lane) -> Result<Link, Fault> {
        let links = candidates.iter().map(|node| async move {
            match self.link_to(node, lane).await {
                Ok(link) => Ok((link, node)),
                Err(failed) => {
                    self.forget_node(node);
                    Err(failed)
                }
            }
        });
        let (link, node) =
            first_ok(links.collect(), HANGS).await.unwrap_or_else(|| Err(Fault::NotSent("no server".into())))?;
        // The candidates before this node failed, or did not answer for a while.
        candidates.iter().take_while(|other| other.addr() != node.addr()).for_each(|other| self.forget_node(other));
        self.known().home.get_or_insert_with(|| node.clone());
        Ok(link)
    }

    /// Returns where to look, the likeliest first.
    async fn candidates(&self, slot: u16) -> Result<Vec<ConnectionInfo>, Fault> {
        let mut candidates: Vec<_> = {
            let known = self.known();
            known.slots.get(&slot).into_iter().chain(&known.home).cloned().collect()
        };
        match &self.place {
            Place::Nodes(nodes) => candidates.extend(nodes.iter().cloned()),
            Place::Sentinels { sentinels, name, primary } if candidates.is_empty() => {
                candidates.push(ask_sentinels(sentinels, name, primary).await?);
            }
            Place::Sentinels { .. } => {}
        }
        let mut seen = Vec::new();
        candidates.retain(|node| {
            let address = node.addr().to_string();
            let new = !seen.contains(&address);
            seen.push(address);
            new
        });
        Ok(candidates)
    }

    fn open_link(&self, node: &ConnectionInfo, lane: Lane) -> Option<Link> {
        let address = node.addr().to_string();
        let mut known = self.known();
        match lane {
            Lane::Shared => known.shared.get(&address).filter(|link| !link.is_closed()).cloned(),
            Lane::Own => {
                let idle = known.idle.get_mut(&address)?;
                let db = node.redis_settings().db();
                idle.retain(|link| !link.is_closed() && link.info().redis_settings().db() == db);
                idle.pop()
            }
        }
    }

    /// Forgets a connection that failed or does not lead to a primary, the free connections to its node, and the node.
    pub fn forget(&self, link: &Link) {
        let mut known = self.known();
        let address = link.address();
        known.idle.remove(&address);
        if known.shared.get(&address).is_some_and(|shared| shared.is(link)) {
            known.shared.remove(&address);
        }
        drop(known);
        self.forget_node(link.info());
    }

    /// Does not share a connection any more, so that it ends with its last command. The program's own stays.
    pub fn retire(&self, link: &Link) {
        let (mut known, address) = (self.known(), link.address());
        let is_given = self.given.as_ref().is_some_and(|given| given.is(link));
        if !is_given && known.shared.get(&address).is_some_and(|shared| shared.is(link)) {
            known.shared.remove(&address);
        }
    }

    /// Closes the free connections to the node of a connection that has ended: they may be about to end, too.
    pub fn forget_free(&self, ended: &Link) {
        self.known().idle.remove(&ended.address());
    }

    fn forget_node(&self, node: &ConnectionInfo) {
        let mut known = self.known();
        known.home.take_if(|home| home.addr() == node.addr());
        known.slots.retain(|_, other| other.addr() != node.addr());
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Every change is one call on a table, so a panic leaves nothing half-done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the primary's address, from the first Sentinel that knows one.
async fn ask_sentinels(
    sentinels: &[ConnectionInfo],
    name: &str,
    primary: &ConnectionInfo,
) -> Result<ConnectionInfo, Fault> {
    let questions = sentinels.iter().map(|sentinel| async move {
        let question = async {
            let link = Link::open(sentinel, &Setup::default()).await?;
            link.ask(cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name), Some(REPLY)).await
        };
        match question.await.map(redis::from_redis_value::<Option<(String, u16)>>) {
            Ok(Ok(Some((host, port)))) => Ok(profile::at(primary, &host, port)),
            Ok(_) => {
                let why = format!("Sentinel {} knows no primary called {name}", sentinel.addr());
                Err(Fault::NotSent(why.into()))
            }
            Err(fault) => Err(Fault::NotSent(fault.cause().at(sentinel.addr()))),
        }
    });
    first_ok(questions.collect(), HANGS).await.unwrap_or_else(|| Err(Fault::NotSent("no Sentinel".into())))
}

/// Returns the primaries of `CLUSTER SLOTS`: `[first, last, [host, port, …], …]` each.
fn primaries_of(slots: Value, from: &ConnectionInfo) -> Result<Vec<ConnectionInfo>, Fault> {
    let wrong = |error| Fault::Refused(format!("CLUSTER SLOTS: {error}").into());
    let ranges: Vec<Vec<Value>> = redis::from_redis_value(slots).map_err(wrong)?;
    let mut primaries = Vec::new();
    for primary in ranges.into_iter().filter_map(|range| range.into_iter().nth(2)) {
        let mut fields = redis::from_redis_value::<Vec<Value>>(primary).map_err(wrong)?.into_iter();
        let mut field = || fields.next().unwrap_or(Value::Nil);
        let host: Option<String> = redis::from_redis_value(field()).map_err(wrong)?;
        let port = redis::from_redis_value(field()).map_err(wrong)?;
        primaries.push(match host.filter(|host| !host.is_empty()) {
            Some(host) => profile::at(from, &host, port),
            None => from.clone(),
        });
    }
    Ok(primaries)
}

/// How long a short command may take to be answered.
pub(crate) const REPLY: Duration = Duration::from_secs(2);

/// After this time without an answer, the next server is asked, too.
const HANGS: Duration = Duration::from_millis(300);

const REDIRECTIONS: u32 = 8;

/// How many free connections are kept for each server.
const MAX_IDLE: usize = 8;

/// How long a command with a long reply may take to be answered.
pub(super) const LONG: Duration = Duration::from_secs(10);

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use redis::IntoConnectionInfo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn a_command_behind_a_slow_handshake_counts_as_sent() {
        const WITHIN: Duration = Duration::from_millis(600);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let node = format!("redis://{}/?protocol=resp3", listener.local_addr().expect("an address"));
        let node = node.into_connection_info().expect("a URL");
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut bytes = [0; 4096];
            let size = stream.read(&mut bytes).await.expect("the handshake");
            // The connection is ready when only half of the time for a reply is left.
            sleep(WITHIN * 3 / 2).await;
            let commands = bytes.get(..size).into_iter().flatten().filter(|byte| **byte == b'*').count();
            stream.write_all(b"%0\r\n").await.expect("an open connection");
            stream.write_all("+OK\r\n".repeat(commands - 1).as_bytes()).await.expect("an open connection");
            let size = stream.read(&mut bytes).await.expect("the command");
            sleep(WITHIN).await;
            size
        });
        let nodes = Nodes::new(Place::Nodes(vec![node.clone()]), Setup::default());
        let fault = nodes.call_node(&node, &cmd("PING"), WITHIN).await.expect_err("no reply");
        assert!(matches!(fault, Fault::OutcomeUnknown(_)), "{fault:?}");
        assert!(nodes.known().shared.is_empty(), "the silent connection is kept");
        assert!(server.await.expect("a server") > 0, "nothing was sent");
    }
}
