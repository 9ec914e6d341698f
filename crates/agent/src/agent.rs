//! The agent as a whole: it starts, serves and stops.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dlock_client::{Client, Error};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::listen::{Incoming, Listener};
use crate::options::Options;
use crate::pass::Pass;
use crate::quorum::Quorum;
use crate::resp::{Protocol, Reply};
use crate::shared::{Locks, Shared};
use crate::stats::Stats;
use crate::{metrics, notify};

/// An agent that has not started yet.
#[must_use = "it does nothing before it runs"]
pub struct Agent {
    shared: Arc<Shared>,
}

impl Agent {
    /// Passes commands on to a server, to the primary that Sentinel names, or to the nodes of a cluster. `log` gets a
    /// line for what an operator should know.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a quorum.
    pub fn passing(
        client: Client,
        options: Options,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let stats = Arc::new(Stats::new(Box::new(log)));
        let locks = Locks::Passed(Arc::new(Pass::new(client, stats.clone())?));
        Ok(Self::new(locks, stats, options))
    }

    /// Offers locks over a quorum. `client` is a client of the whole quorum, and `members` has one client for each of
    /// its servers, in the order in which `client` got them.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the longest lease is too short.
    pub fn of_quorum(
        client: Client,
        members: &[Client],
        longest_lease: Duration,
        options: Options,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let stats = Arc::new(Stats::new(Box::new(log)));
        let locks =
            Locks::Quorum(Arc::new(Quorum::new(client, members, longest_lease, options.max_holds, stats.clone())?));
        Ok(Self::new(locks, stats, options))
    }

    fn new(locks: Locks, stats: Arc<Stats>, options: Options) -> Self {
        Self { shared: Arc::new(Shared { options, locks, stats, numbers: AtomicU64::new(1) }) }
    }

    /// Listens and serves clients until `stop` resolves. Then it disconnects them, and releases what it holds, or
    /// leaves it to its leases ([`Options::keep`]). Notifies systemd when it is ready, if systemd started it.
    ///
    /// # Errors
    ///
    /// Returns the error of an address on which the agent cannot or may not listen.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let shared = self.shared;
        let mut tasks = JoinSet::new();
        let mut clients = JoinSet::new();
        let options = &shared.options;
        // Each client needs a file for its own connection, and others for connections to servers.
        crate::listen::allow_files(options.max_clients.saturating_mul(3), &shared.stats);
        let listeners = Listener::open_all(&options.listen, options.access())?;
        let (to, mut incoming) = tokio::sync::mpsc::channel(16);
        for listener in &listeners {
            shared.stats.log(&format!("listens on {}", listener.address()));
            tasks.spawn(listener.accept(to.clone()));
        }
        if let Some(address) = shared.options.metrics {
            let listener = metrics::open(address).await?;
            shared.stats.log(&format!("metrics at http://{}/metrics", listener.local_addr()?));
            tasks.spawn(metrics::serve(listener, shared.clone()));
        }
        if let Locks::Quorum(quorum) = shared.locks.clone() {
            tasks.spawn(async move { quorum.watch_sessions().await });
        }
        notify::tell("READY=1");
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(new) = incoming.recv() => admit(&shared, new, &mut clients),
                // Joined, so that a task that has ended takes no memory.
                Some(_) = clients.join_next() => {}
            }
        }
        notify::tell("STOPPING=1");
        drop(listeners);
        tasks.shutdown().await;
        disconnect(&shared, &mut clients).await;
        Ok(())
    }
}

/// Serves a connection, unless there are too many.
fn admit(shared: &Arc<Shared>, new: Incoming, clients: &mut JoinSet<()>) {
    if clients.len() >= shared.options.max_clients {
        Stats::count(&shared.stats.rejected_connections);
        let mut bytes = Vec::new();
        Reply::error("ERR max number of clients reached").encode(Protocol::Resp2, &mut bytes);
        return new.refuse(&bytes);
    }
    Stats::count(&shared.stats.connections);
    Stats::count(&shared.stats.connected);
    let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
    if shared.options.verbose {
        shared.stats.log(&format!("connection {number} from {}", new.address()));
    }
    let connection = Connection::new(shared.clone(), number, new.address());
    match new {
        Incoming::Unix(stream) => {
            let (reader, writer) = stream.into_split();
            clients.spawn(connection.serve(reader, writer))
        }
        Incoming::Tcp(stream, _) => {
            let (reader, writer) = stream.into_split();
            clients.spawn(connection.serve(reader, writer))
        }
    };
}

/// Ends all connections. Holds are released, or left to their leases ([`Options::keep`]).
async fn disconnect(shared: &Shared, clients: &mut JoinSet<()>) {
    match &shared.locks {
        Locks::Quorum(quorum) if shared.options.keep => {
            // `leave` comes first: otherwise the end of the connections releases the holds that are bound to them.
            quorum.leave().await;
            clients.shutdown().await;
        }
        Locks::Quorum(quorum) => {
            clients.shutdown().await;
            quorum.release_all().await;
        }
        Locks::Passed(_) => clients.shutdown().await,
    }
    shared.stats.log("has stopped");
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("options", &self.shared.options).finish_non_exhaustive()
    }
}
