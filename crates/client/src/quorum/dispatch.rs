//! Carries out the calls of the protocol for one acquisition.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dlock_quorum::{Answer, Ask, Call};
use redis::{Cmd, Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::Quorum;
use super::member::Wire;
use crate::cleanup;
use crate::server::Fault;
use crate::terms::{Mode, Terms};

/// What the answers go to.
pub(super) type Answers = UnboundedSender<(Call, Answer)>;

/// A server and an attempt.
type Where = (usize, u32);

/// The connection on which something was sent, as soon as it has been.
type Sent = watch::Receiver<Option<Wire>>;

/// What all calls of an acquisition have in common. Cheap to clone.
#[derive(Clone)]
pub(super) struct Dispatch(Arc<Inner>);

struct Inner {
    quorum: Arc<Quorum>,
    terms: Terms,
    runtime: Handle,
    /// The owner of each attempt.
    owners: Mutex<HashMap<u32, String>>,
    /// The requests that wait in a queue.
    waits: Mutex<HashMap<Where, Wait>>,
    /// Who asked to enter.
    entries: Mutex<HashMap<Where, Sent>>,
}

/// A request that waits in a queue.
#[derive(Default)]
struct Wait {
    task: Option<AbortHandle>,
    wire: Option<Wire>,
}

impl Dispatch {
    pub fn new(quorum: Arc<Quorum>, terms: Terms) -> Self {
        let owners = Mutex::new(HashMap::from([(1, terms.owner.clone())]));
        let runtime = Handle::current();
        Self(Arc::new(Inner { quorum, terms, runtime, owners, waits: Mutex::default(), entries: Mutex::default() }))
    }

    /// Who asks in this attempt: somebody new in each.
    pub fn owner(&self, attempt: u32) -> String {
        let mut owners = self.0.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.entry(attempt).or_insert_with(|| self.0.terms.naming.owner()).clone()
    }

    /// Sends calls; what comes back goes to `answers`, sooner or later. What has a connection goes at once, in the
    /// order of the calls.
    pub fn send(&self, calls: impl IntoIterator<Item = Call>, answers: &Answers) {
        let _runtime = self.0.runtime.enter();
        let mut open = Vec::new();
        for call in calls {
            let mut task = Box::pin(self.clone().carry_out(call, answers.clone()));
            // Whoever goes on with it polls it anew.
            if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                continue;
            }
            if let Ask::Queue(_) = call.ask {
                let task = self.0.runtime.spawn(task);
                if let Some(wait) = self.waits().get_mut(&(call.to, call.attempt)) {
                    wait.task = Some(task.abort_handle());
                }
            } else {
                open.push(task);
            }
        }
        // One task for all: what comes back at the same time wakes it once.
        if !open.is_empty() {
            self.0.runtime.spawn(poll_fn(move |context| {
                open.retain_mut(|task| task.as_mut().poll(context).is_pending());
                if open.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
    }

    /// What is to be known of a call when this returns is so before the future is polled.
    fn carry_out(self, call: Call, answers: Answers) -> impl Future<Output = ()> + Send {
        let key = (call.to, call.attempt);
        if let Ask::Queue(_) = call.ask {
            self.waits().insert(key, Wait::default());
        }
        let (sent, is_sent) = watch::channel(None);
        if let Ask::Enter = call.ask {
            self.entries().insert(key, is_sent);
        }
        let cleanup = (call.ask == Ask::Release).then(|| self.0.quorum.cleanups.begin());
        async move {
            let _cleanup = cleanup;
            let answer = self.ask(&call, sent).await;
            let is_left =
                call.ask == Ask::Release && matches!(answer, Err(Fault::OutcomeUnknown(_) | Fault::NotSent(_)));
            // Nobody listens when the acquisition is over.
            let _ = answers.send((call, answer.unwrap_or(Answer::Failed)));
            if is_left {
                self.insist(&call).await;
            }
        }
    }

    async fn ask(&self, call: &Call, sent: watch::Sender<Option<Wire>>) -> Result<Answer, Fault> {
        let quorum = &self.0.quorum;
        let member = quorum.member(call.to)?;
        let wire = match call.ask {
            Ask::Queue(block) => return self.wait_in_queue(call, block).await,
            Ask::Release => self.way_out(call).await?,
            Ask::Enter | Ask::Confirm(_) | Ask::Renew | Ask::Ping => {
                let wire = member.shared().await?;
                quorum.count(call.to, &wire)?;
                wire
            }
        };
        let (command, began) = (self.command(call), Instant::now());
        let mut reply = pin!(wire.ask(&command, Some(quorum.give_up())));
        let reply = match once(reply.as_mut()).await {
            Poll::Ready(reply) => reply,
            Poll::Pending => {
                // On its way: what is sent on this connection from now on comes after it.
                sent.send_replace(Some(wire.clone()));
                reply.await
            }
        };
        let is_silent = reply.is_err() && began.elapsed() >= quorum.give_up();
        // Not now: it may be no primary any more. What it is, it says on the next connection.
        if is_silent || matches!(reply, Err(Fault::Later(_))) {
            member.forget(&wire);
        }
        // That it cannot be given back says nothing of why it was not to be had.
        answer(call, reply.map_err(|fault| if call.ask == Ask::Release { fault } else { member.failed(fault) }))
    }

    /// Releases again for a while: a server that comes back may still keep the hold, and be the gate server. What is
    /// left then ends with its lease.
    async fn insist(&self, call: &Call) {
        let Ok(member) = self.0.quorum.member(call.to) else { return };
        let end = Instant::now() + self.0.terms.lease.min(cleanup::LIMIT);
        let (release, mut pause) = (self.command(call), PAUSE);
        while Instant::now() < end {
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
            if let Ok(wire) = member.shared().await
                && wire.ask(&release, Some(self.0.quorum.give_up())).await.is_ok()
            {
                return;
            }
        }
    }

    async fn wait_in_queue(&self, call: &Call, block: Option<Duration>) -> Result<Answer, Fault> {
        let quorum = &self.0.quorum;
        let member = quorum.member(call.to)?;
        let wire = member.own().await?;
        quorum.count(call.to, &wire)?;
        // 0 is for ever; the time is rounded up, so that it is over for us when it is for the server.
        let millis = block.map_or(0, |block| millis(block).saturating_add(1));
        let Some(reply) = self.wait_on(&wire, self.command(call).arg("BLOCK").arg(millis), call).await else {
            return Err(Fault::NotSent("given up before it was asked".into()));
        };
        let answer = answer(call, reply.map_err(|fault| member.failed(fault)))?;
        member.park(wire);
        Ok(answer)
    }

    /// Sends the request that waits and notes its connection, in one step: who ends the wait finds it sent, or keeps it
    /// from being sent. `None`: it was.
    async fn wait_on(&self, wire: &Wire, command: &Cmd, call: &Call) -> Option<Result<Value, Fault>> {
        let key = (call.to, call.attempt);
        let mut reply = pin!(wire.ask(command, None));
        let sent = poll_fn(|context| {
            Poll::Ready(self.waits().get_mut(&key).map(|wait| {
                wait.wire = Some(wire.clone());
                reply.as_mut().poll(context)
            }))
        });
        let reply = match sent.await? {
            Poll::Ready(reply) => reply,
            Poll::Pending => reply.await,
        };
        self.waits().remove(&key);
        Some(reply)
    }

    /// The connection to release on: the one that asked to enter, so that it comes after that. Ends a wait.
    async fn way_out(&self, call: &Call) -> Result<Wire, Fault> {
        let member = self.0.quorum.member(call.to)?;
        let key = (call.to, call.attempt);
        let (wait, entry) = (self.waits().remove(&key), self.entries().remove(&key));
        if let Some(wait) = wait {
            let wire = member.shared().await;
            self.leave_queue(call, wait, wire.as_ref().ok()).await;
            return wire;
        }
        if let Some(mut entry) = entry
            && let Ok(wire) = entry.wait_for(Option::is_some).await
            && let Some(wire) = wire.clone().filter(|wire| !wire.is_closed())
        {
            return Ok(wire);
        }
        member.shared().await
    }

    /// Releases behind the request that waits, and ends its wait by `CLIENT UNBLOCK` or by closing its connection.
    async fn leave_queue(&self, call: &Call, wait: Wait, other: Option<&Wire>) {
        let patience = Some(self.0.quorum.give_up());
        if let Some(wire) = &wait.wire {
            let release = self.command(call);
            let mut behind = pin!(wire.ask(&release, patience));
            let _ = once(behind.as_mut()).await;
            if let Some(other) = other {
                let _ = other.ask(cmd("CLIENT").arg("UNBLOCK").arg(wire.client_id), patience).await;
            }
        }
        if let Some(task) = wait.task {
            task.abort();
        }
    }

    fn command(&self, call: &Call) -> Cmd {
        let Terms { mode, lease, .. } = &self.0.terms;
        let mut command = cmd(match (call.ask, mode) {
            (Ask::Enter | Ask::Queue(_), Mode::Read) => "DLOCK.RLOCK",
            (Ask::Enter | Ask::Queue(_), Mode::Write) => "DLOCK.WLOCK",
            (Ask::Enter | Ask::Queue(_), _) => "DLOCK.ACQUIRE",
            (Ask::Confirm(_) | Ask::Renew, _) => "DLOCK.RENEW",
            (Ask::Release, _) => "DLOCK.RELEASE",
            (Ask::Ping, _) => "PING",
        });
        if call.ask == Ask::Ping {
            return command;
        }
        command.arg(self.0.terms.name()).arg(self.owner(call.attempt));
        match call.ask {
            Ask::Release => command.arg("ALL"),
            Ask::Confirm(token) => command.arg("PX").arg(millis(*lease)).arg("MINTOKEN").arg(token),
            Ask::Enter | Ask::Queue(_) | Ask::Renew | Ask::Ping => command.arg("PX").arg(millis(*lease)),
        };
        command
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Where, Sent>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self) -> MutexGuard<'_, HashMap<Where, Wait>> {
        self.0.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Polls once: what it sends is on its way then.
async fn once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

fn answer(call: &Call, reply: Result<Value, Fault>) -> Result<Answer, Fault> {
    Ok(match (call.ask, reply?) {
        (Ask::Enter | Ask::Queue(_), Value::Int(token)) => Answer::Granted(u64::try_from(token).unwrap_or(0)),
        (Ask::Enter | Ask::Queue(_), Value::Nil) => Answer::Refused,
        (Ask::Confirm(_) | Ask::Renew | Ask::Release, Value::Nil) => Answer::Gone,
        // A cap cut it.
        (Ask::Confirm(_) | Ask::Renew, Value::Int(0)) => Answer::Failed,
        (Ask::Confirm(_) | Ask::Renew | Ask::Release, Value::Int(_)) | (Ask::Ping, _) => Answer::Done,
        _ => Answer::Failed,
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Between two attempts to release, at first and at most.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(400);
