//! A named session: one heartbeat for all locks of a program.

mod binding;
mod cluster;
mod heart;
mod locks;
mod open;
mod round;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout_at};

use crate::binding::{Heart, Kept};
use crate::error::Error;
use crate::join::join_all;
use crate::owner::uuid;
use crate::server::Server;
use crate::server::fault::Fault;
pub(crate) use binding::{Binding, WeakBinding};

/// Keeps all locks that are acquired with it ([`Acquire::in_session`](crate::Acquire::in_session)) by one heartbeat,
/// which any connection of the client carries. When the heartbeats end, for example because the process hangs, the
/// server frees all of its locks together.
///
/// ```no_run
/// # async fn example(client: dlock_client::Client) -> Result<(), dlock_client::Error> {
/// use std::time::Duration;
///
/// let session = dlock_client::Session::open(&client, Duration::from_secs(10)).await?;
/// let first = client.acquire("job:1").in_session(&session).await?;
/// let second = client.acquire("job:2").in_session(&session).await?;
/// first.release().await?;
/// session.close().await?; // frees the second one
/// # Ok(()) }
/// ```
///
/// Open it once for a program; it is cheap to clone, and the clones are the same session. A task of the tokio runtime
/// that opened it sends the heartbeats, whenever a third of the timeout has passed, so the runtime must run for as long
/// as the session lives. The session is closed in the background when the last clone and the last guard are dropped.
///
/// After a restart or a failover, the session opens itself again on the new server and binds its locks there. Locks
/// that the new server does not have are lost. Deleted locks are lost with the next heartbeat.
///
/// In a cluster, each node that has locks of the session gets a heartbeat of its own. If a node fails for good, its
/// locks are lost, and the session goes on with the others.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    server: Arc<Server>,
    id: String,
    timeout: Duration,
    manual: bool,
    kept: Mutex<Kept>,
    phase: watch::Sender<Phase>,
    /// Makes the session open on one node at a time.
    opening: tokio::sync::Mutex<()>,
    runtime: Handle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    /// No heartbeat was confirmed in time.
    Lost,
    Closed,
}

impl Session {
    /// Returns the session's id on the server, a UUID. In a cluster, other nodes know the session by other ids.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Returns the timeout.
    pub fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    /// Returns whether it is open, as far as is known here.
    pub fn is_open(&self) -> bool {
        self.inner.check().is_ok()
    }

    /// Resolves when the session is lost, or must be assumed lost: no heartbeat was confirmed within its timeout,
    /// counted from when the last confirmed one was *sent*. All of its guards are lost with it, and it cannot be opened
    /// again. Resolves when the session is closed, too.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut phase, inner) = (self.inner.phase.subscribe(), Arc::downgrade(&self.inner));
        async move {
            while *phase.borrow_and_update() == Phase::Open {
                let Some(until) = inner.upgrade().and_then(|inner| inner.kept().latest()) else { return };
                let over = until <= Instant::now();
                if over || matches!(timeout_at(until.into(), phase.changed()).await, Ok(Err(_))) {
                    return;
                }
            }
        }
    }

    /// Says that the program is alive: see [`open_manual`](Session::open_manual). Sends nothing itself and does not
    /// wait, so call it often.
    pub fn beat(&self) {
        let now = Instant::now();
        for heart in self.inner.kept().hearts.values_mut() {
            heart.beat(now);
        }
    }

    /// Ends the session, and frees all of its locks with one command (in a cluster, one for each node). Guards that are
    /// still held are lost.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if no server answers within a second. The server then frees the locks when the timeout
    /// has passed since the last heartbeat, or after `dlock.session-grace` more.
    pub async fn close(&self) -> Result<(), Error> {
        // The server has ended a session that is lost, or does so soon.
        let is_lost = self.inner.check().is_err();
        if !self.inner.end(Phase::Closed) || is_lost {
            return Ok(());
        }
        let inner = &self.inner;
        let ids = inner.ids();
        let closing = ids.iter().map(|(id, node)| async move {
            inner.repeat(|within| inner.server.close_session(id, node.as_ref(), within)).await
        });
        join_all(closing).await.into_iter().collect()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    fn new(server: Arc<Server>, timeout: Duration, manual: bool) -> Self {
        // The server is told whole milliseconds.
        let timeout = timeout - Duration::from_nanos(u64::from(timeout.subsec_nanos()) % 1_000_000);
        let phase = watch::Sender::new(Phase::Opening);
        let (kept, opening, runtime) = (Mutex::default(), tokio::sync::Mutex::default(), Handle::current());
        Self { server, id: uuid(), timeout, manual, kept, phase, opening, runtime }
    }

    async fn open(self: &Arc<Self>) -> Result<(), Error> {
        self.repeat(|within| async move {
            if self.server.is_in_cluster(within).await? {
                return self.open_in_cluster(within).await;
            }
            self.begin(ONE_SERVER, Heart::new(self.id.clone(), None, Instant::now()), within).await
        })
        .await
    }

    /// Repeats `work` until a server answers, for `TRY` at most.
    async fn repeat<F>(&self, work: impl Fn(Duration) -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Fault>>,
    {
        let end = Instant::now() + TRY;
        let mut why = Error::Unreachable("no reply in time".into());
        loop {
            match timeout_at((end + LATE).into(), work(end + LATE - Instant::now())).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(refused @ Fault::Refused(_))) => return Err(refused.into()),
                Ok(Err(fault)) => why = fault.into(),
                Err(_) => return Err(why),
            }
            if Instant::now() + PAUSE >= end {
                return Err(why);
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the session's id on each server.
    fn ids(&self) -> Vec<(String, Option<redis::ConnectionInfo>)> {
        self.kept().hearts.values().map(|heart| (heart.id.clone(), heart.node.clone())).collect()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // No change of the state panics half-way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if *self.phase.borrow() == Phase::Open {
            for (id, node) in self.ids() {
                let server = self.server.clone();
                self.server.cleanups.spawn(&self.runtime, async move {
                    while server.close_session(&id, node.as_ref(), TRY).await.is_err() {
                        sleep(PAUSE).await;
                    }
                });
            }
        }
    }
}

/// Shows the address without the login.
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Session");
        shown
            .field("id", &self.id)
            .field("timeout", &self.timeout)
            .field("server", &format_args!("{}", self.server.place()));
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The shortest and the longest timeout on the server.
const SHORTEST: Duration = Duration::from_millis(300);
const LONGEST: Duration = Duration::from_secs(3600);

/// How long opening and closing look for a server, and how late its answer may come.
const TRY: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_millis(150);

/// The pause between two attempts to open or close.
const PAUSE: Duration = Duration::from_millis(20);

/// The key of the heart of a session that is not in a cluster.
const ONE_SERVER: &str = "";
