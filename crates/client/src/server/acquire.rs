//! An acquisition on a server: carries out what an [`Attempt`] says.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::Value;
use tokio::runtime::Handle;
use tokio::time::{sleep, sleep_until, timeout_at};

use super::Server;
use super::commands::{self, millis};
use super::fault::Fault;
use super::in_flight::InFlight;
use super::link::Link;
use super::nodes::{Lane, REPLY};
use crate::attempt::{Attempt, Block, Cleanup, Next, Outcome};
use crate::binding::Ticket;
use crate::cleanup;
use crate::error::Error;
use crate::heartbeat::answer_within;
use crate::holding::{Grant, Hold};
use crate::join::join_all;
use crate::limits::Limits;
use crate::options::{Keep, Terms, Wait};
use crate::owner::Naming;
use crate::renewal::Renewal;
use crate::session::Session;
use crate::validity::end;

/// An acquisition under way.
struct Acquisition {
    server: Arc<Server>,
    terms: Terms,
    attempt: Attempt,
    limits: Limits,
    /// When a server answered last.
    heard: Instant,
    pause: Duration,
    /// The connection of the last request.
    at: Arc<InFlight>,
    abandoned: Abandoned,
    /// Connections of requests that got no answer. Without a session only the last one: its request keeps its place in
    /// the queue until the repeat has it. With a session all of them: a request that arrives late binds the hold to its
    /// connection.
    left: Vec<Link>,
    got: Option<Got>,
    /// The last failure.
    why: Option<Fault>,
}

/// A hold that was granted.
struct Got {
    hold: Hold,
    ticket: Option<Ticket>,
}

/// The answer to a command.
enum Answer {
    Got(Box<Got>),
    Nil,
    /// The answer to a renewal, and when the server was asked how long the hold lasts.
    Renewal(Renewal, Instant),
    /// A command failed. `is_left`: a grant of it may be left.
    Failed {
        fault: Fault,
        is_left: bool,
    },
    TimeIsOver,
}

impl Server {
    pub async fn acquire(self: Arc<Self>, terms: &Terms) -> Result<Grant, Error> {
        let mut acquisition = Acquisition::new(self, terms);
        loop {
            match acquisition.attempt.next() {
                Next::Over(outcome, cleanup) => return acquisition.ended(outcome, cleanup),
                next => acquisition.step(next).await?,
            }
        }
    }
}

impl Acquisition {
    fn new(server: Arc<Server>, terms: &Terms) -> Self {
        let now = Instant::now();
        let (terms, at, limits) = (terms.clone(), Arc::new(InFlight::default()), Limits::new(terms, now));
        let abandoned = Abandoned {
            server: Some(server.clone()),
            terms: terms.clone(),
            at: at.clone(),
            runtime: Handle::current(),
        };
        let is_second = matches!(terms.naming, Naming::OfHold(_));
        let attempt = Attempt::new(now, terms.wait, terms.first_lease(), limits.outage()).beside(is_second);
        let (left, got, why) = (Vec::new(), None, None);
        Self { server, terms, attempt, limits, heard: now, pause: PAUSE, at, abandoned, left, got, why }
    }

    /// Sends a command, and tells the attempt the result.
    async fn step(&mut self, next: Next) -> Result<(), Error> {
        if let Some(Err(ended)) = self.terms.named.as_ref().map(|session| session.check()) {
            self.abandoned.unless(self.attempt.cleanup());
            return Err(ended);
        }
        if let Next::Ask { fresh: true, .. } = next {
            self.change_owner();
            if let Next::Over(..) = self.attempt.next() {
                return Ok(());
            }
        }
        let is_repeat = self.attempt.is_repeated();
        let began = Instant::now();
        let number = self.attempt.sends(began);
        let answer = self.send(next, is_repeat).await;
        let now = Instant::now();
        match answer {
            Answer::Got(got) => {
                (self.heard, self.got) = (now, Some(*got));
                self.attempt.granted(now, number);
            }
            Answer::Nil => {
                self.heard = now;
                self.attempt.nil(now, number);
                if let Next::Ask { block: Some(_), .. } = next {
                    self.rest(began).await;
                }
            }
            Answer::Renewal(renewal, asked) => self.renewed(renewal, asked, number, began).await,
            Answer::Failed { fault, is_left } => self.failed(fault, is_left, number, began).await,
            Answer::TimeIsOver => self.attempt.over(now),
        }
        Ok(())
    }

