//! One server of a quorum: connections to it, and whether it may count.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dlock_quorum::{Facts, Keeping, Standing, standing};
use redis::{Cmd, ConnectionInfo, Value, cmd};
use tokio::sync::Notify;

use super::clocks::ServerClocks;
use crate::address::probed_after;
use crate::login::Setup;
use crate::server::{Fault, Link};

/// A server that is asked on its own, whatever the others say.
pub(super) struct Member {
    /// Which it is.
    at: usize,
    clocks: Arc<ServerClocks>,
    info: ConnectionInfo,
    keeping: Keeping,
    longest_lease: Duration,
    timeout: Duration,
    known: Mutex<Known>,
    /// A hash of the `run_id` of the process that answered last.
    process: AtomicU64,
    /// Another process answers.
    another: Notify,
    /// One attempt to connect at a time.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// For all short commands.
    shared: Option<Arc<Wire>>,
    /// Connections that have waited in a queue, and since when they are free.
    idle: Vec<(Arc<Wire>, Instant)>,
    /// When a connection was last replaced because nothing came on it.
    replaced: Option<Instant>,
    /// Why it did not answer, or does not count.
    trouble: Option<Trouble>,
}

impl Known {
    fn shares(&self, wire: &Wire) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.link.is(&wire.link))
    }
}

struct Trouble {
    why: String,
    /// Nobody tries to connect before.
    until: Instant,
    /// When it counts, if it is only too young.
    counts_at: Option<Instant>,
}

/// A connection, and what the server said of itself on it.
pub(super) struct Wire {
    link: Link,
    facts: Facts,
    read: Instant,
    /// A hash of the `run_id`.
    process: u64,
    /// How many short commands were answered.
    answered: AtomicU32,
    /// By which `CLIENT UNBLOCK` knows it.
    pub client_id: i64,
}

impl Wire {
    pub fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    /// Sends a command and waits for the reply as long as it takes.
    pub async fn ask(&self, command: &Cmd) -> Result<Value, Fault> {
        self.link.ask(command, None).await
    }

    /// Sends two commands in one packet. Returns the reply to the first, unless it is an error, and whatever the other
    /// one got.
    pub async fn ask_both(&self, command: &Cmd, other: &Cmd) -> Result<(Value, Value), Fault> {
        self.link.ask_both(command, other, None).await
    }
}

impl Member {
    pub fn new(
        at: usize,
        info: ConnectionInfo,
        clocks: Arc<ServerClocks>,
        keeping: Keeping,
        longest_lease: Duration,
        timeout: Duration,
    ) -> Self {
        let (info, opening) = (probed_after(info, KEEPALIVE, PROBES), tokio::sync::Mutex::default());
        Self {
            at,
            clocks,
            info,
            keeping,
            longest_lease,
            timeout,
            known: Mutex::default(),
            process: AtomicU64::new(0),
            another: Notify::new(),
            opening,
        }
    }

    pub fn address(&self) -> String {
        self.info.addr().to_string()
    }

    /// Whether the processes that answered last are the same.
    pub fn is_same_process(&self, other: &Self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process != 0 && process == other.process.load(Ordering::Relaxed)
    }

    /// Why it does not count.
    pub fn trouble(&self) -> Option<String> {
        self.known().trouble.as_ref().map(|trouble| trouble.why.clone())
    }

    /// When it counts, if it is only too young.
    pub fn counts_in(&self) -> Option<Duration> {
        self.known().trouble.as_ref()?.counts_at?.checked_duration_since(Instant::now())
    }

    /// The connection for short commands, whether or not the server counts.
    pub async fn shared(&self) -> Result<Arc<Wire>, Fault> {
        if let Some(wire) = self.open_shared() {
            return Ok(wire);
        }
        let _opening = self.opening.lock().await;
        if let Some(wire) = self.open_shared() {
            return Ok(wire);
        }
        // Boxed: rare, and large.
        let wire = Box::pin(self.open()).await?;
        self.known().shared = Some(wire.clone());
        Ok(wire)
    }

    /// A connection that nobody else uses.
    pub async fn own(&self) -> Result<Arc<Wire>, Fault> {
        while let Some((wire, since)) = self.free() {
            // It may have died without a word, and so would the request that waits on it.
            let is_alive = since.elapsed() < FRESH || {
                let ping = cmd("PING");
                let answer = tokio::time::timeout(self.timeout, wire.ask(&ping)).await;
                matches!(answer, Ok(Ok(_)))
            };
            if is_alive {
                return Ok(wire);
            }
            // What has been free for longer is no better.
            self.known().idle.clear();
        }
        Box::pin(self.open()).await
    }

