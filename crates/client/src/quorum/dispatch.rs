//! Carries out the calls of the protocol for one acquisition.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use dlock_quorum::{Answer, Ask, Call, Entry};
use redis::{Cmd, Value, cmd};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::Quorum;
use super::flights::{Flight, Flights, Landing, Work};
use super::member::Member;
use crate::cleanup;
use crate::options::{Mode, Terms};
use crate::quorum::wire::Wire;
use crate::server::fault::Fault;

/// Sends the calls of an acquisition.
pub(super) struct Dispatch {
    quorum: Arc<Quorum>,
    terms: Arc<Terms>,
    /// The owner of each attempt.
    owners: Vec<String>,
    /// For each server, its last request to enter.
    entries: Vec<Option<Entered>>,
}

/// The state of a request to enter, which says how to send a release behind it.
enum Entered {
    /// Sent on this connection.
    Sent(Arc<Wire>),
    /// Not sent yet: there is no connection. The channel gets the connection when the request is sent.
    Sending(watch::Receiver<Option<Arc<Wire>>>),
    /// Waits in a queue.
    Waiting(Wait),
    /// The request was sent, and then a release on the same connection.
    Released,
}

/// A request that waits in a queue.
struct Wait {
    /// The connection of the request, as soon as it has been sent. `Err`: the request must not be sent any more.
    wire: Arc<Mutex<Result<Option<Arc<Wire>>, GivenUp>>>,
    /// Ends the wait when it is dropped.
    end: oneshot::Sender<()>,
}

/// The request was released before it was sent.
struct GivenUp;

impl Dispatch {
    pub fn new(quorum: Arc<Quorum>, terms: Arc<Terms>) -> Self {
        let (owners, entries) = (vec![terms.owner.clone()], (0..quorum.members()).map(|_| None).collect());
        Self { quorum, terms, owners, entries }
    }

    /// Moves everything out: `self` sends nothing any more.
    pub fn take(&mut self) -> Self {
        let (owners, entries) = (std::mem::take(&mut self.owners), std::mem::take(&mut self.entries));
        Self { quorum: self.quorum.clone(), terms: self.terms.clone(), owners, entries }
    }

    /// Returns the owner of this attempt. Each attempt has its own.
    pub fn owner(&mut self, attempt: u32) -> &str {
        let at = (attempt as usize).saturating_sub(1);
        while self.owners.len() <= at {
            self.owners.push(self.terms.naming.owner());
        }
        self.owners.get(at).map_or("", String::as_str)
    }

    /// Returns whether this call is a request to enter that a release on the same connection has followed: a grant that
    /// arrives now has ended.
    pub fn has_released_behind(&self, call: &Call) -> bool {
        let entry = self.entries.get(call.to).and_then(Option::as_ref);
        matches!((call.ask, entry), (Ask::Enter(_), Some(Entered::Released)))
    }

    /// Sends calls. Those to servers with an open connection are written at once, in order.
    pub fn send(&mut self, calls: impl IntoIterator<Item = Call>, flights: &mut Flights) {
        let mut last: Option<(Ask, u32, Arc<Cmd>)> = None;
        for call in calls {
            let command = match last.take() {
                // Most calls go to all servers.
                Some((ask, attempt, command)) if (ask, attempt) == (call.ask, call.attempt) => command,
                _ => Arc::new(self.command(&call)),
            };
            last = Some((call.ask, call.attempt, command.clone()));
            let flight = match call.ask {
                Ask::Release => self.release(call, command),
                Ask::Queue(_, block) => self.queue(call, command, block),
                _ => self.ask(call, command),
            };
            flights.launch(flight);
        }
    }

