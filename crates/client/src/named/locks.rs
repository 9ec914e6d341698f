//! How a session binds its locks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::{Binding, Commands, Inner, ONE_SERVER, Phase};
use crate::backend::Backend;
use crate::binding::{Bound, Cap};
use crate::error::Error;
use crate::options::Hold;
use crate::server::Fault;

/// The id of the session on its server, sent with each request for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    /// The session's name there.
    pub id: String,
    heart: String,
    /// How often it had been opened there.
    openings: u64,
}

/// A hold with all that is needed to bind it again.
pub(crate) struct BoundHold {
    pub names: Vec<Vec<u8>>,
    pub owner: String,
    pub token: u64,
}

impl BoundHold {
    pub fn of(hold: &Hold) -> Self {
        Self { names: hold.names.clone(), owner: hold.owner.clone(), token: hold.token }
    }
}

impl Inner {
    /// Returns whether it is a session of this backend.
    pub fn is_of(&self, backend: &Backend) -> bool {
        matches!(backend, Backend::Server(server) if Arc::ptr_eq(server, &self.server))
    }

    /// Fails if it is not open.
    pub fn check(&self) -> Result<(), Error> {
        let phase = *self.phase.borrow();
        let kept = self.kept();
        match phase {
            Phase::Open if kept.latest().is_some_and(|latest| Instant::now() < latest) => Ok(()),
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

    /// Returns what a lock is acquired with. In a cluster, opens the session on the node that has the key, if it is not.
    pub async fn ticket(self: &Arc<Self>, key: &[u8], patience: Duration) -> Result<Ticket, Fault> {
        let name = if self.kept().in_cluster { self.heart_of(key, patience).await? } else { ONE_SERVER.to_owned() };
        let kept = self.kept();
        let heart = kept.hearts.get(&name).ok_or_else(|| Fault::Later("the session has ended there".into()))?;
        Ok(Ticket { id: heart.id.clone(), openings: heart.openings, heart: name })
    }

    /// Records that a server does not know the session. The next heartbeat, which opens it again, is due.
    pub fn missing(&self) {
        let now = Instant::now();
        self.kept().hearts.values_mut().for_each(|heart| heart.hurry(now));
    }

    /// Takes a lock that was granted with this ticket until then, if nothing more is heard. It is lost already if the session is.
    pub fn join(self: &Arc<Self>, hold: &Hold, ticket: Ticket, granted_until: Instant) -> Binding {
        let is_open = self.check().is_ok();
        let mut kept = self.kept();
        let (number, now) = (kept.next, Instant::now());
        kept.next += 1;
        let heart = kept.hearts.get(&ticket.heart).filter(|heart| is_open && heart.until.is_some());
        let (lost, receiver) = watch::channel(heart.is_none());
        let must_bind = heart.is_some_and(|heart| heart.openings != ticket.openings);
        if let Some(until) = heart.and_then(|heart| heart.until) {
            let (hold, unbound) = (Arc::new(BoundHold::of(hold)), must_bind.then_some(until.max(now)));
            let cap = Cap::Unknown { granted_until, ask: now + granted_until.saturating_duration_since(now) / 3 };
            kept.bindings.insert(number, Bound { hold, heart: ticket.heart, unbound, cap, lost });
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

    /// Returns until when a lock is certain; the present if it is lost.
    pub(super) fn until(&self, number: u64) -> Instant {
        self.kept().until(number).unwrap_or_else(Instant::now)
    }
}

/// The lease of each lock is at least this many times the session's timeout. The server renews it when a third has
/// passed, so a hold that lost its session outlives the guard's belief in it.
const LEASES: u32 = 3;
