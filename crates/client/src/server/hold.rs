//! Renews a hold, asks how long it lasts, binds it again and releases it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tokio::time::{sleep, timeout_at};

use super::Server;
use super::acquire::PAUSE;
use super::commands;
use super::fault::Fault;
use super::in_flight::InFlight;
use super::link::Link;
use super::nodes::{Lane, REPLY};
use super::releasing::{LATEST, Releasing};
use crate::error::Error;
use crate::holding::Hold;
use crate::join::join_all;
use crate::options::{Replicas, Terms};
use crate::renewal::Renewal;
use crate::session::Session;
use crate::upgrade::Upgrade;

impl Server {
    /// Tries once to renew.
    pub async fn renew(&self, hold: &Hold, lease: Duration, within: Duration) -> Renewal {
        self.renew_for(hold.replicas, hold, lease, within).await
    }

    /// Tries once to renew, with `replicas` instead of the hold's own: their timeout may be cut to the rest of a wait.
    pub(super) async fn renew_for(
        &self,
        replicas: Option<Replicas>,
        hold: &Hold,
        lease: Duration,
        within: Duration,
    ) -> Renewal {
        let replies = match replicas {
            Some(replicas) => self.renew_with_replicas(hold, lease, replicas, within).await,
            None => {
                let renewals = hold.names.iter().map(|name| self.renew_one(hold, name, lease, within));
                join_all(renewals).await.into_iter().collect()
            }
        };
        renewed(replies)
    }

    /// Asks once how long a hold lasts. For the hold of a session, asks on the session's connection.
    pub async fn look(&self, hold: &Hold, within: Duration) -> Renewal {
        let link = hold.session.as_ref().map(|session| session.link());
        let checks = hold.names.iter().map(|name| {
            let (check, link) = (commands::check(hold, name), link.as_ref());
            async move {
                match link {
                    Some(link) => link.ask(&check, Some(within)).await,
                    None => self.nodes.call(name, &check, Lane::Shared, Some(within)).await.map(|(reply, _)| reply),
                }
            }
        });
        left(join_all(checks).await.into_iter().collect())
    }

    async fn renew_one(&self, hold: &Hold, name: &[u8], lease: Duration, within: Duration) -> Result<Value, Fault> {
        let renew = commands::renew(hold, name, lease);
        self.nodes.call(name, &renew, Lane::Shared, Some(within)).await.map(|(reply, _)| reply)
    }

