//! A named session: one heartbeat for all locks of a program.

mod binding;
mod round;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::Cmd;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until, timeout_at};

use crate::backend::Backend;
use crate::client::Client;
use crate::error::Error;
use crate::owner::uuid;
use crate::server::{Fault, Server};
pub(crate) use binding::{Binding, WeakBinding};

/// Keeps all locks that are acquired with it ([`Acquire::in_session`](crate::Acquire::in_session)) by one heartbeat,
/// which takes whatever connection the client has. When the heartbeats end, for example because the process hangs, the
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
/// After a restart or a failover, the session opens itself again on the new server and binds its locks there. Those that
/// the server has no more are lost. So are locks that were deleted, with the next heartbeat.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

/// Commands, each with the key whose server gets it.
pub(crate) type Commands = Arc<Vec<(Vec<u8>, Cmd)>>;

pub(crate) struct Inner {
    server: Arc<Server>,
    id: String,
    timeout: Duration,
    manual: bool,
    kept: Mutex<Kept>,
    phase: watch::Sender<Phase>,
    wake: Arc<Notify>,
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

struct Kept {
    /// Until when the server has the session for certain, and when the next heartbeat is due.
    until: Instant,
    due: Instant,
    /// Whether the program has called `beat` since the last heartbeat.
    beaten: bool,
    /// How often it was opened on a server. Locks that were granted before the last time must be bound again.
    openings: u64,
    bindings: BTreeMap<u64, Bound>,
    next: u64,
    /// Releases that no server answered. Without its session, a hold would end with its lease.
    owed: Vec<Commands>,
    /// Why the last heartbeat failed, if it did.
    failure: Option<String>,
}

/// What the session knows of a hold.
struct Bound {
    bind: Commands,
    /// Until when the hold is certain although it must be bound again.
    unbound: Option<Instant>,
    lost: watch::Sender<bool>,
}

impl Session {
    /// Opens a session of the client's server. `timeout`: the server frees all of its locks so long after the last
    /// heartbeat; 300 ms to one hour. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if no server answers within a second. [`Error::Invalid`] for a quorum, for a cluster, or if
    /// the timeout is out of range.
    pub async fn open(client: &Client, timeout: Duration) -> Result<Self, Error> {
        Self::begin(client, timeout, false).await
    }

    /// Does the same as [`open`](Session::open), but sends heartbeats only while the program calls
    /// [`beat`](Session::beat). If the loop that works calls it, the locks are freed when that loop hangs.
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn open_manual(client: &Client, timeout: Duration) -> Result<Self, Error> {
        Self::begin(client, timeout, true).await
    }

    async fn begin(client: &Client, timeout: Duration, manual: bool) -> Result<Self, Error> {
        let Backend::Server(server) = client.backend() else {
            return Err(Error::Invalid("a quorum keeps locks by renewing them, not by sessions".to_owned()));
        };
        if !(SHORTEST..=LONGEST).contains(&timeout) {
            return Err(Error::Invalid("the timeout of a session is 300 ms to one hour".to_owned()));
        }
        let inner = Arc::new(Inner::new(server.clone(), timeout, manual));
        inner.open().await?;
        let (weak, wake) = (Arc::downgrade(&inner), inner.wake.clone());
        inner.runtime.spawn(beat(weak, wake));
        Ok(Self { inner })
    }

    /// Returns the name by which the server knows it, a UUID.
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

    /// Resolves when the session is lost, or must be assumed lost: no heartbeat was confirmed within its timeout, counted
    /// from when the last confirmed one was *sent*. All of its guards are lost with it, and it cannot be opened again.
    /// Also when it is closed.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut phase, inner) = (self.inner.phase.subscribe(), Arc::downgrade(&self.inner));
        async move {
            while *phase.borrow_and_update() == Phase::Open {
                let Some(until) = inner.upgrade().map(|inner| inner.kept().until) else { return };
                let over = until <= Instant::now();
                if over || matches!(timeout_at(until.into(), phase.changed()).await, Ok(Err(_))) {
                    return;
                }
            }
        }
    }

