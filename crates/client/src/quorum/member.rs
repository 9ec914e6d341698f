//! A server of a quorum: connections to it, and whether it may count.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dlock_quorum::{Facts, Keeping, Standing, standing};
use redis::{ConnectionInfo, Value, cmd};

use super::clocks::ServerClocks;
use super::wire::Wire;
use crate::profile::Setup;
use crate::profile::probed_after;
use crate::server::fault::Fault;
use crate::server::link::Link;

/// A server of a quorum.
pub(super) struct Member {
    /// The index of this server in the quorum.
    at: usize,
    clocks: Arc<ServerClocks>,
    info: ConnectionInfo,
    keeping: Keeping,
    longest_lease: Duration,
    timeout: Duration,
    known: Mutex<Known>,
    /// A hash of the `run_id` of the process that answered last; 0 if none has answered.
    process: AtomicU64,
    /// Held while the shared connection is made, so that only one is made at a time.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// The connection for all short commands.
    shared: Option<Arc<Wire>>,
    /// Connections that were used for a wait in a queue, and are free again.
    idle: Vec<Arc<Wire>>,
    /// Why the server did not answer, or does not count.
    trouble: Option<Trouble>,
}

/// Why a server did not answer, or does not count.
struct Trouble {
    why: String,
    /// No attempt to connect is made before this time.
    until: Instant,
    /// From when on the server counts, if it only started too recently.
    counts_at: Option<Instant>,
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
            opening,
        }
    }

    pub fn address(&self) -> String {
        self.info.addr().to_string()
    }

    /// Returns whether the same process answered last for both members.
    pub fn is_same_process(&self, other: &Self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process != 0 && process == other.process.load(Ordering::Relaxed)
    }

    /// Returns why the server does not count.
    pub fn trouble(&self) -> Option<String> {
        self.known().trouble.as_ref().map(|trouble| trouble.why.clone())
    }

    /// Returns the time until the server counts, if it only started too recently.
    pub fn counts_in(&self) -> Option<Duration> {
        self.known().trouble.as_ref()?.counts_at?.checked_duration_since(Instant::now())
    }

    /// Returns the connection for short commands, whether or not the server counts.
    pub async fn shared(&self) -> Result<Arc<Wire>, Fault> {
        if let Some(wire) = self.open_shared() {
            return Ok(wire);
        }
        let _opening = self.opening.lock().await;
        if let Some(wire) = self.open_shared() {
            return Ok(wire);
        }
        // Boxed, because the future is large and connecting is rare.
        let wire = Box::pin(self.open()).await?;
        self.known().shared = Some(wire.clone());
        Ok(wire)
    }

    /// Returns a connection that nobody else uses.
    pub async fn own(&self) -> Result<Arc<Wire>, Fault> {
        let free = {
            let mut known = self.known();
            known.idle.retain(|wire| !wire.link.is_closed());
            known.idle.pop()
        };
        match free {
            Some(wire) => Ok(wire),
            None => Box::pin(self.open()).await,
        }
    }

    /// Takes back a connection from [`own`](Member::own), and keeps it for the next call.
    pub fn park(&self, wire: Arc<Wire>) {
        let mut known = self.known();
        if !wire.link.is_closed() && known.idle.len() < MAX_IDLE {
            known.idle.push(wire);
        }
    }

    /// Checks that the server at the other end of this connection may count now.
    pub fn check_counts(&self, wire: &Wire) -> Result<(), Fault> {
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

    /// Returns whether the server of this connection started too recently to count. Fails if it will never count.
    pub fn is_young(&self, wire: &Wire) -> Result<bool, Fault> {
        match standing(&wire.facts, self.keeping, self.longest_lease, wire.read.elapsed()) {
            Standing::Counts => Ok(false),
            Standing::Young(_) => Ok(true),
            other => Err(self.never_counts(other)),
        }
    }

    /// Records why the server does not count, however long it runs.
    fn never_counts(&self, standing: Standing) -> Fault {
        let why = match standing {
            Standing::Replica => "is a replica",
            Standing::Promoted => "was a replica and was promoted: it may lack locks",
            Standing::NotOnDisk => "was declared persistent and has no AOF",
            Standing::Counts | Standing::Young(_) => "does not count",
        };
        self.failed(Fault::Later(why.into()))
    }

    /// Records that this is the same server as another member, which does not count twice.
    pub fn twin_fault(&self, other: &str) -> Fault {
        self.failed(Fault::Refused(format!("is the same server as {other}").into()))
    }

    /// Records a fault, and returns it.
    pub fn failed(&self, fault: Fault) -> Fault {
        let mut known = self.known();
        if let Fault::OutcomeUnknown(_) | Fault::NotSent(_) = &fault {
            // The next command makes a new connection.
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

    /// Drops this connection, if it is the shared one. The next command takes another one.
    pub fn forget(&self, wire: &Wire) {
        self.known().shared.take_if(|shared| shared.link.is(&wire.link));
    }

    /// Returns the connection for short commands, if it is open.
    pub fn open_shared(&self) -> Option<Arc<Wire>> {
        self.known().shared.as_ref().filter(|wire| !wire.link.is_closed()).cloned()
    }

    /// Makes a connection, and asks the server what it is and for its clock. After a failure, makes none for a moment.
    async fn open(&self) -> Result<Arc<Wire>, Fault> {
        if let Some(trouble) = self.known().trouble.as_ref().filter(|trouble| Instant::now() < trouble.until) {
            return Err(Fault::NotSent(trouble.why.clone().into()));
        }
        let greeting = async {
            let wire = greet(&self.info).await?;
            self.clocks.read(self.at, &wire, None).await?;
            Ok(wire)
        };
        let opened = tokio::time::timeout(self.timeout.max(MIN_CONNECT), greeting).await;
        let opened = opened.unwrap_or_else(|_| Err(Fault::NotSent("does not answer".into())));
        match opened {
            Ok(wire) => {
                self.process.store(hash(&wire.facts.run_id), Ordering::Relaxed);
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
        // No change can panic halfway, so a poisoned lock has sound contents.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects, and asks the server for the facts that decide whether it counts.
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
    Ok(Wire { link, facts, read, client_id })
}

/// Returns a hash that is not 0, because 0 stands for no process.
fn hash(run_id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    run_id.hash(&mut hasher);
    hasher.finish().max(1)
}

/// When a connection without traffic is probed, and the time between its three probes: a wait whose connection died
/// silently is over after 56 s. Each connection that waits costs two packets in 50 s. With their pings to the gate
/// server, a thousand clients that wait send 1,057 packets per second (docs/quorum.md); the target is 1,100.
const KEEPALIVE: Duration = Duration::from_secs(50);
const PROBES: Duration = Duration::from_secs(2);

/// How many idle connections are kept for the next waits.
const MAX_IDLE: usize = 16;

/// The least time that connecting and the first questions get, whatever the timeout.
const MIN_CONNECT: Duration = Duration::from_millis(500);

/// The pause after a failure to connect.
const RECONNECT: Duration = Duration::from_millis(50);
