//! Locks that one primary decides on.
//!
//! What makes it safe to send everything again when a connection breaks:
//!
//! - each acquisition has an owner of its own and a `REQUEST`, so the repeat of one that was granted gets its token,
//!   and the repeat of one that waits takes its place;
//! - each renewal and release names the `TOKEN`, so a late one finds nothing it could touch;
//! - an acquisition that is given up with its outcome unknown is released by its owner.

mod admin;
mod commands;
mod fault;
mod link;
mod nodes;
mod observe;
mod retry;
mod slot;
mod survey;

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::address::Place;
use crate::error::Error;
use crate::join::join_all;
use crate::login::Setup;
use crate::terms::{Grant, Hold, Keep, Renewal, Replicas, Terms, Wait};
use commands::millis;
pub(crate) use fault::Fault;
pub(crate) use link::Link;
use nodes::{Lane, Nodes, REPLY};
use retry::{PAUSE, RetryState, Sent};

pub(crate) struct Server {
    nodes: Nodes,
}

impl Server {
    pub fn new(place: Place, setup: Setup) -> Self {
        Self { nodes: Nodes::new(place, setup) }
    }

    /// Short commands go over this connection as long as it works.
    pub fn with(place: Place, connection: MultiplexedConnection) -> Self {
        Self { nodes: Nodes::with(place, connection) }
    }

    pub async fn acquire(self: Arc<Self>, terms: &Terms) -> Result<Grant, Error> {
        let mut abandoned = Abandoned { server: Some(self.clone()), terms: terms.clone(), runtime: Handle::current() };
        let mut retry = RetryState::new(terms);
        loop {
            let began = Instant::now();
            let failed = match self.ask_in_time(terms, &mut retry).await {
                Ok(Some(grant)) => {
                    abandoned.server = None;
                    return Ok(grant);
                }
                Ok(None) => Err(Error::Contention),
                Err(fault) => retry.next(fault, began).await,
            };
            if let Err(error) = failed {
                if retry.sent == Sent::Once {
                    abandoned.server = None;
                }
                return Err(error);
            }
        }
    }

