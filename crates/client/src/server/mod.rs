//! Locks that one primary decides on.
//!
//! What makes it safe to send everything again when a connection breaks:
//!
//! - each acquisition has an owner of its own and a `REQUEST`, so the repeat of one that was granted gets its token, and
//!   the repeat of one that waits takes its place;
//! - each renewal and release names the `TOKEN`, so a late one finds nothing it could touch;
//! - an acquisition that is given up with its outcome unknown is released by its owner.

mod admin;
mod fault;
mod link;
mod nodes;
mod slot;

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::address::Place;
use crate::error::Error;
use crate::terms::{Grant, Hold, Keep, Mode, Renewal, Terms, Wait};
pub(crate) use fault::Fault;
pub(crate) use link::Link;
use nodes::{Lane, Nodes, REPLY};

pub(crate) struct Server {
    nodes: Nodes,
}

impl Server {
    pub fn new(place: Place) -> Self {
        Self { nodes: Nodes::new(place) }
    }

    pub async fn acquire(self: Arc<Self>, terms: &Terms) -> Result<Grant, Error> {
        let mut abandoned = Abandoned { server: Some(self.clone()), terms: terms.clone(), runtime: Handle::current() };
        let mut course = Course::new(terms.wait);
        loop {
            let began = Instant::now();
            let failed = match self.ask_for(terms, &course).await {
                Ok(Some(grant)) => {
                    abandoned.server = None;
                    return Ok(grant);
                }
                Ok(None) => Err(Error::Contention),
                Err(fault) => course.next(fault, began).await,
            };
            if let Err(error) = failed {
                if course.sent == Sent::Once {
                    abandoned.server = None;
                }
                return Err(error);
            }
        }
    }

    /// Sends the request once. None: not granted.
    async fn ask_for(&self, terms: &Terms, course: &Course) -> Result<Option<Grant>, Fault> {
        let (block, patience) = match (terms.wait, course.left()) {
            (Wait::Not, _) => (None, Some(REPLY)),
            (Wait::ForEver, _) | (_, None) => (Some(0), None),
            (Wait::AtMost(_), Some(left)) => (Some(millis(left).max(1)), Some(left + REPLY)),
        };
        let lane = if block.is_none() && terms.keep == Keep::Renewal { Lane::Shared } else { Lane::Own };
        let sent = Instant::now();
        let (reply, link) = self.nodes.call(&terms.name, &request(terms, block), lane, patience).await?;
        let Some(token) = token(&reply)? else {
            self.nodes.park(link, lane);
            return Ok(None);
        };
        let session = (terms.keep == Keep::Session).then(|| link.clone());
        let Terms { name, owner, lease, .. } = terms.clone();
        let hold = Hold { name, owner, token, lease, link: session, kept: None };
        let until = if course.sent == Sent::Once && sent.elapsed() < lease / 3 {
            sent + lease
        } else {
            // It may have been granted long ago: in line nobody knows when the lease began.
            match self.renew(&hold).await {
                Renewal::Until(until) => until,
                Renewal::Gone => return Err(Fault::Later("the lease ended before the grant was heard of".to_owned())),
                Renewal::Failed(why) => return Err(Fault::Cut(why)),
            }
        };
        if hold.link.is_none() {
            self.nodes.park(link, lane);
        }
        Ok(Some(Grant { token, until, link: hold.link, kept: None }))
    }

    /// One attempt. A session is only looked at: the server keeps it alive.
    pub async fn renew(&self, hold: &Hold) -> Renewal {
        let patience = (hold.lease / 6).clamp(Duration::from_millis(50), REPLY);
        let sent = Instant::now();
        let reply = match &hold.link {
            Some(link) => link.ask(cmd("DLOCK.CHECK").arg(&hold.name).arg(hold.token), Some(patience)).await,
            None => {
                let mut renew = cmd("DLOCK.RENEW");
                renew.arg(&hold.name).arg(&hold.owner).arg("PX").arg(millis(hold.lease)).arg("TOKEN").arg(hold.token);
                self.nodes.call(&hold.name, &renew, Lane::Shared, Some(patience)).await.map(|(reply, _)| reply)
            }
        };
        match reply {
            Ok(Value::Nil) => Renewal::Gone,
            Ok(Value::Int(left)) if hold.link.is_some() => {
                Renewal::Until(sent + Duration::from_millis(u64::try_from(left).unwrap_or(0)))
            }
            Ok(Value::Int(_)) => Renewal::Until(sent + hold.lease),
            Ok(other) => Renewal::Failed(format!("an unexpected reply: {other:?}")),
            // Something else was written over the key.
            Err(Fault::Refused(why)) if why.starts_with("WRONGTYPE") => Renewal::Gone,
            Err(fault) => Renewal::Failed(fault.why()),
        }
    }