    /// A connection that has waited and is free, to the process that answered last.
    fn free(&self) -> Option<(Arc<Wire>, Instant)> {
        let mut known = self.known();
        known.idle.retain(|(wire, _)| !wire.link.is_closed() && !self.is_replaced(wire));
        known.idle.pop()
    }

    /// Returns when another process answers than the one that this connection leads to.
    pub async fn is_gone(&self, wire: &Wire) {
        loop {
            let mut another = pin!(self.another.notified());
            another.as_mut().enable();
            if self.is_replaced(wire) {
                return;
            }
            another.await;
        }
    }

    fn is_replaced(&self, wire: &Wire) -> bool {
        self.process.load(Ordering::Relaxed) != wire.process
    }

    /// A connection of one's own is free for the next.
    pub fn park(&self, wire: Arc<Wire>) {
        let mut known = self.known();
        if !wire.link.is_closed() && known.idle.len() < MAX_IDLE {
            known.idle.push((wire, Instant::now()));
        }
    }

    /// Whether what this connection leads to may count, as it now stands.
    pub fn count(&self, wire: &Wire) -> Result<(), Fault> {
        let left = match standing(&wire.facts, self.keeping, self.longest_lease, wire.read.elapsed()) {
            Standing::Counts => {
                self.known().trouble = None;
                return Ok(());
            }
            Standing::Young(left) => left,
            other => return Err(self.never_counts(other)),
        };
        let why = format!("started lately: it may have forgotten locks, and counts in {:.1} s", left.as_secs_f64());
        let fault = self.failed(Fault::Later(why.into()));
        if let Some(trouble) = &mut self.known().trouble {
            trouble.counts_at = Some(Instant::now() + left);
        }
        Err(fault)
    }

    /// Whether what this connection leads to will count, but is too young.
    pub fn is_young(&self, wire: &Wire) -> Result<bool, Fault> {
        match standing(&wire.facts, self.keeping, self.longest_lease, wire.read.elapsed()) {
            Standing::Counts => Ok(false),
            Standing::Young(_) => Ok(true),
            other => Err(self.never_counts(other)),
        }
    }

    fn never_counts(&self, standing: Standing) -> Fault {
        let why = match standing {
            Standing::Replica => "is a replica",
            Standing::Promoted => "was a replica and was promoted: it may lack locks",
            Standing::NotOnDisk => "was declared persistent and has no AOF",
            Standing::Counts | Standing::Young(_) => "does not count",
        };
        self.failed(Fault::Later(why.into()))
    }

    /// It is the same server as another member: it does not count twice.
    pub fn is_twin_of(&self, other: &str) -> Fault {
        self.failed(Fault::Refused(format!("is the same server as {other}").into()))
    }

    /// Takes note of a fault.
    pub fn failed(&self, fault: Fault) -> Fault {
        let mut known = self.known();
        if let Fault::OutcomeUnknown(_) | Fault::NotSent(_) = &fault {
            known.shared.take_if(|wire| wire.link.is_closed());
        }
        let why = match &fault {
            Fault::Refused(why) | Fault::Later(why) | Fault::NotSent(why) | Fault::OutcomeUnknown(why) => {
                why.to_string()
            }
            Fault::TooFewReplicas { .. } | Fault::Moved(..) | Fault::Ask(_) => "is a node of a cluster".to_owned(),
        };
        known.trouble = Some(Trouble { why, until: Instant::now(), counts_at: None });
        fault
    }

    /// Waits for the reply to a short command. Replaces the connection if nothing comes on it for a timeout: a firewall
    /// may have forgotten it. A reply that comes later still counts.
    pub async fn reply<T>(
        self: &Arc<Self>,
        wire: &Arc<Wire>,
        patience: Duration,
        reply: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let (before, mut reply) = (wire.answered.load(Ordering::Relaxed), pin!(reply));
        let reply = match tokio::time::timeout(self.timeout, reply.as_mut()).await {
            Ok(reply) => reply,
            Err(_) => {
                self.replace(wire, before);
                let late = tokio::time::timeout(patience.saturating_sub(self.timeout), reply).await;
                late.unwrap_or_else(|_| {
                    let address = self.address();
                    Err(Fault::OutcomeUnknown(format!("{address}: no reply within {patience:?}").into()))
                })
            }
        };
        if !matches!(reply, Err(Fault::OutcomeUnknown(_) | Fault::NotSent(_))) {
            wire.answered.fetch_add(1, Ordering::Relaxed);
        }
        reply
    }

