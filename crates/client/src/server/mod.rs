//! Locks that one primary decides on.
//!
//! Everything may be sent again when a connection breaks, because:
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
mod sessions;
mod slot;
mod stay;
mod survey;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::time::{sleep, sleep_until, timeout, timeout_at};

use crate::cleanup::{self, Cleanups};
use crate::error::Error;
use crate::join::join_all;
use crate::limits::Limits;
use crate::profile::Place;
use crate::profile::Setup;
use crate::session::Session;
use crate::terms::{Grant, Hold, Keep, Renewal, Replicas, Terms, Wait};
use commands::millis;
pub(crate) use fault::Fault;
pub(crate) use link::Link;
use nodes::{At, REPLY};
pub(crate) use nodes::{Lane, Nodes};
use retry::{PAUSE, RetryState, Sent};

pub(crate) struct Server {
    nodes: Nodes,
    pub cleanups: Cleanups,
}

impl Server {
    pub fn new(place: Place, setup: Setup) -> Self {
        Self { nodes: Nodes::new(place, setup), cleanups: Cleanups::default() }
    }

    /// Sends short commands over this connection as long as it works.
    pub fn with(place: Place, connection: MultiplexedConnection) -> Self {
        Self { nodes: Nodes::with(place, connection), cleanups: Cleanups::default() }
    }

    /// Returns the place and the login of the URL.
    pub fn origin(&self) -> (&Place, &Setup) {
        self.nodes.origin()
    }

    pub async fn acquire(self: Arc<Self>, terms: &Terms) -> Result<Grant, Error> {
        let at = Arc::new(At::default());
        let mut abandoned =
            Abandoned { server: Some(self.clone()), terms: terms.clone(), at: at.clone(), runtime: Handle::current() };
        let mut retry = RetryState::new(terms);
        // The connection that was given up last. Its request keeps its place in the queue until the repeat has it. Of a
        // session all of them: a request that arrives late binds the hold to its own.
        let mut left: Vec<Link> = Vec::new();
        loop {
            if let Some(Err(ended)) = terms.named.as_ref().map(|session| session.check()) {
                if retry.sent == Sent::Once {
                    abandoned.server = None;
                }
                return Err(ended);
            }
            let began = Instant::now();
            let failed = match self.attempt(terms, &mut retry, &at).await {
                Ok(Some(grant)) => {
                    abandoned.server = None;
                    grant.session.iter().for_each(|session| session.keep_open(left.drain(..)));
                    return Ok(grant);
                }
                Ok(None) => retry.refused().await,
                Err(Fault::Refused(cause)) if terms.named.is_some() && cause.code() == Some("NOSESSION") => {
                    // The server was restarted, or another one has taken over. The session opens itself again.
                    terms.named.iter().for_each(|session| session.missing());
                    retry.heard = Instant::now();
                    retry.next(Fault::Later(cause), began).await
                }
                Err(fault) => retry.next(fault, began).await,
            };
            if let Err(error) = failed {
                if retry.sent == Sent::Once {
                    abandoned.server = None;
                }
                return Err(error);
            }
            if let Some(link) = at.lock().unwrap_or_else(PoisonError::into_inner).take() {
                left.retain(|other| terms.keep == Keep::Session && !other.is_closed());
                left.push(link);
            }
        }
    }