    pub async fn release(&self, hold: &Hold, until: Instant) -> Result<(), Error> {
        let mut release = cmd("DLOCK.RELEASE");
        release.arg(&hold.name).arg(&hold.owner).arg("TOKEN").arg(hold.token);
        let mut sent = Sent::Once;
        loop {
            let reply = match hold.link.as_ref().filter(|link| !link.is_closed()) {
                Some(link) => link.ask(&release, Some(REPLY)).await,
                None => self.nodes.call(&hold.name, &release, Lane::Shared, Some(REPLY)).await.map(|(reply, _)| reply),
            };
            match reply {
                // The first one may have done it.
                Ok(Value::Nil) if sent == Sent::Once => return Err(Error::Lost),
                Ok(_) => return Ok(()),
                Err(Fault::Refused(why)) if why.starts_with("WRONGTYPE") => return Err(Error::Lost),
                Err(Fault::Refused(why)) => return Err(Error::Refused(why)),
                Err(fault) if Instant::now() + PAUSE >= until => return Err(fault.into()),
                Err(Fault::Cut(_)) => sent = Sent::Again,
                Err(_) => {}
            }
            sleep(PAUSE).await;
        }
    }

    /// Releases what an acquisition may have been granted without anybody hearing of it. Asks twice, a while apart:
    /// what was sent before the connection ended may still be on its way when the first one comes.
    async fn release_by_owner(&self, terms: &Terms) {
        let mut release = cmd("DLOCK.RELEASE");
        release.arg(&terms.name).arg(&terms.owner).arg("ALL");
        let end = Instant::now() + terms.lease;
        let mut missed = 0;
        loop {
            match self.nodes.call(&terms.name, &release, Lane::Shared, Some(REPLY)).await {
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
            self.runtime.spawn(async move { server.release_by_owner(&terms).await });
        }
    }
}

/// Whether a command was sent before with its outcome unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Once,
    Again,
}

/// How an acquisition gets on, and whether to go on after a fault.
struct Course {
    wait: Wait,
    began: Instant,
    /// Since when nothing but faults has come.
    failing: Option<Instant>,
    pause: Duration,
    sent: Sent,
}

impl Course {
    fn new(wait: Wait) -> Self {
        Self { wait, began: Instant::now(), failing: None, pause: PAUSE, sent: Sent::Once }
    }

    /// What is left of the wait, if it has an end.
    fn left(&self) -> Option<Duration> {
        match self.wait {
            Wait::Not => Some(Duration::ZERO),
            Wait::AtMost(wait) => Some(wait.saturating_sub(self.began.elapsed())),
            Wait::ForEver => None,
        }
    }

    /// Waits a little before the next attempt, if there is to be one after the one that began then.
    async fn next(&mut self, fault: Fault, began: Instant) -> Result<(), Error> {
        match &fault {
            Fault::Refused(_) => return Err(fault.into()),
            // Nobody there from the beginning: the address is wrong, or the server is down.
            Fault::NoWay(_) if self.failing.is_none() && self.sent == Sent::Once => return Err(fault.into()),
            Fault::Cut(_) => self.sent = Sent::Again,
            Fault::NoWay(_) | Fault::Later(_) | Fault::Moved(..) | Fault::Ask(_) => {}
        }
        // An attempt that got into line is no part of a row of failures.
        if began.elapsed() > LASTED {
            (self.failing, self.pause) = (None, PAUSE);
        }
        let failing = self.failing.get_or_insert_with(Instant::now).elapsed();
        let over = match self.wait {
            Wait::Not => failing > REPLY,
            Wait::AtMost(wait) => failing > FAILING || self.began.elapsed() > wait,
            Wait::ForEver => failing > FAILING,
        };
        if over {
            return Err(fault.into());
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Ok(())
    }
}

fn request(terms: &Terms, block: Option<u64>) -> Cmd {
    let mut request = cmd(match terms.mode {
        Mode::Exclusive => "DLOCK.ACQUIRE",
        Mode::Read => "DLOCK.RLOCK",
        Mode::Write => "DLOCK.WLOCK",
    });
    request.arg(&terms.name).arg(&terms.owner).arg("PX").arg(millis(terms.lease));
    // The owner makes one request only.
    request.arg("REQUEST").arg("1");
    if let Some(block) = block {
        request.arg("BLOCK").arg(block);
    }
    if terms.keep == Keep::Session {
        request.arg("SESSION");
    }
    request
}

fn token(reply: &Value) -> Result<Option<u64>, Fault> {
    match reply {
        Value::Nil => Ok(None),
        Value::Int(token) if *token > 0 => Ok(Some(token.unsigned_abs())),
        other => Err(Fault::Refused(format!("an unexpected reply: {other:?}"))),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Between two attempts, at first and at most.
const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// For how long a server that was there is looked for, if the wait is not over before. A failover takes less.
const FAILING: Duration = Duration::from_secs(30);

/// What takes longer than to fail to connect was more than a failure.
const LASTED: Duration = Duration::from_secs(5);

/// How late a request may come that was sent just before its connection ended.
const STRAGGLER: Duration = Duration::from_secs(1);