    /// Renews, and fails unless enough replicas have the renewal.
    async fn renew_with_replicas(
        &self,
        hold: &Hold,
        lease: Duration,
        replicas: Replicas,
        within: Duration,
    ) -> Result<Vec<Value>, Fault> {
        let mut all: Vec<_> = hold.names.iter().map(|name| commands::renew(hold, name, lease)).collect();
        all.push(commands::wait(replicas));
        let rest = replicas.timeout + REPLY;
        let replies = match &hold.session {
            Some(session) => session.link().ask_all(&all, Some(within), rest, &AtomicBool::default()).await?,
            None => {
                let (replies, link) = self.nodes.call_all(hold.name(), &all, Lane::Own, Some(within), rest).await?;
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
        if session.bound().is_none() {
            self.nodes.forget_free(&session.link());
        }
        let at = InFlight::default();
        let bound = self.nodes.call_at(hold.name(), &all, Lane::Own, Some(REPLY), rest, &at).await;
        match &bound {
            // The server may execute the command later, and then releases the hold, because its connection has ended.
            Err(fault) if fault.has_ended_connection() => return Renewal::Gone,
            Err(Fault::OutcomeUnknown(_)) => session.keep_open(at.take_link()),
            _ => {}
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
                renewed(Ok(replies))
            }
            Err(fault) => failed(fault),
        }
    }

    /// Releases the hold. Of several locks, tries all and returns the first error. `was_held`: the server certainly had
    /// the hold before the first try.
    pub async fn release(&self, hold: &Hold, was_held: bool, until: Instant) -> Result<(), Error> {
        let releases = hold.names.iter().map(|name| self.release_one(hold, name, was_held, until));
        join_all(releases).await.into_iter().collect()
    }

    async fn release_one(&self, hold: &Hold, name: &[u8], was_held: bool, until: Instant) -> Result<(), Error> {
        let releasing = timeout_at(until.into(), self.release_until(hold, name, was_held, until)).await;
        releasing.unwrap_or_else(|_| Err(Error::Unreachable("no reply in time".into())))
    }

    async fn release_until(&self, hold: &Hold, name: &[u8], was_held: bool, until: Instant) -> Result<(), Error> {
        let release = commands::release(hold, name);
        let (mut is_repeat, mut is_elsewhere) = (false, false);
        loop {
            // The connection of the hold may lead to a server that hangs, or is a replica now.
            let session = hold.session.as_ref().filter(|_| !is_elsewhere);
            let reply = match session.and_then(|session| session.bound()) {
                Some(link) => link.ask(&release, Some(REPLY)).await,
                None => self.nodes.call(name, &release, Lane::Shared, Some(REPLY)).await.map(|(reply, _)| reply),
            };
            match reply {
                // If the lock was held, a repeat gets nil because the first release was executed.
                Ok(Value::Nil) if !(is_repeat && was_held) => return Err(Error::Lost),
                Ok(_) => return Ok(()),
                Err(fault) if fault.is_wrong_type() => return Err(Error::Lost),
                Err(fault @ Fault::Refused(_)) => return Err(fault.into()),
                Err(fault) if Instant::now() + PAUSE >= until => return Err(fault.into()),
                Err(fault) => (is_repeat, is_elsewhere) = (is_repeat || fault.leaves_open(), true),
            }
            sleep(PAUSE).await;
        }
    }

    /// Releases until `until` what an acquisition with an unknown outcome may have been granted. Ends `at`, the
    /// connection of its last request.
    pub(super) async fn undo(&self, terms: &Terms, at: Option<Link>, until: Instant) {
        if terms.upgrade.is_some() {
            at.iter().for_each(|link| self.nodes.retire(link));
        }
        let releases = terms.names.iter().map(|name| async move {
            self.release_answered(terms, name).await;
            self.release_late_one(terms, name).await
        });
        tokio::join!(release_behind(terms, at), self.or_owe(terms, until, join_all(releases)));
    }

    /// Releases until `until` what late copies of a request take after the release of the hold that it got.
    pub async fn release_late(&self, terms: &Terms, until: Instant) {
        self.or_owe(terms, until, join_all(terms.names.iter().map(|name| self.release_late_one(terms, name)))).await;
    }

    /// Waits for releases until `until`. Each returns whether it was executed. If one was not, a named session, which
    /// would keep the hold, goes on trying.
    async fn or_owe(&self, terms: &Terms, until: Instant, releases: impl Future<Output = Vec<bool>>) {
        let released = timeout_at(until.into(), releases).await;
        if let (false, Some(session)) = (released.is_ok_and(|all| !all.contains(&false)), &terms.named) {
            session.owe(Self::releases_of(terms));
        }
    }

    /// Releases twice: a copy of the request that was sent before its connection ended may arrive later. Returns whether
    /// the last release was executed.
    async fn release_late_one(&self, terms: &Terms, name: &[u8]) -> bool {
        let mut is_released = false;
        for pause in STRAGGLERS {
            sleep(pause).await;
            is_released = self.release_answered(terms, name).await;
        }
        is_released
    }

    /// Releases whatever an acquisition may have been granted, until the server answers. Returns whether it has executed
    /// the release, or the key has another type.
    async fn release_answered(&self, terms: &Terms, name: &[u8]) -> bool {
        loop {
            match self.release_all_once(terms, name).await {
                Ok(_) => return true,
                Err(fault @ Fault::Refused(_)) => return fault.is_wrong_type(),
                Err(_) => sleep(PAUSE * 5).await,
            }
        }
    }

    /// Releases once whatever an acquisition may have been granted.
    pub(super) async fn release_all_once(&self, terms: &Terms, name: &[u8]) -> Result<Value, Fault> {
        self.release_once(name, &commands::release_all(name, terms), terms.upgrade.as_ref(), REPLY).await
    }

    /// Sends a release once. The connection of an upgrade's release ends if there is no answer, so that no late one ends
    /// the next upgrade.
    pub(super) async fn release_once(
        &self,
        name: &[u8],
        release: &Cmd,
        upgrade: Option<&Arc<Upgrade>>,
        within: Duration,
    ) -> Result<Value, Fault> {
        let lane = if upgrade.is_some() { Lane::Own } else { Lane::Shared };
        let releasing = Releasing::of(self, upgrade);
        let released = self.nodes.call(name, release, lane, Some(within)).await;
        releasing.ended(released.as_ref().is_err_and(Fault::leaves_open));
        let (reply, link) = released?;
        self.nodes.park(link, lane);
        Ok(reply)
    }

    /// Tries once to release the hold that the last upgrade of a reader may have left. Fails if the server refuses that.
    pub async fn release_left(&self, next: &Terms, last: Arc<Upgrade>) -> Result<(), Error> {
        let terms = Terms { upgrade: Some(last.clone()), ..next.clone() };
        match self.release_all_once(&terms, terms.name()).await {
            Ok(_) => last.end(),
            Err(fault) if fault.is_wrong_type() => last.end(),
            Err(fault @ Fault::Refused(_)) => return Err(fault.into()),
            Err(_) => sleep(PAUSE).await,
        }
        Ok(())
    }
}

/// Sends the releases behind a request, and ends the connection: if the server executes the request, it executes the
/// releases, too. It may grant the lock to this connection until it notices the end.
async fn release_behind(terms: &Terms, at: Option<Link>) {
    // Releases of an upgrade might release the reader's next one, which has the same owner.
    let Some(link) = at.filter(|link| !link.is_closed() && terms.upgrade.is_none()) else { return };
    let releases = terms.names.iter().map(|name| commands::release_all(name, terms));
    let link = &link;
    join_all(releases.map(|release| async move { link.ask(&release, Some(WRITTEN)).await })).await;
}

/// The reply to a `RENEW` that a cap cut.
const CUT: Value = Value::Int(0);

/// Returns how a renewal went that got these replies to `RENEW`.
fn renewed(replies: Result<Vec<Value>, Fault>) -> Renewal {
    let replies = match replies {
        Ok(replies) => replies,
        Err(fault) => return failed(fault),
    };
    for reply in &replies {
        match reply {
            Value::Nil => return Renewal::Gone,
            Value::Int(_) => {}
            other => return Renewal::Failed(commands::unexpected(other)),
        }
    }
    if replies.contains(&CUT) { Renewal::Capped } else { Renewal::Executed }
}

/// Returns how long a hold lasts that got these replies to `CHECK`: the milliseconds that are left.
fn left(replies: Result<Vec<Value>, Fault>) -> Renewal {
    let replies = match replies {
        Ok(replies) => replies,
        Err(fault) => return failed(fault),
    };
    let mut shortest = Duration::MAX;
    for reply in &replies {
        match reply {
            Value::Nil => return Renewal::Gone,
            Value::Int(left) => shortest = shortest.min(Duration::from_millis(u64::try_from(*left).unwrap_or(0))),
            other => return Renewal::Failed(commands::unexpected(other)),
        }
    }
    Renewal::Left(shortest)
}

/// Returns the outcome of a renewal that got this fault. A key of another type belongs to another program: the hold is
/// gone.
fn failed(fault: Fault) -> Renewal {
    if fault.is_wrong_type() { Renewal::Gone } else { Renewal::Failed(fault) }
}

/// Removes the reply to `WAIT`, the last of the `sent` commands, and fails if too few replicas have the write. Does not
/// fail if another reply is nil: then the hold is gone.
fn acknowledged(mut replies: Vec<Value>, sent: usize, replicas: Replicas) -> Result<Vec<Value>, Fault> {
    let waited = if replies.len() == sent { replies.pop() } else { None };
    if let Some(waited) = waited.filter(|_| !replies.contains(&Value::Nil)) {
        commands::acknowledged(&waited, replicas)?;
    }
    Ok(replies)
}

/// How long a command on a connection that is about to end may take to be written.
const WRITTEN: Duration = Duration::from_millis(10);

/// How late a request that was sent just before its connection ended may arrive: on the same machine, and at most.
const STRAGGLERS: [Duration; 2] = [Duration::from_millis(20), LATEST];