    /// Sends a short command on the shared connection.
    fn ask(&mut self, call: Call, command: Arc<Cmd>) -> Flight {
        let quorum = self.quorum.clone();
        let enters = matches!(call.ask, Ask::Enter(_) | Ask::Repair(_));
        let entry = self.entries.get_mut(call.to).filter(|_| enters);
        if let Some(wire) = quorum.members.get(call.to).and_then(Member::open_shared) {
            if let Some(entry) = entry {
                *entry = Some(Entered::Sent(wire.clone()));
            }
            let future = async move {
                let answer = ask_on(&quorum, &call, &command, &wire).await;
                Landing { call, answer: Some(answer.unwrap_or(Answer::Failed)), again: None }
            };
            return Flight { future: Box::pin(future), is_sent: true };
        }
        let (sent, is_sent) = watch::channel(None);
        if let Some(entry) = entry {
            *entry = Some(Entered::Sending(is_sent));
        }
        let future = async move {
            let answer = connect_and_ask(&quorum, &call, &command, &sent).await;
            Landing { call, answer: Some(answer.unwrap_or(Answer::Failed)), again: None }
        };
        Flight { future: Box::pin(future), is_sent: false }
    }

    /// Sends a request that waits, on a connection of its own.
    fn queue(&mut self, call: Call, command: Arc<Cmd>, block: Option<Duration>) -> Flight {
        let mut command = Arc::unwrap_or_clone(command);
        // 0 waits forever. The time is rounded up, so that the server's wait ends no earlier than ours.
        command.arg("BLOCK").arg(block.map_or(0, |block| millis(block).saturating_add(1)));
        let ((end, ended), wire) = (oneshot::channel(), Arc::new(Mutex::new(Ok(None))));
        if let Some(entry) = self.entries.get_mut(call.to) {
            *entry = Some(Entered::Waiting(Wait { wire: wire.clone(), end }));
        }
        let quorum = self.quorum.clone();
        let future = async move {
            let answer = tokio::select! {
                biased;
                answer = wait_in_queue(&quorum, &call, &command, &wire) => Some(answer.unwrap_or(Answer::Failed)),
                _ = ended => None,
            };
            Landing { call, answer, again: None }
        };
        Flight { future: Box::pin(future), is_sent: false }
    }

    /// Releases on the connection of the request to enter, so that the release is executed after it. Ends a wait.
    fn release(&mut self, call: Call, command: Arc<Cmd>) -> Flight {
        let entered = self.entries.get_mut(call.to).and_then(Option::take);
        let (quorum, lease) = (self.quorum.clone(), self.terms.lease);
        let shared = quorum.members.get(call.to).and_then(Member::open_shared);
        let (open_wire, entered) = match entered {
            Some(Entered::Sent(wire)) if !wire.is_closed() => {
                self.entries.get_mut(call.to).into_iter().for_each(|entry| *entry = Some(Entered::Released));
                (Some(wire), None)
            }
            Some(Entered::Sent(_) | Entered::Released) | None => (shared, None),
            entered => (None, entered),
        };
        let is_sent = open_wire.is_some();
        let future = async move {
            let answer = match open_wire {
                Some(wire) => ask_on(&quorum, &call, &command, &wire).await,
                // Boxed: rare, and large.
                None => Box::pin(release_behind(&quorum, &call, &command, entered)).await,
            };
            let is_left = matches!(answer, Err(Fault::OutcomeUnknown(_) | Fault::NotSent(_)));
            let again = is_left.then(|| Box::pin(insist(quorum, call, command, lease)) as Work);
            Landing { call, answer: Some(answer.unwrap_or(Answer::Failed)), again }
        };
        Flight { future: Box::pin(future), is_sent }
    }

