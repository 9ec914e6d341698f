//! An acquisition, until it is awaited.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::backend::{Backend, no_stay};
use crate::error::Error;
use crate::guard::Guard;
use crate::limits::Limits;
use crate::named::Session;
use crate::options::{Keep, Replicas, Terms, Wait, certain_lease, whole_millis};
use crate::owner::Naming;

/// A lock to be acquired: await it to get a [`Guard`].
///
/// A request waits in the queue until it is granted, unless told otherwise. Dropping the future leaves the queue; if
/// the grant comes in the same moment, it is released in the background, or lapses with its lease.
#[derive(Clone)]
#[must_use = "nothing happens until it is awaited"]
pub struct Acquire {
    backend: Backend,
    terms: Terms,
}

impl Acquire {
    pub(crate) fn new(backend: Backend, terms: Terms) -> Self {
        Self { backend, terms }
    }

    /// Sets how long the server keeps the lock after it last heard from this process: 30 s unless set, 3 ms to 365
    /// days, and at least 300 ms for a session. With a longer lease, others wait longer after a crash; with a shorter
    /// one, a shorter outage of the network loses the lock.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = lease;
        self
    }

    /// Waits in the queue for at most this time (to the millisecond). Zero: does not wait. An outage counts as waiting:
    /// the client looks for a server until the wait is over, and the error is then [`Error::Unreachable`]. The error
    /// comes at most 250 ms after the end of the wait; replicas have their own time in addition.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.terms.wait = if wait.is_zero() { Wait::Not } else { Wait::AtMost(wait) };
        self
    }

    /// Does not wait in the queue: if the lock is not free, the result is [`Error::Contention`].
    pub fn no_wait(mut self) -> Self {
        self.terms.wait = Wait::Not;
        self
    }

    /// Sets how long an outage may last. Without a limit of the wait: how long the client looks for a server after the
    /// last answer, 30 s unless set; a waiting request asks for a sign of life meanwhile. Without waiting: how long the
    /// client waits for an answer, 1 s unless set. Has no effect with [`wait`](Acquire::wait), where an outage counts
    /// as waiting.
    pub fn outage(mut self, limit: Duration) -> Self {
        self.terms.outage = Some(limit);
        self
    }

    /// Counts the grant and each renewal only if that many replicas acknowledge them within the timeout (`WAIT`). The
    /// timeout for a grant is cut to what is left of the wait. If fewer replicas acknowledge it, the grant is released,
    /// and the error is [`Error::TooFewReplicas`]. A renewal counts as failed then, so that the guard is lost when the
    /// lease has passed since the last renewal that was acknowledged.
    ///
    /// A failover is then less likely to lose the lock, and still can: the server may promote a replica that has not
    /// acknowledged. Only the fencing token protects against that. Zero replicas is the default. Not for a quorum,
    /// whose servers are independent.
    pub fn replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.terms.replicas = (count > 0).then_some(Replicas { count, timeout });
        self
    }

    /// Begins the owner with this label, which inspection and the log of the server show: it says who holds the lock,
    /// as in `web-1:4711`. A colon and 16 random hexadecimal digits follow, because each acquisition has an owner of
    /// its own. At most 256 bytes. Without a label, the owner is `HOST:PID:NUMBER:RANDOM`, at most 64 bytes. An upgrade
    /// keeps the owner of its reader.
    pub fn owner_label(mut self, label: impl Into<String>) -> Self {
        if !matches!(self.terms.naming, Naming::OfHold(_)) {
            self.terms.naming = Naming::Labeled(label.into());
        }
        self
    }

    /// Does not renew the lease: the lock is lost when it ends, unless [`Guard::renew`] or [`Guard::extend`] is called.
    pub fn no_renewal(mut self) -> Self {
        self.terms.keep = Keep::Nobody;
        self
    }

    /// Limits how long the lock is held: the lock is lost this long after its grant, however often it is renewed, and
    /// [`remaining`](Guard::remaining) counts down to that end. A program that hangs then does not keep its lock
    /// forever. A longer lease is cut to this time. Not for a quorum. The server needs a module that knows `MAXHOLD`.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.terms.max_hold = Some(most);
        self
    }

    /// Keeps the lock for at least this time from its grant, even if it is released earlier, the guard is dropped, or
    /// this process ends. Keeps a job from running again too soon, for example. After a release before that time, the
    /// server holds the lock until then, and nothing renews it; [`Guard::release_after`] with zero frees it at once. 1
    /// ms to 365 days.
    ///
    /// The lease is at least this time from the grant on, so the server must allow it (`dlock.max-lease`). Not for a
    /// quorum, and not with sessions, whose end frees their locks.
    pub fn at_least(mut self, time: Duration) -> Self {
        self.terms.at_least = Some(time);
        self
    }

    /// Binds the lock to a connection of its own: the server renews the lease while that connection is open, and frees
    /// the lock when it closes. Each guard has its own connection. When the connection breaks, the guard binds the lock
    /// to a new one if the server still holds the lock (a failover, `dlock.session-grace`); otherwise the lock is
    /// [`lost`](Guard::lost).
    pub fn session(mut self) -> Self {
        self.terms.keep = Keep::Session;
        self
    }

    /// Binds the lock to a session, which keeps it together with its other locks. The [`lease`](Acquire::lease) is at
    /// least three times the session's timeout. The session must be of the same client.
    pub fn in_session(mut self, session: &Session) -> Self {
        self.terms.keep = Keep::Named;
        self.terms.named = Some(session.inner().clone());
        self
    }

    async fn run(self) -> Result<Guard, Error> {
        let Self { backend, mut terms } = self;
        terms.check()?;
        terms.begin();
        terms.lease = certain_lease(terms.lease)?;
        if let Some(time) = &mut terms.at_least {
            *time = whole_millis(*time)?;
            if let Backend::Quorum(_) = backend {
                return Err(no_stay());
            }
        }
        // A later call than `in_session` may have decided who keeps the lock.
        terms.named.take_if(|_| terms.keep != Keep::Named);
        if let Some(session) = &terms.named {
            if !backend.has(session) {
                return Err(Error::Invalid("the session is of another client".to_owned()));
            }
            session.check()?;
            terms.lease = session.lease(terms.lease);
        }
        if let Some(most) = &mut terms.max_hold {
            *most = certain_lease(*most)?;
            terms.lease = terms.lease.min(*most);
        }
        if let Some(upgrades) = &terms.upgrades {
            let began = Instant::now();
            let (end, server) = (Limits::new(&terms, began).begins_by(), backend.server()?);
            // Boxed: rare, and large.
            let begun = upgrades.begin(end, |last| Box::pin(server.release_left(&terms, last))).await?;
            terms.upgrade = Some(begun);
            if let Wait::AtMost(wait) = &mut terms.wait {
                *wait = wait.saturating_sub(began.elapsed());
            }
        }
        let grant = backend.acquire(&terms).await?;
        let session = terms.named.clone();
        let guard = Guard::new(backend, terms, grant);
        // If the session has ended meanwhile, dropping the guard releases the lock.
        session.map_or(Ok(()), |session| session.check())?;
        Ok(guard)
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { names, mode, lease, keep, wait, .. } = &self.terms;
        let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
        let mut shown = f.debug_struct("Acquire");
        shown.field("names", &names).field("mode", mode).field("lease", lease).field("keep", keep).field("wait", wait);
        shown.finish_non_exhaustive()
    }
}