    /// Takes another owner, because the last grant is over. Late copies of its request must not affect the next
    /// request. An upgrade keeps the owner of its reader, and a downgrade that of its writer, so they fail instead.
    fn change_owner(&mut self) {
        if self.attempt.has_old_copies() {
            if let Naming::OfHold(_) = self.terms.naming {
                return self.attempt.failed(0);
            }
            self.server.undo_later(&self.terms, None, &self.abandoned.runtime);
        }
        self.terms.begin();
        self.abandoned.terms = self.terms.clone();
        self.got = None;
    }

    /// Sends the next command, and waits until it is answered, its time is over or its server is gone.
    async fn send(&mut self, next: Next, is_repeat: bool) -> Answer {
        let Self { server, terms, limits, heard, at, got, .. } = self;
        let sending = async {
            match (next, got.as_ref()) {
                (Next::Ask { block, .. }, _) => server.ask_for(terms, limits, block, is_repeat, at).await,
                (_, Some(got)) => {
                    let (renewal, asked) = server.confirm(&got.hold, terms.first_lease(), limits).await;
                    Answer::Renewal(renewal, asked)
                }
                (_, None) => Answer::TimeIsOver,
            }
        };
        // Boxed: large.
        let gone = tokio::select! {
            biased;
            answer = Box::pin(sending) => return answer,
            gone = server.watch(terms, limits, heard, at) => gone,
        };
        match gone {
            Some(fault) => Answer::Failed { fault, is_left: true },
            None => {
                if let Some(link) = at.link() {
                    // The connection may have died silently. The next request gets a new one.
                    server.nodes.forget(&link);
                }
                at.why(terms.replicas).map_or(Answer::TimeIsOver, |fault| Answer::Failed { fault, is_left: true })
            }
        }
    }

    /// Takes the answer to a renewal that should confirm the grant.
    async fn renewed(&mut self, renewal: Renewal, asked: Instant, number: u64, began: Instant) {
        let now = Instant::now();
        match renewal {
            Renewal::Executed | Renewal::Capped | Renewal::Until(_) => self.attempt.ok(now, number, None),
            Renewal::Left(left) => self.attempt.ok(now, number, Some(end(asked, left))),
            Renewal::Gone => {
                self.heard = now;
                self.attempt.gone(now, number);
            }
            Renewal::Failed(fault) => self.failed(fault, true, number, began).await,
        }
    }

    async fn failed(&mut self, fault: Fault, is_left: bool, number: u64, began: Instant) {
        let now = Instant::now();
        let session = self.got.as_ref().and_then(|got| got.hold.session.clone());
        match &fault {
            Fault::Refused(cause) if self.terms.named.is_some() && cause.code() == Some("NOSESSION") => {
                // The server was restarted, or another one has taken over. The session opens itself again.
                self.terms.named.iter().for_each(|session| session.missing());
                self.heard = now;
                self.attempt.refused(now, number);
            }
            fault if fault.is_wrong_type() && !is_left => {
                self.heard = now;
                self.attempt.foreign(now, number);
                self.pause = FOREIGN;
            }
            Fault::Refused(_) | Fault::TooFewReplicas { .. } => {
                self.attempt.failed(if is_left { 0 } else { number });
            }
            // The hold may be bound to a connection that hangs. The repeat binds it to another one.
            _ if session.is_some() => {
                self.left.extend(session.map(|session| session.link()));
                self.got = None;
                self.attempt.unbound(now);
            }
            Fault::OutcomeUnknown(cause) => {
                // The connection was there until now.
                if cause.is_end_of_connection() {
                    self.heard = now;
                }
                if self.terms.keep == Keep::Session && fault.has_ended_connection() {
                    self.attempt.orphaned(now);
                    if let Next::Ask { .. } = self.attempt.next() {
                        self.change_owner();
                    }
                } else {
                    self.attempt.cut(now);
                }
            }
            fault if fault.leaves_open() => self.attempt.cut(now),
            Fault::NotSent(_) | Fault::Later(_) | Fault::Moved(..) | Fault::Ask(_) => {
                self.attempt.refused(now, number);
            }
        }
        let at = self.at.take_link();
        // A request that was answered does not wait on its connection, and binds nothing later.
        if let (true, Some(link)) = (fault.leaves_open(), at) {
            self.left.retain(|other| self.terms.keep == Keep::Session && !other.is_closed());
            self.left.push(link);
        }
        self.why = Some(fault);
        self.rest(began).await;
    }