    fn command(&mut self, call: &Call) -> Cmd {
        let terms = self.terms.clone();
        let Terms { mode, lease, .. } = *terms;
        let mut command = Cmd::with_capacity(ARGUMENTS, terms.name().len() + REST);
        command.arg(match (call.ask, mode) {
            (Ask::Enter(_) | Ask::Queue(..) | Ask::Repair(_), Mode::Read) => "DLOCK.RLOCK",
            (Ask::Enter(_) | Ask::Queue(..) | Ask::Repair(_), Mode::Write) => "DLOCK.WLOCK",
            (Ask::Enter(_) | Ask::Queue(..) | Ask::Repair(_), _) => "DLOCK.ACQUIRE",
            (Ask::Raise(_) | Ask::Renew, _) => "DLOCK.RENEW",
            (Ask::Release, _) => "DLOCK.RELEASE",
            (Ask::Ping, _) => return cmd("PING"),
        });
        command.arg(terms.name()).arg(self.owner(call.attempt));
        let (lease, min_token) = match call.ask {
            Ask::Enter(Entry { lease, min_token }) | Ask::Queue(Entry { lease, min_token }, _) => (lease, min_token),
            Ask::Raise(token) | Ask::Repair(token) => (lease, Some(token)),
            Ask::Renew | Ask::Ping => (lease, None),
            Ask::Release => {
                command.arg("ALL");
                return command;
            }
        };
        command.arg("PX").arg(millis(lease));
        if let Some(token) = min_token {
            command.arg("MINTOKEN").arg(token);
        }
        if let Ask::Repair(_) = call.ask {
            command.arg("REQUEST").arg("repair");
        }
        command
    }
}

/// Sends a short command on an open connection, if its server may count.
async fn ask_on(quorum: &Quorum, call: &Call, command: &Cmd, wire: &Wire) -> Result<Answer, Fault> {
    let member = quorum.member(call.to)?;
    let is_young = match call.ask {
        Ask::Release => false,
        Ask::Raise(_) | Ask::Renew | Ask::Repair(_) => quorum.is_young(call.to, wire)?,
        Ask::Enter(_) | Ask::Queue(..) | Ask::Ping => {
            quorum.check_counts(call.to, wire)?;
            false
        }
    };
    let within = Some(quorum.longest_answer());
    let reply = match call.ask {
        Ask::Ping => Box::pin(quorum.clocks.read_with(call.to, wire, command, within)).await,
        _ => wire.ask(command, within).await,
    };
    if reply.is_ok() && !is_young && call.ask != Ask::Release {
        quorum.answers.note(call.to, call.sent);
    }
    let is_silent = reply.is_err() && quorum.now() >= call.sent + quorum.longest_answer();
    // With `Later`, the server may no longer be a primary. The next connection asks for its role.
    if is_silent || matches!(reply, Err(Fault::Later(_))) {
        member.forget(wire);
    }
    // A failed release is no reason why the lock could not be acquired.
    let reply = reply.map_err(|fault| if call.ask == Ask::Release { fault } else { member.failed(fault) });
    Ok(match answer(call, reply)? {
        Answer::Done if is_young => Answer::Reserved,
        answer => answer,
    })
}

async fn connect_and_ask(
    quorum: &Quorum,
    call: &Call,
    command: &Cmd,
    sent: &watch::Sender<Option<Arc<Wire>>>,
) -> Result<Answer, Fault> {
    let wire = quorum.member(call.to)?.shared().await?;
    let mut asking = pin!(ask_on(quorum, call, command, &wire));
    match once(asking.as_mut()).await {
        Poll::Ready(answer) => answer,
        Poll::Pending => {
            // The command is written: what is sent on this connection from now on comes after it.
            sent.send_replace(Some(wire.clone()));
            asking.await
        }
    }
}

/// Sends the request that waits and records its connection, in one step: a release finds it sent, or keeps it from
/// being sent.
async fn wait_in_queue(
    quorum: &Quorum,
    call: &Call,
    command: &Cmd,
    sent: &Mutex<Result<Option<Arc<Wire>>, GivenUp>>,
) -> Result<Answer, Fault> {
    let member = quorum.member(call.to)?;
    let wire = member.own().await?;
    quorum.check_counts(call.to, &wire)?;
    let mut reply = pin!(wire.ask(command, None));
    let first = poll_fn(|context| {
        let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        Poll::Ready(sent.as_mut().ok().map(|sent| {
            *sent = Some(wire.clone());
            reply.as_mut().poll(context)
        }))
    });
    let reply = match first.await {
        Some(Poll::Ready(reply)) => reply,
        Some(Poll::Pending) => reply.await,
        None => return Err(Fault::NotSent("given up before it was asked".into())),
    };
    let answer = answer(call, reply.map_err(|fault| member.failed(fault)))?;
    // A connection without a release so far is free for another call. After a release, a late `CLIENT UNBLOCK` may
    // reach the connection, and would end the wait of another call there.
    if let Ok(sent) = sent.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        *sent = None;
        member.park(wire.clone());
    }
    Ok(answer)
}

