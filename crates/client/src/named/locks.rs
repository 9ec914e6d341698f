//! How a session binds its locks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use super::{Binding, Inner, ONE_SERVER, Phase};
use crate::binding::{Bound, BoundHold, Cap, Owed, Ticket};
use crate::error::Error;
use crate::server::fault::Fault;
use crate::server::{LATEST, Server};

impl Inner {
    /// Returns whether this is a session of this server's client.
    pub fn is_of(&self, server: &Arc<Server>) -> bool {
        Arc::ptr_eq(server, &self.server)
    }

    /// Fails if the session is not open.
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

    /// Returns the lease of a lock: the one that was asked for, or a longer one if the timeout requires it.
    pub fn lease(&self, lease: Duration) -> Duration {
        lease.max(LEASES * self.timeout)
    }

    /// Returns the ticket to acquire a lock with. In a cluster, first opens the session on the node of the key if
    /// necessary.
    pub async fn ticket(self: &Arc<Self>, key: &[u8], within: Duration) -> Result<Ticket, Fault> {
        let name = if self.kept().in_cluster { self.heart_of(key, within).await? } else { ONE_SERVER.to_owned() };
        let kept = self.kept();
        let heart = kept.hearts.get(&name).ok_or_else(|| Fault::Later("the session has ended there".into()))?;
        Ok(Ticket { id: heart.id.clone(), openings: heart.openings, heart: name })
    }

    /// Records that a server does not know the session. The next heartbeat, which opens it again, is due at once.
    pub fn missing(&self) {
        let now = Instant::now();
        self.kept().hearts.values_mut().for_each(|heart| heart.hurry(now, self.timeout));
    }

    /// Binds a lock that was granted with this ticket until `granted_until`. The lock is lost already if the session
    /// is.
    pub fn join(self: &Arc<Self>, hold: BoundHold, ticket: Ticket, granted_until: Instant) -> Binding {
        let is_open = self.check().is_ok();
        let mut kept = self.kept();
        let (number, now) = (kept.next, Instant::now());
        kept.next += 1;
        let heart = kept.hearts.get(&ticket.heart).filter(|heart| is_open && heart.until().is_some());
        let (lost, receiver) = watch::channel(heart.is_none());
        let unbound = heart.and_then(|heart| heart.unbound(&ticket));
        if heart.is_some() {
            let hold = Arc::new(hold);
            let cap = Cap::Unknown { granted_until, ask: now + granted_until.saturating_duration_since(now) / 3 };
            kept.bindings.insert(number, Bound { hold, heart: ticket.heart, unbound, cap, lost });
        }
        drop(kept);
        // The session may have ended meanwhile.
        if *self.phase.borrow() != Phase::Open {
            self.lose([number]);
        }
        if unbound.is_some() {
            self.missing();
        }
        Binding { session: self.clone(), number, lost: receiver }
    }

    /// Repeats releases that failed until the server has executed them or the session has ended: it would keep the
    /// holds. Then releases once more: the request whose hold they release may have been behind them.
    pub fn owe(self: &Arc<Self>, owed: Owed) {
        let (session, mut phase) = (Arc::downgrade(self), self.phase.subscribe());
        self.runtime.spawn(async move {
            let (mut is_last, mut pause) = (false, AGAIN);
            while let Some(session) = session.upgrade().filter(|session| *session.phase.borrow() == Phase::Open) {
                let is_released = session.server.release_owed(&owed, session.answer_within()).await;
                if is_released && is_last {
                    return;
                }
                drop(session);
                is_last = is_released;
                let next = if is_last { LATEST } else { pause };
                pause = (pause * 2).min(MOST);
                // Ends early with the session.
                _ = timeout(next, phase.wait_for(|phase| *phase != Phase::Open)).await;
            }
        });
    }

    /// Returns until when a lock is certain; the present if it is lost.
    pub(super) fn until(&self, number: u64) -> Instant {
        self.kept().until(number).unwrap_or_else(Instant::now)
    }
}

/// The lease of each lock is at least this many times the session's timeout. The server renews it when a third has
/// passed, so at least two timeouts remain when a session is lost: the hold ends after its guard is lost.
const LEASES: u32 = 3;

/// The pause before a release is repeated, at first and at most.
const AGAIN: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(2);