    /// Opens another connection in the background for the next commands, unless something has come on this one. It stays
    /// until then, since a server that is slow may answer on it.
    fn replace(self: &Arc<Self>, wire: &Arc<Wire>, answered: u32) {
        let is_dead = move |wire: &Wire| wire.answered.load(Ordering::Relaxed) == answered;
        let mut known = self.known();
        // Once in an interval only: a server that is slow is not made slower.
        let is_late = known.replaced.is_some_and(|last| last.elapsed() < REPLACE);
        if !is_dead(wire) || !known.shares(wire) || is_late {
            return;
        }
        known.replaced = Some(Instant::now());
        let (member, wire) = (self.clone(), wire.clone());
        tokio::spawn(async move {
            let _opening = member.opening.lock().await;
            if !member.shares(&wire) {
                return;
            }
            let opened = member.open().await;
            let mut known = member.known();
            if let Ok(next) = opened
                && known.shares(&wire)
                && is_dead(&wire)
            {
                known.shared = Some(next);
            }
        });
    }

    /// Whether commands take this connection.
    pub fn shares(&self, wire: &Wire) -> bool {
        self.known().shares(wire)
    }

    /// The next command takes another connection.
    pub fn forget(&self, wire: &Wire) {
        self.known().shared.take_if(|shared| shared.link.is(&wire.link));
    }

    /// The connection for short commands, if it is open.
    pub fn open_shared(&self) -> Option<Arc<Wire>> {
        self.known().shared.as_ref().filter(|wire| !wire.link.is_closed()).cloned()
    }

    async fn open(&self) -> Result<Arc<Wire>, Fault> {
        if let Some(trouble) = self.known().trouble.as_ref().filter(|trouble| Instant::now() < trouble.until) {
            return Err(Fault::NotSent(trouble.why.clone().into()));
        }
        let greeting = async {
            let wire = greet(&self.info).await?;
            self.clocks.read(self.at, wire.ask(&cmd("TIME"))).await?;
            Ok(wire)
        };
        let opened = tokio::time::timeout(self.timeout.max(MIN_CONNECT), greeting).await;
        let opened = opened.unwrap_or_else(|_| Err(Fault::NotSent("does not answer".into())));
        match opened {
            Ok(wire) => {
                if self.process.swap(wire.process, Ordering::Relaxed) != wire.process {
                    self.another.notify_waiters();
                }
                self.known().trouble = None;
                Ok(Arc::new(wire))
            }
            Err(fault) => {
                let fault = self.failed(fault);
                if let Some(trouble) = &mut self.known().trouble {
                    trouble.until = Instant::now() + RECONNECT;
                }
                Err(fault)
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Every change is one assignment: whoever panicked left nothing half-done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects and asks the server what it is.
async fn greet(info: &ConnectionInfo) -> Result<Wire, Fault> {
    let link = Link::open(info, &Setup::default()).await?;
    let said = link.ask(cmd("INFO").arg("server").arg("replication").arg("persistence"), None).await?;
    let facts = match redis::from_redis_value::<String>(said) {
        Ok(text) => Facts::parse(&text),
        Err(_) => None,
    };
    let Some(facts) = facts else {
        return Err(Fault::Refused("INFO does not say how old the server is, or what it was before".into()));
    };
    let read = Instant::now();
    let client_id = match link.ask(cmd("CLIENT").arg("ID"), None).await? {
        Value::Int(id) => id,
        other => return Err(Fault::Refused(format!("an unexpected reply: {other:?}").into())),
    };
    let (process, answered) = (hash(&facts.run_id), AtomicU32::new(0));
    Ok(Wire { link, facts, read, process, answered, client_id })
}

/// Not 0.
fn hash(run_id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    run_id.hash(&mut hasher);
    hasher.finish().max(1)
}

/// When a connection without anything is probed, and how far its three probes are apart: a wait whose connection died
/// without a word is over after 56 s. Each connection that waits costs two packets in 50 s. A thousand clients that wait
/// ask with 1,057 packets a second, and 1,100 is the target.
const KEEPALIVE: Duration = Duration::from_secs(50);
const PROBES: Duration = Duration::from_secs(2);

/// How often a connection is replaced because nothing comes on it: as rarely as a client that waits looks for a majority.
const REPLACE: Duration = Duration::from_secs(5);

/// A connection that was used so lately is not dead.
const FRESH: Duration = Duration::from_secs(1);

/// Connections kept for those who wait next.
const MAX_IDLE: usize = 16;

/// How long it may take to connect and ask, at least.
const MIN_CONNECT: Duration = Duration::from_millis(500);

/// After a failure to connect nobody tries again for so long.
const RECONNECT: Duration = Duration::from_millis(50);