    /// Waits a little before the next command, after one that was sent at `began`. An outage counts as waiting.
    async fn rest(&mut self, began: Instant) {
        if matches!(self.attempt.next(), Next::Over(..)) {
            return;
        }
        // A command that waited in the queue is not part of a series of failures.
        if began.elapsed() > LASTED {
            self.pause = PAUSE;
        }
        let left = match self.limits.over(self.heard) {
            Some(over) => over.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        };
        if left.is_zero() {
            return self.attempt.over(Instant::now());
        }
        sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    fn ended(mut self, outcome: Outcome, cleanup: Cleanup) -> Result<Grant, Error> {
        self.abandoned.unless(cleanup);
        if cleanup == Cleanup::Nothing && !matches!(outcome, Outcome::Granted(_)) {
            self.terms.upgrade.iter().for_each(|upgrade| upgrade.end());
        }
        match (outcome, self.got.take()) {
            (Outcome::Granted(until), Some(got)) => {
                let Got { hold, ticket } = got;
                hold.session.iter().for_each(|session| session.keep_open(self.left.drain(..)));
                let is_renewal_open = self.attempt.is_renewal_open(self.terms.replicas.is_some());
                let is_request_open = self.attempt.is_repeated();
                let Hold { owner, token, slot, session, .. } = hold;
                let owner = Some(owner);
                Ok(Grant { token, owner, slot, until, is_renewal_open, is_request_open, session, ticket, kept: None })
            }
            (Outcome::Refused, _) => Err(Error::Contention),
            _ => Err(self.why.take().unwrap_or_else(|| Fault::OutcomeUnknown("no reply in time".into())).into()),
        }
    }
}

impl Server {
    /// Watches the server of a request that waits, because a server that hangs keeps its connections open. Returns when
    /// the time is over (`None`), or when the server does not answer any more or another one has replaced it.
    async fn watch(&self, terms: &Terms, limits: &Limits, heard: &mut Instant, at: &InFlight) -> Option<Fault> {
        let mut seen: Option<Link> = None;
        let interval = match terms.wait {
            // The answer to the request shows whether the server is up.
            Wait::Not => A_YEAR,
            // A short wait is not worth many pings.
            Wait::AtMost(_) => limits.interval().max(INTERVAL),
            Wait::ForEver => limits.interval(),
        };
        loop {
            let (next, end) = (Instant::now() + interval, limits.end(*heard));
            sleep_until(end.map_or(next, |end| end.min(next)).into()).await;
            if end.is_some_and(|end| end <= next) {
                return None;
            }
            let Some(link) = at.link() else { continue };
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

    /// Asks for the lock once.
    async fn ask_for(
        &self,
        terms: &Terms,
        limits: &Limits,
        block: Option<Block>,
        is_repeat: bool,
        at: &InFlight,
    ) -> Answer {
        let answered = self.ask_and_count(terms, limits, block, is_repeat, at).await;
        answered.unwrap_or_else(|(fault, is_left)| Answer::Failed { fault, is_left })
    }

    /// Asks for the lock once. The error says whether a grant may be left.
    async fn ask_and_count(
        &self,
        terms: &Terms,
        limits: &Limits,
        block: Option<Block>,
        is_repeat: bool,
        at: &InFlight,
    ) -> Result<Answer, (Fault, bool)> {
        let shares = block.is_none() && terms.keep != Keep::Session && terms.replicas.is_none();
        let lane = if shares { Lane::Shared } else { Lane::Own };
        let ticket = match &terms.named {
            Some(session) => Some(session.ticket(terms.name(), REPLY).await.map_err(|fault| (fault, false))?),
            None => None,
        };
        let request = commands::acquire(terms, ticket.as_ref(), block.map(in_millis));
        let answered = match (terms.replicas, block) {
            (Some(replicas), None) => self.ask_with(replicas, terms, limits, request, is_repeat, at).await,
            (Some(replicas), Some(_)) => self.wait_with(replicas, terms, limits, request, at).await,
            // A request that waits is answered at any time.
            (None, block) => {
                let within = if block.is_some() { None } else { Some(REPLY) };
                self.nodes.call_at(terms.name(), &[request], lane, within, Duration::ZERO, at).await
            }
        };
        let (replies, link) = match answered {
            // The refused command may be `WAIT`, behind a grant.
            Err(fault @ Fault::Refused(_)) if terms.replicas.is_some() => {
                at.fails(&fault);
                let released = join_all(terms.names.iter().map(|name| self.release_all_once(terms, name))).await;
                let is_released =
                    |released: &Result<_, Fault>| released.as_ref().err().is_none_or(Fault::is_wrong_type);
                let is_left = at.has_begun().load(Ordering::Acquire) && !released.iter().all(is_released);
                return Err((fault, is_left));
            }
            answered => answered.map_err(|fault| {
                if fault.is_wrong_type()
                    && let Some(link) = at.take_link()
                {
                    self.nodes.park(link, lane);
                }
                (fault, false)
            })?,
        };
        let granted = commands::granted(replies.first().unwrap_or(&Value::Nil)).map_err(|fault| (fault, true))?;
        let Some((token, slot)) = granted else {
            self.nodes.park(link, lane);
            return Ok(Answer::Nil);
        };
        let session = (terms.keep == Keep::Session).then(|| Arc::new(Session::new(link.clone())));
        let hold = Hold::granted(terms, terms.owner.clone(), (token, slot), session, None);
        if terms.replicas.is_some() && replies.last() == Some(&Value::Nil) {
            return Ok(Answer::Renewal(Renewal::Gone, Instant::now()));
        }
        if let Some(replicas) = terms.replicas
            && let Err(fault) = commands::acknowledged(replies.last().unwrap_or(&Value::Nil), replicas)
        {
            at.fails(&fault);
            let released = self.release(&hold, true, Instant::now() + REPLY).await;
            return Err((fault, !matches!(released, Ok(()) | Err(Error::Lost))));
        }
        if hold.session.is_none() {
            self.nodes.park(link, lane);
        }
        Ok(Answer::Got(Box::new(Got { hold, ticket })))
    }

    /// Renews a hold that may have been granted long ago: the client does not know when a request in the queue was
    /// granted. Returns when the server was asked how long the hold lasts, if it was.
    async fn confirm(&self, hold: &Hold, lease: Duration, limits: &Limits) -> (Renewal, Instant) {
        let within = answer_within(lease);
        if hold.session.is_none() || hold.replicas.is_some() {
            let replicas = hold.replicas.map(|replicas| limits.cut(replicas, Instant::now()));
            let renewal = self.renew_for(replicas, hold, lease, within).await;
            if !matches!(renewal, Renewal::Capped) {
                return (renewal, Instant::now());
            }
        }
        let asked = Instant::now();
        (self.look(hold, within).await, asked)
    }

    /// Releases in the background what an acquisition may have been granted.
    fn undo_later(self: &Arc<Self>, terms: &Terms, at: Option<Link>, runtime: &Handle) {
        let (server, terms) = (self.clone(), terms.clone());
        let until = Instant::now() + cleanup::LIMIT * 4 / 5;
        self.cleanups.spawn(runtime, async move { server.undo(&terms, at, until).await });
    }
}

/// Returns how long the server blocks a request; 0: without a limit.
fn in_millis(block: Block) -> u64 {
    match block {
        Block::For(left) if left < A_YEAR => millis(left).saturating_add(1),
        Block::For(_) | Block::ForEver => 0,
    }
}

/// Undoes an acquisition without a known outcome: if a value is dropped with a server, it releases what may be left
/// there.
struct Abandoned {
    server: Option<Arc<Server>>,
    terms: Terms,
    at: Arc<InFlight>,
    runtime: Handle,
}

impl Abandoned {
    /// Forgets the server, unless something is left there.
    fn unless(&mut self, cleanup: Cleanup) {
        if cleanup == Cleanup::Nothing {
            self.server = None;
        }
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let at = self.at.take_link();
            self.terms.upgrade.iter().for_each(|upgrade| upgrade.give_up());
            server.undo_later(&self.terms, at, &self.runtime);
        }
    }
}

/// The pause between two attempts, at first and at most.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// The pause before a key of another type is asked for again.
const FOREIGN: Duration = Duration::from_millis(100);

/// A command that took longer than this ends a series of failures.
const LASTED: Duration = Duration::from_secs(5);

/// The shortest time between two pings of the server of a wait that has an end.
const INTERVAL: Duration = Duration::from_secs(1);

/// A longer wait has no limit on the server.
const A_YEAR: Duration = Duration::from_secs(365 * 86400);