    /// Asks once, until the time is over or the server is gone. `None`: not granted.
    async fn attempt(&self, terms: &Terms, retry: &mut RetryState, at: &At) -> Result<Option<Grant>, Fault> {
        let RetryState { limits, heard, sent, is_renewal_open: open, .. } = retry;
        let fault = tokio::select! {
            biased;
            answer = self.ask_for(terms, limits, (sent, open), at) => return answer,
            fault = self.look_after(terms, limits, heard, at) => fault,
        };
        if fault.is_none()
            && let Some(link) = &*at.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // It may be dead without a word. The next request has a new one.
            self.nodes.forget(link);
        }
        Err(fault.unwrap_or_else(|| retry.silence()))
    }

    /// Returns when the time is over (`None`), or the server of a request that waits does not answer any more, or
    /// another one is in its place: one that hangs keeps its connections open.
    async fn look_after(&self, terms: &Terms, limits: &Limits, heard: &mut Instant, at: &At) -> Option<Fault> {
        let mut seen: Option<Link> = None;
        let interval = match terms.wait {
            // The answer to the request says it.
            Wait::Not => A_YEAR,
            // A short wait is not worth many questions.
            Wait::AtMost(_) => limits.interval().max(INTERVAL),
            Wait::ForEver => limits.interval(),
        };
        loop {
            let (next, end) = (Instant::now() + interval, limits.end(*heard));
            sleep_until(end.map_or(next, |end| end.min(next)).into()).await;
            if end.is_some_and(|end| end <= next) {
                return None;
            }
            let Some(link) = at.lock().unwrap_or_else(PoisonError::into_inner).clone() else { continue };
            let ping = self.nodes.ping(terms.name());
            let answer = match end {
                Some(end) => timeout_at(end.into(), ping).await.ok()?,
                None => ping.await,
            };
            match answer {
                Ok(now) if now.address() == link.address() && seen.as_ref().is_none_or(|seen| now.is(seen)) => {
                    *heard = Instant::now();
                    seen = Some(now);
                }
                Ok(_) => return Some(Fault::OutcomeUnknown("another server answers".into())),
                Err(fault) => return Some(Fault::OutcomeUnknown(fault.cause().message().into())),
            }
        }
    }

    /// Sends the request once. None: not granted.
    async fn ask_for(
        &self,
        terms: &Terms,
        limits: &Limits,
        (repeat, open): (&mut Sent, &mut bool),
        at: &At,
    ) -> Result<Option<Grant>, Fault> {
        let (block, patience) = block_and_patience(terms, limits);
        let shares = block.is_none() && terms.keep != Keep::Session && terms.replicas.is_none();
        let lane = if shares { Lane::Shared } else { Lane::Own };
        let ticket = match &terms.named {
            Some(session) => Some(session.ticket(terms.name(), REPLY).await?),
            None => None,
        };
        let mut all = vec![commands::acquire(terms, ticket.as_ref(), block)];
        let mut rest = Duration::ZERO;
        if let Some(replicas) = terms.replicas {
            // Redis 7.0.0 to 7.0.11 does not count a grant to a blocked client as its write, and no server counts a
            // repeat that is not executed as one. `WAIT` then waits for nothing. A renewal is a write.
            if block.is_some() || *repeat == Sent::Again {
                all.extend(commands::confirm(terms));
            }
            all.push(commands::wait(replicas));
            rest = replicas.timeout + REPLY;
        }
        let sent = Instant::now();
        let (replies, link) = match self.nodes.call_at(terms.name(), &all, lane, patience, rest, at).await {
            // It may be `WAIT` that was refused, behind a grant.
            Err(fault @ Fault::Refused(_)) if terms.replicas.is_some() => {
                let releases = terms.names.iter().map(|name| async move {
                    let release = commands::release_all(name, terms);
                    self.nodes.call(name, &release, Lane::Shared, Some(REPLY)).await
                });
                if join_all(releases).await.iter().any(|released| !matches!(released, Ok(_) | Err(Fault::Refused(_)))) {
                    *repeat = Sent::Again;
                }
                return Err(fault);
            }
            answered => answered?,
        };
        let Some((token, slot)) = commands::granted(replies.first().unwrap_or(&Value::Nil))? else {
            self.nodes.park(link, lane);
            return Ok(None);
        };
        let session = (terms.keep == Keep::Session).then(|| Arc::new(Session::new(link.clone())));
        let lease = terms.first_lease();
        let mut grant = Grant { token, slot, until: sent + lease, is_renewal_open: *open, session, ticket, kept: None };
        let hold = Hold::new(terms, terms.owner.clone(), &grant);
        if let Some(replicas) = terms.replicas
            && let Err(fault) = commands::acknowledged(replies.last().unwrap_or(&Value::Nil), replicas)
        {
            let before = std::mem::replace(repeat, Sent::Again);
            if matches!(self.release(&hold, Instant::now() + REPLY).await, Ok(()) | Err(Error::Lost)) {
                *repeat = before;
            }
            return Err(fault);
        }
        if *repeat == Sent::Again || sent.elapsed() >= lease / 3 {
            grant.until = self.begin_lease(&hold, lease, open).await?;
        }
        // A program that was stopped meanwhile reads a grant that is over.
        if hold.session.is_none() && grant.until <= Instant::now() {
            *repeat = Sent::Again;
            return Err(Fault::Later("the lease ended before the grant was heard of".into()));
        }
        if hold.session.is_none() {
            self.nodes.park(link, lane);
        }
        Ok(Some(grant))
    }

    /// Renews a hold that may have been granted long ago: in the queue nobody knows when the lease began. Returns the end
    /// of the lease.
    async fn begin_lease(&self, hold: &Hold, lease: Duration, open: &mut bool) -> Result<Instant, Fault> {
        let before = std::mem::replace(open, true);
        let renewal = self.renew(hold, lease, lease).await;
        *open = before || matches!(renewal, Renewal::Failed(Fault::OutcomeUnknown(_)));
        match renewal {
            Renewal::Until(until) => Ok(until),
            Renewal::Gone => Err(Fault::Later("the lease ended before the grant was heard of".into())),
            Renewal::Failed(fault) => Err(Fault::OutcomeUnknown(fault.cause())),
        }
    }

    /// Tries once; the server has at least the lease that is `sure`. Only checks a session, because the server keeps it
    /// alive; unless replicas must acknowledge.
    pub async fn renew(&self, hold: &Hold, lease: Duration, sure: Duration) -> Renewal {
        let patience = (sure / 6).clamp(Duration::from_millis(50), REPLY);
        let sent = Instant::now();
        let replies = match (hold.replicas, &hold.session) {
            (Some(replicas), _) => self.renew_with_replicas(hold, lease, replicas, patience).await,
            (None, Some(session)) => {
                let link = &session.link();
                let checks = hold.names.iter().map(|name| commands::check(hold, name));
                let checks = checks.map(|check| async move { link.ask(&check, Some(patience)).await });
                join_all(checks).await.into_iter().collect()
            }
            (None, None) => {
                let renewals = hold.names.iter().map(|name| self.renew_one(hold, name, lease, patience));
                join_all(renewals).await.into_iter().collect()
            }
        };
        let is_look = hold.session.is_some() && hold.replicas.is_none();
        match replies {
            Ok(replies) if is_look => held_until(&replies, sent, lease),
            Ok(replies) => self.renewed(hold, &replies, (sent, lease), patience).await,
            Err(fault) => failed(fault),
        }
    }

    /// Returns until when a hold with these replies to `RENEW` lasts.
    async fn renewed(
        &self,
        hold: &Hold,
        replies: &[Value],
        (sent, lease): (Instant, Duration),
        patience: Duration,
    ) -> Renewal {
        for reply in replies {
            match reply {
                Value::Nil => return Renewal::Gone,
                Value::Int(_) => {}
                other => return Renewal::Failed(commands::unexpected(other)),
            }
        }
        if !replies.contains(&CUT) {
            return Renewal::Until(sent + lease);
        }
        // It lasts for less than was asked: the server knows for how long.
        let asked = Instant::now();
        let checks = hold.names.iter().map(|name| async move {
            let check = commands::check(hold, name);
            self.nodes.call(name, &check, Lane::Shared, Some(patience)).await.map(|(reply, _)| reply)
        });
        let replies: Result<Vec<Value>, Fault> = join_all(checks).await.into_iter().collect();
        replies.map_or_else(failed, |replies| held_until(&replies, asked, lease))
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
        let replies = match &hold.session {
            Some(session) => session.link().ask_all(&all, Some(patience), rest).await?,
            None => {
                let (replies, link) = self.nodes.call_all(hold.name(), &all, Lane::Own, Some(patience), rest).await?;
                self.nodes.park(link, Lane::Own);
                replies
            }
        };
        acknowledged(replies, all.len(), replicas)
    }

    /// Tries once to bind the hold of a session to a new connection, after the old one has ended.
    pub async fn bind(&self, hold: &Hold, session: &Session) -> Renewal {
        let mut all: Vec<_> = hold.names.iter().map(|name| commands::bind(hold, name)).collect();
        let mut rest = REPLY;
        if let Some(replicas) = hold.replicas {
            all.push(commands::wait(replicas));
            rest += replicas.timeout;
        }
        let (sent, at) = (Instant::now(), At::default());
        let bound = self.nodes.call_at(hold.name(), &all, Lane::Own, Some(REPLY), rest, &at).await;
        if let Err(Fault::OutcomeUnknown(_)) = bound {
            session.keep_open(at.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        let bound = bound.and_then(|(replies, link)| {
            let replies = match hold.replicas {
                Some(replicas) => acknowledged(replies, all.len(), replicas)?,
                None => replies,
            };
            Ok((replies, link))
        });
        match bound {
            Ok((replies, _)) if replies.contains(&Value::Nil) => Renewal::Gone,
            Ok((replies, link)) => {
                session.bind(link);
                self.renewed(hold, &replies, (sent, hold.lease), REPLY).await
            }
            Err(fault) => failed(fault),
        }
    }

    /// Gives the hold up. Of several locks, the first error is returned after all were tried.
    pub async fn release(&self, hold: &Hold, until: Instant) -> Result<(), Error> {
        join_all(hold.names.iter().map(|name| self.release_one(hold, name, until))).await.into_iter().collect()
    }

    async fn release_one(&self, hold: &Hold, name: &[u8], until: Instant) -> Result<(), Error> {
        let releasing = timeout_at(until.into(), self.release_until(hold, name, until)).await;
        releasing.unwrap_or_else(|_| Err(Error::Unreachable("no reply in time".into())))
    }

    async fn release_until(&self, hold: &Hold, name: &[u8], until: Instant) -> Result<(), Error> {
        let release = commands::release(hold, name);
        let mut sent = Sent::Once;
        loop {
            // Its connection may be one to a server that hangs.
            let session = hold.session.as_ref().filter(|_| sent == Sent::Once);
            let reply = match session.and_then(|session| session.bound()) {
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

    /// Releases what an acquisition may have been granted without anybody hearing of it. Its last request was sent on
    /// that connection, which ends.
    async fn undo(&self, terms: &Terms, at: Option<Link>) {
        tokio::join!(release_behind(terms, at), self.release_by_owner(terms));
    }

    async fn release_by_owner(&self, terms: &Terms) {
        join_all(terms.names.iter().map(|name| self.release_by_owner_one(terms, name))).await;
    }

    /// Asks again if it finds nothing: what was sent before the connection ended may still be on its way when the first one
    /// comes.
    async fn release_by_owner_one(&self, terms: &Terms, name: &[u8]) {
        let release = commands::release_all(name, terms);
        let mut stragglers = STRAGGLERS.into_iter();
        loop {
            let pause = match self.nodes.call(name, &release, Lane::Shared, Some(REPLY)).await {
                Ok((Value::Nil, _)) => stragglers.next(),
                Ok(_) | Err(Fault::Refused(_)) => return,
                Err(_) => Some(PAUSE * 5),
            };
            let Some(pause) = pause else { return };
            sleep(pause).await;
        }
    }
}

/// Sends the releases behind a request, and ends the connection: whenever the server executes the request, it executes
/// them, too. Until it has heard of the end, it may grant the lock to this connection.
async fn release_behind(terms: &Terms, at: Option<Link>) {
    // The next upgrade of a reader has the same owner, and may be granted by then.
    let Some(link) = at.filter(|link| !link.is_closed() && terms.upgrade.is_none()) else { return };
    let releases = terms.names.iter().map(|name| commands::release_all(name, terms));
    let link = &link;
    join_all(releases.map(|release| async move { link.ask(&release, Some(WRITTEN)).await })).await;
}

/// The reply to a `RENEW` that a cap cut.
const CUT: Value = Value::Int(0);

/// Returns until when a hold with these replies to `CHECK`, the milliseconds left, lasts: at most a lease.
fn held_until(replies: &[Value], sent: Instant, lease: Duration) -> Renewal {
    let mut until = sent + lease;
    for reply in replies {
        match reply {
            Value::Nil => return Renewal::Gone,
            Value::Int(left) => until = until.min(sent + Duration::from_millis(u64::try_from(*left).unwrap_or(0))),
            other => return Renewal::Failed(commands::unexpected(other)),
        }
    }
    Renewal::Until(until)
}

fn failed(fault: Fault) -> Renewal {
    if fault.is_wrong_type() { Renewal::Gone } else { Renewal::Failed(fault) }
}

/// Returns the replies without that to `WAIT`, if enough replicas have the write.
fn acknowledged(mut replies: Vec<Value>, sent: usize, replicas: Replicas) -> Result<Vec<Value>, Fault> {
    let waited = if replies.len() == sent { replies.pop() } else { None };
    if let Some(waited) = waited.filter(|_| !replies.contains(&Value::Nil)) {
        commands::acknowledged(&waited, replicas)?;
    }
    Ok(replies)
}

/// Returns how long the server blocks the request, in ms, and how long the client then waits for the reply.
fn block_and_patience(terms: &Terms, limits: &Limits) -> (Option<u64>, Option<Duration>) {
    match (terms.wait, limits.left()) {
        (Wait::Not, _) => (None, Some(REPLY)),
        (Wait::AtMost(_), Some(left)) if left < A_YEAR => (Some(millis(left).saturating_add(1)), None),
        _ => (Some(0), None),
    }
}

/// Dropped with its server: the outcome of the acquisition is unknown.
struct Abandoned {
    server: Option<Arc<Server>>,
    terms: Terms,
    at: Arc<At>,
    runtime: Handle,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let terms = self.terms.clone();
            let at = self.at.lock().unwrap_or_else(PoisonError::into_inner).take();
            terms.upgrade.iter().for_each(|upgrade| upgrade.give_up());
            let cleanups = server.cleanups.clone();
            cleanups.spawn(&self.runtime, async move {
                let released = timeout(cleanup::LIMIT * 4 / 5, server.undo(&terms, at)).await;
                if let (Err(_), Some(session)) = (released, &terms.named) {
                    session.owe(Server::releases_of(&terms));
                }
            });
        }
    }
}

/// How long a command on a connection that is about to end may take to be written.
const WRITTEN: Duration = Duration::from_millis(10);

/// How late a request may come that was sent just before its connection ended: on the same machine, and at most.
const STRAGGLERS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// Between two looks at the server of a wait that has an end, at least.
const INTERVAL: Duration = Duration::from_secs(1);

/// A longer wait is one without a limit, for the server.
const A_YEAR: Duration = Duration::from_secs(365 * 86400);