    /// Says that the program is alive: see [`open_manual`](Session::open_manual). Sends nothing itself and does not wait,
    /// so call it often.
    pub fn beat(&self) {
        let mut kept = self.inner.kept();
        let first = !std::mem::replace(&mut kept.beaten, true);
        if first {
            self.inner.wake.notify_one();
        }
    }

    /// Ends it, and frees all of its locks with one command. A guard that was still held is lost.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if no server answers within a second. The server frees the locks within the timeout then.
    pub async fn close(&self) -> Result<(), Error> {
        // The server has ended a session that is lost, or does so soon.
        let is_lost = self.inner.check().is_err();
        if !self.inner.end(Phase::Closed) || is_lost {
            return Ok(());
        }
        let inner = &self.inner;
        inner.repeat(|patience| inner.server.close_session(&inner.id, patience)).await
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    fn new(server: Arc<Server>, timeout: Duration, manual: bool) -> Self {
        let now = Instant::now();
        let kept = Kept {
            until: now,
            due: now,
            beaten: false,
            openings: 0,
            bindings: BTreeMap::new(),
            next: 0,
            owed: Vec::new(),
            failure: None,
        };
        // The server is told whole milliseconds.
        let timeout = timeout - Duration::from_nanos(u64::from(timeout.subsec_nanos()) % 1_000_000);
        let (phase, wake) = (watch::Sender::new(Phase::Opening), Arc::default());
        Self { server, id: uuid(), timeout, manual, kept: Mutex::new(kept), phase, wake, runtime: Handle::current() }
    }

    async fn open(&self) -> Result<(), Error> {
        self.repeat(|patience| async move {
            if self.server.is_in_cluster(patience).await? {
                return Err(Fault::Refused("a session needs one server, not a cluster".into()));
            }
            self.round(Some(patience)).await
        })
        .await
    }

    /// Repeats something for as long as a try may take, until a server answers.
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

    // For its locks

    /// Returns whether it is a session of this backend.
    pub fn is_of(&self, backend: &Backend) -> bool {
        matches!(backend, Backend::Server(server) if Arc::ptr_eq(server, &self.server))
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Fails if it is not open.
    pub fn check(&self) -> Result<(), Error> {
        let phase = *self.phase.borrow();
        let kept = self.kept();
        match phase {
            Phase::Open if Instant::now() < kept.until => Ok(()),
            Phase::Closed | Phase::Opening => Err(Error::SessionEnded("it was closed".to_owned())),
            Phase::Open | Phase::Lost => {
                let because = kept.failure.as_ref().map(|failure| format!(": {failure}")).unwrap_or_default();
                Err(Error::SessionEnded(format!("no heartbeat was confirmed within its timeout{because}")))
            }
        }
    }

    /// Returns the lease of a lock.
    pub fn lease(&self, lease: Duration) -> Duration {
        lease.max(LEASES * self.timeout)
    }

    pub fn openings(&self) -> u64 {
        self.kept().openings
    }

    /// The server does not know it. The next heartbeat, which opens it again, is due.
    pub fn missing(&self) {
        let mut kept = self.kept();
        (kept.due, kept.beaten) = (Instant::now(), true);
        drop(kept);
        self.wake.notify_one();
    }

    /// Takes a lock that was granted, when the session had been opened this often. It is lost already if the session is.
    pub fn join(self: &Arc<Self>, bind: Commands, openings: u64) -> Binding {
        let is_open = self.check().is_ok();
        let mut kept = self.kept();
        let (number, until, must_bind) = (kept.next, kept.until, openings != kept.openings);
        kept.next += 1;
        let (lost, receiver) = watch::channel(!is_open);
        if is_open {
            kept.bindings.insert(number, Bound { bind, unbound: must_bind.then_some(until), lost });
        }
        drop(kept);
        // It may have ended meanwhile.
        if *self.phase.borrow() != Phase::Open {
            self.lose([number]);
        }
        if must_bind {
            self.missing();
        }
        Binding { session: self.clone(), number, lost: receiver }
    }

    /// Adds releases that failed.
    pub fn owe(&self, releases: Commands) {
        if *self.phase.borrow() == Phase::Open {
            self.kept().owed.push(releases);
        }
    }

    fn until(&self, number: u64) -> Instant {
        let kept = self.kept();
        match kept.bindings.get(&number) {
            Some(bound) => bound.unbound.map_or(kept.until, |unbound| unbound.min(kept.until)),
            None => Instant::now(),
        }
    }

    // The course of time

    /// Returns when something is due.
    fn next(&self) -> Instant {
        let kept = self.kept();
        let due = (!self.manual || kept.beaten).then_some(kept.due);
        let unbound = kept.bindings.values().filter_map(|bound| bound.unbound);
        unbound.chain(due).min().map_or(kept.until, |next| next.min(kept.until))
    }

    /// Returns whether a heartbeat must be sent. Loses the locks that are not certain any more.
    fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut kept = self.kept();
        if now >= kept.until {
            drop(kept);
            self.end(Phase::Lost);
            return false;
        }
        let is_late = |bound: &Bound| bound.unbound.is_some_and(|unbound| now >= unbound);
        let late: Vec<u64> =
            kept.bindings.iter().filter(|(_, bound)| is_late(bound)).map(|(number, _)| *number).collect();
        let due = now >= kept.due && (!self.manual || kept.beaten);
        if due {
            kept.beaten = false;
        }
        drop(kept);
        self.lose(late);
        due
    }

    /// A round has ended. If something is left to do, the next one follows soon.
    fn went(&self, outcome: Result<(), Fault>) {
        let mut kept = self.kept();
        kept.failure = outcome.err().map(|fault| fault.cause().to_string());
        if kept.failure.is_some() || kept.bindings.values().any(|bound| bound.unbound.is_some()) {
            let pause = (self.timeout / 30).min(LONGEST_PAUSE);
            (kept.due, kept.beaten) = ((Instant::now() + pause).min(kept.until), true);
        }
    }

    /// Ends the session and loses its locks. False: it was not open.
    fn end(&self, phase: Phase) -> bool {
        let was_open = self.phase.send_if_modified(|before| {
            let was_open = *before == Phase::Open;
            *before = phase;
            was_open
        });
        let bindings = std::mem::take(&mut self.kept().bindings);
        for bound in bindings.into_values() {
            bound.lost.send_replace(true);
        }
        self.wake.notify_one();
        was_open
    }

    fn lose(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let bound = self.kept().bindings.remove(&number);
            if let Some(bound) = bound {
                bound.lost.send_replace(true);
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing that is done with it panics half-way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends heartbeats until the session is over.
async fn beat(session: Weak<Inner>, wake: Arc<Notify>) {
    loop {
        let next = match session.upgrade() {
            Some(session) if *session.phase.borrow() == Phase::Open => session.next(),
            _ => return,
        };
        tokio::select! {
            () = sleep_until(next.into()) => {}
            () = wake.notified() => {}
        }
        let Some(session) = session.upgrade() else { return };
        if *session.phase.borrow() == Phase::Open && session.is_due() {
            let until = session.kept().until;
            let outcome = timeout_at(until.into(), session.round(None)).await;
            session.went(outcome.unwrap_or_else(|_| Err(Fault::OutcomeUnknown("no reply in time".into()))));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if *self.phase.borrow() == Phase::Open {
            let (server, id) = (self.server.clone(), self.id.clone());
            self.server.cleanups.spawn(&self.runtime, async move {
                while server.close_session(&id, TRY).await.is_err() {
                    sleep(PAUSE).await;
                }
            });
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

/// The lease of each lock is at least this many times the session's timeout. The server renews it when a third has
/// passed, so a hold that lost its session outlives the guard's belief in it.
const LEASES: u32 = 3;

/// The shortest and the longest timeout on the server.
const SHORTEST: Duration = Duration::from_millis(300);
const LONGEST: Duration = Duration::from_secs(3600);

/// For how long opening and closing look for a server, and how late its answer may come.
const TRY: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_millis(150);

/// Between two attempts at that, and at most between two heartbeats of which the first failed.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