    /// A wait with a limit is over then, also if no connection can be made.
    async fn ask_in_time(&self, terms: &Terms, retry: &mut RetryState) -> Result<Option<Grant>, Fault> {
        let Some(left) = retry.left() else { return self.ask_for(terms, retry).await };
        let replicas = terms.replicas.map_or(Duration::ZERO, |replicas| replicas.timeout);
        let patience = left.saturating_add(REPLY * 2).saturating_add(replicas * 2);
        match timeout(patience, self.ask_for(terms, retry)).await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::OutcomeUnknown("no reply in time".into())),
        }
    }

    /// Sends the request once. None: not granted.
    async fn ask_for(&self, terms: &Terms, retry: &mut RetryState) -> Result<Option<Grant>, Fault> {
        let (block, patience) = match (terms.wait, retry.left()) {
            (Wait::Not, _) => (None, Some(REPLY)),
            (Wait::AtMost(_), Some(left)) if left < A_YEAR => (Some(millis(left).max(1)), Some(left + REPLY)),
            _ => (Some(0), None),
        };
        let shares = block.is_none() && terms.keep != Keep::Session && terms.replicas.is_none();
        let lane = if shares { Lane::Shared } else { Lane::Own };
        let mut all = vec![commands::acquire(terms, block)];
        let mut rest = Duration::ZERO;
        if let Some(replicas) = terms.replicas {
            // Redis 7.0.0 to 7.0.11 does not count a grant to a blocked client as its write, and no server counts a
            // repeat that is not executed as one. `WAIT` then waits for nothing. A renewal is a write.
            if block.is_some() || retry.sent == Sent::Again {
                all.extend(commands::confirm(terms));
            }
            all.push(commands::wait(replicas));
            rest = replicas.timeout + REPLY;
        }
        let sent = Instant::now();
        let (replies, link) = self.nodes.call_all(terms.name(), &all, lane, patience, rest).await?;
        let Some(token) = commands::token(replies.first().unwrap_or(&Value::Nil))? else {
            // With something still on its way, a connection is of no use to others.
            if replies.len() == all.len() {
                self.nodes.park(link, lane);
            }
            return Ok(None);
        };
        let session = (terms.keep == Keep::Session).then(|| link.clone());
        let mut grant = Grant { token, until: sent + terms.lease, link: session, kept: None };
        let hold = Hold::new(terms, terms.owner.clone(), &grant);
        if let Some(replicas) = terms.replicas
            && let Err(fault) = commands::acknowledged(replies.last().unwrap_or(&Value::Nil), replicas)
        {
            if !matches!(self.release(&hold, Instant::now() + REPLY).await, Ok(()) | Err(Error::Lost)) {
                retry.sent = Sent::Again;
            }
            return Err(fault);
        }
        if retry.sent == Sent::Again || sent.elapsed() >= terms.lease / 3 {
            // It may have been granted long ago: in the queue nobody knows when the lease began.
            grant.until = match self.renew(&hold, hold.lease).await {
                Renewal::Until(until) => until,
                Renewal::Gone => return Err(Fault::Later("the lease ended before the grant was heard of".into())),
                Renewal::Failed(fault) => return Err(Fault::OutcomeUnknown(fault.cause())),
            };
        }
        if hold.link.is_none() {
            self.nodes.park(link, lane);
        }
        Ok(Some(grant))
    }

    /// One attempt. A session is only looked at, because the server keeps it alive; unless replicas must acknowledge.
    pub async fn renew(&self, hold: &Hold, lease: Duration) -> Renewal {
        let patience = (lease / 6).clamp(Duration::from_millis(50), REPLY);
        let sent = Instant::now();
        let replies = match (hold.replicas, &hold.link) {
            (Some(replicas), _) => self.renew_with_replicas(hold, lease, replicas, patience).await,
            (None, Some(link)) => {
                let checks = hold.names.iter().map(|name| commands::check(hold, name));
                let checks = checks.map(|check| async move { link.ask(&check, Some(patience)).await });
                join_all(checks).await.into_iter().collect()
            }
            (None, None) => {
                let renewals = hold.names.iter().map(|name| self.renew_one(hold, name, lease, patience));
                join_all(renewals).await.into_iter().collect()
            }
        };
        let replies: Vec<Value> = match replies {
            Ok(replies) => replies,
            Err(fault) if fault.is_wrong_type() => return Renewal::Gone,
            Err(fault) => return Renewal::Failed(fault),
        };
        let mut until = sent + lease;
        for reply in &replies {
            match reply {
                Value::Nil => return Renewal::Gone,
                Value::Int(left) if hold.link.is_some() && hold.replicas.is_none() => {
                    until = until.min(sent + Duration::from_millis(u64::try_from(*left).unwrap_or(0)));
                }
                Value::Int(_) => {}
                other => return Renewal::Failed(commands::unexpected(other)),
            }
        }
        Renewal::Until(until)
    }

    async fn renew_one(&self, hold: &Hold, name: &[u8], lease: Duration, patience: Duration) -> Result<Value, Fault> {
        let renew = commands::renew(hold, name, lease);
        self.nodes.call(name, &renew, Lane::Shared, Some(patience)).await.map(|(reply, _)| reply)
    }

    /// Renews, and fails unless enough replicas have it.
    async fn renew_with_replicas(
        &self,
        hold: &Hold,
        lease: Duration,
        replicas: Replicas,
        patience: Duration,
    ) -> Result<Vec<Value>, Fault> {
        let mut all: Vec<_> = hold.names.iter().map(|name| commands::renew(hold, name, lease)).collect();
        all.push(commands::wait(replicas));
        let rest = replicas.timeout + REPLY;
        let mut replies = match &hold.link {
            Some(link) => link.ask_all(&all, Some(patience), rest).await?,
            None => {
                let (replies, link) = self.nodes.call_all(hold.name(), &all, Lane::Own, Some(patience), rest).await?;
                if replies.len() == all.len() {
                    self.nodes.park(link, Lane::Own);
                }
                replies
            }
        };
        let waited = if replies.len() == all.len() { replies.pop() } else { None };
        if let Some(waited) = waited.filter(|_| !replies.contains(&Value::Nil)) {
            commands::acknowledged(&waited, replicas)?;
        }
        Ok(replies)
    }

    /// Gives the hold up. Of several locks, the first error is returned after all were tried.
    pub async fn release(&self, hold: &Hold, until: Instant) -> Result<(), Error> {
        join_all(hold.names.iter().map(|name| self.release_one(hold, name, until))).await.into_iter().collect()
    }

    async fn release_one(&self, hold: &Hold, name: &[u8], until: Instant) -> Result<(), Error> {
        let release = commands::release(hold, name);
        let mut sent = Sent::Once;
        loop {
            let reply = match hold.link.as_ref().filter(|link| !link.is_closed()) {
                Some(link) => link.ask(&release, Some(REPLY)).await,
                None => self.nodes.call(name, &release, Lane::Shared, Some(REPLY)).await.map(|(reply, _)| reply),
            };
            match reply {
                // The first one may have done it.
                Ok(Value::Nil) if sent == Sent::Once => return Err(Error::Lost),
                Ok(_) => return Ok(()),
                Err(fault) if fault.is_wrong_type() => return Err(Error::Lost),
                Err(fault @ Fault::Refused(_)) => return Err(fault.into()),
                Err(fault) if Instant::now() + PAUSE >= until => return Err(fault.into()),
                Err(Fault::OutcomeUnknown(_)) => sent = Sent::Again,
                Err(_) => {}
            }
            sleep(PAUSE).await;
        }
    }

    /// Releases what an acquisition may have been granted without anybody hearing of it.
    async fn release_by_owner(&self, terms: &Terms) {
        join_all(terms.names.iter().map(|name| self.release_by_owner_one(terms, name))).await;
    }

    /// Asks twice, a while apart: what was sent before the connection ended may still be on its way when the first one
    /// comes.
    async fn release_by_owner_one(&self, terms: &Terms, name: &[u8]) {
        let release = commands::release_all(name, terms);
        let end = Instant::now() + terms.lease;
        let mut missed = 0;
        loop {
            match self.nodes.call(name, &release, Lane::Shared, Some(REPLY)).await {
                Ok((Value::Nil, _)) if missed == 0 => missed += 1,
                Ok(_) | Err(Fault::Refused(_)) => return,
                Err(_) if Instant::now() >= end => return,
                Err(_) => {}
            }
            sleep(STRAGGLER).await;
        }
    }
}

/// Dropped with its server: the outcome of the acquisition is unknown.
struct Abandoned {
    server: Option<Arc<Server>>,
    terms: Terms,
    runtime: Handle,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let terms = self.terms.clone();
            terms.upgrade.iter().for_each(|upgrade| upgrade.give_up());
            self.runtime.spawn(async move { server.release_by_owner(&terms).await });
        }
    }
}

/// How late a request may come that was sent just before its connection ended.
const STRAGGLER: Duration = Duration::from_secs(1);

/// A longer wait is one without a limit, for the server.
const A_YEAR: Duration = Duration::from_secs(365 * 86400);