/// Releases behind a request to enter that waits or is not sent yet, or whose connection is closed.
async fn release_behind(
    quorum: &Quorum,
    call: &Call,
    command: &Cmd,
    entered: Option<Entered>,
) -> Result<Answer, Fault> {
    let member = quorum.member(call.to)?;
    let wire = match entered {
        Some(Entered::Waiting(wait)) => {
            let wire = member.shared().await;
            leave_queue(quorum, command, wait, wire.as_deref().ok()).await;
            wire?
        }
        Some(Entered::Sending(mut sent)) => {
            let sent = sent.wait_for(Option::is_some).await.ok().and_then(|wire| wire.clone());
            match sent.filter(|wire| !wire.is_closed()) {
                Some(wire) => wire,
                None => member.shared().await?,
            }
        }
        Some(Entered::Sent(_) | Entered::Released) | None => member.shared().await?,
    };
    ask_on(quorum, call, command, &wire).await
}

/// Releases behind the request that waits, and ends its wait by `CLIENT UNBLOCK` or by closing its connection.
async fn leave_queue(quorum: &Quorum, release: &Cmd, wait: Wait, other: Option<&Wire>) {
    let within = Some(quorum.longest_answer());
    let sent = std::mem::replace(&mut *wait.wire.lock().unwrap_or_else(PoisonError::into_inner), Err(GivenUp));
    if let Ok(Some(wire)) = sent {
        let mut behind = pin!(wire.ask(release, within));
        let _ = once(behind.as_mut()).await;
        // After a restart, another client may have this id.
        if let Some(other) = other.filter(|other| other.is_to_process_of(&wire)) {
            let _ = other.ask(cmd("CLIENT").arg("UNBLOCK").arg(wire.client_id), within).await;
        }
    }
    drop(wait.end);
}

/// Releases again for a while: a server that comes back may still keep the hold, and be the gate server. After that,
/// the hold ends with its lease.
async fn insist(quorum: Arc<Quorum>, call: Call, release: Arc<Cmd>, lease: Duration) {
    let Ok(member) = quorum.member(call.to) else { return };
    let (end, mut pause) = (Instant::now() + lease.min(cleanup::LIMIT), PAUSE);
    while Instant::now() < end {
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
        if let Ok(wire) = member.shared().await
            && wire.ask(&release, Some(quorum.longest_answer())).await.is_ok()
        {
            return;
        }
    }
}

/// Polls a future once, which writes its command.
async fn once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

fn answer(call: &Call, reply: Result<Value, Fault>) -> Result<Answer, Fault> {
    Ok(match (call.ask, reply?) {
        (Ask::Enter(_) | Ask::Queue(..) | Ask::Repair(_), Value::Int(token)) => {
            Answer::Granted(u64::try_from(token).unwrap_or(0))
        }
        (Ask::Enter(_) | Ask::Queue(..) | Ask::Repair(_), Value::Nil) => Answer::Refused,
        (Ask::Raise(_) | Ask::Renew | Ask::Release, Value::Nil) => Answer::Gone,
        // A cap made the lease shorter than what was asked for.
        (Ask::Raise(_) | Ask::Renew, Value::Int(0)) => Answer::Failed,
        (Ask::Raise(_) | Ask::Renew | Ask::Release, Value::Int(_)) | (Ask::Ping, _) => Answer::Done,
        _ => Answer::Failed,
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How many arguments a command has at most, and how many bytes they have without the name of the lock.
const ARGUMENTS: usize = 9;
const REST: usize = 128;

/// The pause between two attempts to release, at first and at most.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(400);
