//! Commands passed on to one server, to the primary that Sentinel names, or to a cluster.
//!
//! Each client has its own connections to servers. A command that waits holds up nobody else, and what a server binds
//! to a connection (`SESSION`) is bound to the client: when one of the two connections ends, the agent closes the
//! other.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, Relay, RelayLink, Unanswered};
use redis::{Arg, Cmd, Value, cmd};
use tokio::time::sleep;

use crate::beats::Beats;
use crate::call::Call;
use crate::copies::Copies;
use crate::resp::{Reply, Request};
use crate::stats::Stats;

/// Where commands are passed on to.
pub(crate) struct Pass {
    client: Client,
    stats: Arc<Stats>,
    /// Connections for pings of servers on which requests wait.
    pings: Relay,
    copies: Arc<Copies>,
    beats: Arc<Beats>,
    is_cluster: OnceLock<bool>,
}

/// The connections of one client.
pub(crate) struct Upstream {
    pass: Arc<Pass>,
    /// The name that the client has given itself. The connections have it, too.
    name: Option<String>,
    relay: Arc<Relay>,
    /// The last key: a command without one goes to the server that had the command before it.
    key: Vec<u8>,
    /// The connection that answered last.
    last: Option<RelayLink>,
    /// Whether a copy of the last write on an earlier connection may have been executed.
    is_written_before: bool,
    /// The connections that holds are bound to.
    bound: Vec<RelayLink>,
}

/// How a command ended.
pub(crate) enum Outcome {
    Reply(Reply),
    /// The request may or may not have been carried out, so the client's connection ends, as if its server had failed.
    Unknown(String),
    /// The client is gone.
    Gone,
}

impl Pass {
    pub fn new(client: Client, stats: Arc<Stats>) -> Result<Self, Error> {
        // Fails for a quorum.
        let pings = client.relay(Some(NAME))?;
        let (copies, beats) = (Arc::default(), Arc::default());
        Ok(Self { client, stats, pings, copies, beats, is_cluster: OnceLock::new() })
    }

    /// Returns the connections of a client with this name, none of which is open yet.
    pub fn open(self: &Arc<Self>, name: Option<&str>) -> Result<Upstream, Error> {
        let (relay, name) = (self.connections(name)?, name.map(str::to_owned));
        Ok(Upstream {
            pass: self.clone(),
            name,
            relay,
            key: Vec::new(),
            last: None,
            is_written_before: false,
            bound: Vec::new(),
        })
    }

    /// Returns new connections with this name, or with that of the agent.
    fn connections(&self, name: Option<&str>) -> Result<Arc<Relay>, Error> {
        Ok(Arc::new(self.client.relay(name.or(Some(NAME)))?))
    }

    /// Watches the server of a request that waits on `relay`, because a server that hangs keeps its connections open.
    /// Returns when the server does not answer any more, or another one has replaced it.
    async fn watch(&self, relay: &Relay, key: &[u8]) -> Unanswered {
        let mut seen: Option<RelayLink> = None;
        loop {
            sleep(LOOK).await;
            let now = match self.pings.ask(key, &cmd("PING"), Some(SHORT)).await {
                Ok((_, link)) => link,
                // The server answers, even if with an error only.
                Err(Unanswered::Refused(_)) => continue,
                Err(fault) => return Unanswered::Unknown(fault.cause().clone()),
            };
            let is_there = match &seen {
                Some(seen) => now.is(seen),
                // The request was sent on this link, so asking for the link opens no connection.
                None => relay.link(key).await.is_ok_and(|link| link.leads_where(&now)),
            };
            if !is_there {
                return Unanswered::Unknown("another server answers".into());
            }
            seen = Some(now);
        }
    }
}

impl Upstream {
    /// Passes a command on, and waits for the reply, unless `gone` completes before: the client is gone.
    pub async fn answer(&mut self, request: &Request, gone: impl Future<Output = ()>) -> Outcome {
        let call = Call::of(request);
        let (pass, is_waiting) = (self.pass.clone(), call.block.is_some());
        let _waiting = is_waiting.then(|| Stats::present(&pass.stats.waiting));
        let outcome = {
            let mut passing = std::pin::pin!(self.pass_on(request, &call));
            tokio::select! {
                biased;
                // A command that does not wait is carried out even if the client is gone, as on a server.
                () = gone, if is_waiting => return Outcome::Gone,
                outcome = &mut passing => outcome,
            }
        };
        match outcome {
            Ok(reply) => Outcome::Reply(reply),
            Err(Unanswered::Refused(cause) | Unanswered::Later(cause)) if cause.code().is_some() => {
                Outcome::Reply(Reply::error(cause.message().to_owned()))
            }
            Err(Unanswered::Unknown(cause)) => {
                Stats::count(&pass.stats.outages);
                Outcome::Unknown(cause.message().to_owned())
            }
            Err(other) => {
                Stats::count(&pass.stats.outages);
                Outcome::Reply(Reply::error(format!("LOADING no server answers: {other}")))
            }
        }
    }

    /// Completes when one of the connections ends that holds are bound to.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut closed: Vec<_> = self.bound.iter().map(|link| Box::pin(link.closed())).collect();
        std::future::poll_fn(move |context| {
            let is_lost = closed.iter_mut().any(|closed| closed.as_mut().poll(context).is_ready());
            if is_lost { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
    }

    /// Sends a command, and again until there is an answer, as long as that is safe and the time is not over.
    async fn pass_on(&mut self, request: &Request, call: &Call) -> Result<Reply, Unanswered> {
        let mut beat = match &call.session {
            Some([id, effect]) => Some(self.pass.beats.enter(id, effect).await),
            None => None,
        };
        let began = Instant::now();
        let copy = self.pass.copies.enter(request, call);
        let is_old = || copy.as_ref().is_some_and(|copy| !copy.is_newest());
        // Whether the command may have been executed.
        let mut is_open = false;
        // `is_repeat`: an earlier copy may still wait on the server, so nil may be no refusal. `is_refused`: the server
        // has replied nil since.
        let (mut is_repeat, mut is_refused) = (copy.as_ref().is_some_and(|copy| copy.is_repeat), false);
        // `away`: since when no server is known to be there.
        let (mut away, mut pause) = (began, PAUSE);
        loop {
            let left = call.left(began);
            let command = command(request, call, left);
            let patience = match (call.block, left) {
                (Some(_), None) => None,
                (Some(_), Some(left)) => Some(left + SHORT),
                (None, _) => Some(SHORT),
            };
            // If this future is dropped, the command has no answer either.
            beat.iter_mut().for_each(|beat| beat.is_open = true);
            let answer = self.ask_and_watch(&command, call, patience).await;
            is_open |= matches!(answer, Err(Unanswered::Unknown(_)));
            beat.iter_mut().for_each(|beat| beat.is_open = is_open);
            let failed = match answer {
                // An earlier copy, which arrived late, may have taken the place of this one in the queue.
                Ok(Reply::Nil) if is_repeat && !is_old() && call.left(began).is_none_or(|left| left > pause) => {
                    (is_refused, away) = (true, Instant::now());
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                    continue;
                }
                Ok(reply) => {
                    if call.is_write {
                        self.is_written_before = is_open;
                    }
                    return Ok(reply);
                }
                // The client has sent a newer copy, and that one looks for the server. See `copies`.
                Err(failed) if is_old() && !matches!(failed, Unanswered::Refused(_)) => return Ok(Reply::Nil),
                Err(failed) => failed,
            };
            match &failed {
                // The server was demoted, and may lose the last write. The client decides whether to repeat it.
                Unanswered::Later(_) if call.is_about_last => return Err(failed),
                Unanswered::NotSent(_) | Unanswered::Later(_) => {}
                Unanswered::Unknown(_) if call.is_repeatable => {
                    Stats::count(&self.pass.stats.reconnections);
                    (is_repeat, away) = (call.block.is_some(), Instant::now());
                }
                _ => return Err(failed),
            }
            let left = match (call.block, left) {
                (Some(_), Some(left)) => left.saturating_sub(pause),
                (Some(_), None) => OUTAGE.saturating_sub(away.elapsed() + pause),
                (None, _) => SEARCH.saturating_sub(began.elapsed() + pause),
            };
            if left.is_zero() {
                return match failed {
                    _ if is_refused && call.left(began).is_some() => Ok(Reply::Nil),
                    // The server's own error would say that no copy was executed.
                    Unanswered::Later(cause) if is_open => Err(Unanswered::NotSent(cause)),
                    failed => Err(failed),
                };
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Sends a command once, and watches the server if the command waits there.
    async fn ask_and_watch(
        &mut self,
        command: &Cmd,
        call: &Call,
        patience: Option<Duration>,
    ) -> Result<Reply, Unanswered> {
        let (pass, relay) = (self.pass.clone(), self.relay.clone());
        let key = call.key.clone().unwrap_or_else(|| self.key.clone());
        let gone = tokio::select! {
            biased;
            answer = self.ask(command, call, patience) => return answer,
            gone = pass.watch(&relay, &key), if call.block.is_some() => gone,
        };
        // The old connections may still get the reply to this request: the next request needs new ones.
        if let Ok(relay) = pass.connections(self.name.as_deref()) {
            self.relay = relay;
        }
        Err(gone)
    }

    /// Sends a command once. One about the last write (`WAIT`) must follow that write on the same connection.
    async fn ask(&mut self, command: &Cmd, call: &Call, patience: Option<Duration>) -> Result<Reply, Unanswered> {
        if call.is_for_each && self.is_cluster().await? {
            return self.ask_each(command, call.only_opens).await;
        }
        if let Some(key) = &call.key {
            self.key.clone_from(key);
        }
        if call.is_about_last
            && let Some(last) = &self.last
        {
            let link = self.relay.link(&self.key).await?;
            if self.is_written_before || !link.is(last) {
                return Err(Unanswered::Unknown("the connection has ended that the write was sent on".into()));
            }
        }
        let (reply, link) = self.relay.ask(&self.key, command, patience).await?;
        if call.binds && reply != Value::Nil && !self.bound.iter().any(|bound| bound.is(&link)) {
            self.bound.push(link.clone());
        }
        self.last = Some(link);
        Ok(reply.into())
    }

    /// Sends a command to all primaries of a cluster: a session of a client is one session on each primary. If it was
    /// opened on some of them only, the others get a heartbeat, because the client counts its time from this command.
    async fn ask_each(&self, command: &Cmd, only_opens: bool) -> Result<Reply, Unanswered> {
        let replies = self.replies_of_each(command).await?;
        let was_open = |reply: &Value| *reply == Value::Nil;
        if !only_opens || !replies.iter().any(was_open) || replies.iter().all(was_open) {
            return Ok(merged(replies));
        }
        let mut heartbeat = Cmd::new();
        for word in command.args_iter().take(SESSION_ID_PX_MS) {
            if let Arg::Simple(word) = word {
                heartbeat.arg(word);
            }
        }
        Ok(merged(self.replies_of_each(&heartbeat).await?))
    }

    async fn replies_of_each(&self, command: &Cmd) -> Result<Vec<Value>, Unanswered> {
        let answers = self.relay.ask_each(command, SHORT).await?;
        answers.into_iter().map(|answer| answer.map(|(reply, _)| reply)).collect()
    }

    async fn is_cluster(&self) -> Result<bool, Unanswered> {
        if let Some(is_cluster) = self.pass.is_cluster.get() {
            return Ok(*is_cluster);
        }
        let (info, _) = self.relay.ask(b"", cmd("INFO").arg("cluster"), Some(SHORT)).await?;
        let info: String = redis::from_redis_value(info).unwrap_or_default();
        Ok(*self.pass.is_cluster.get_or_init(|| info.contains("cluster_enabled:1")))
    }
}

/// Makes one reply of those of several servers: nil if all are nil, else the sum, or all entries of lists.
fn merged(replies: Vec<Value>) -> Reply {
    let mut sum = None;
    let mut all = Vec::new();
    let mut is_list = false;
    for reply in replies {
        match reply {
            Value::Int(number) => sum = Some(sum.unwrap_or(0) + number),
            Value::Array(items) => {
                is_list = true;
                all.extend(items.into_iter().map(Reply::from));
            }
            _ => {}
        }
    }
    match sum {
        _ if is_list => Reply::Array(all),
        Some(sum) => Reply::Integer(sum),
        None => Reply::Nil,
    }
}

/// Returns the command as it is sent: a repeat waits only for what is left of the time.
fn command(request: &Request, call: &Call, left: Option<Duration>) -> Cmd {
    let mut command = Cmd::new();
    for (at, word) in request.words().iter().enumerate() {
        match left {
            // Zero would be without limit.
            Some(left) if call.block_at == Some(at) => command.arg(left.as_millis().max(1).to_string()),
            _ => command.arg(word.as_slice()),
        };
    }
    command
}

/// The name of connections whose client has none.
const NAME: &str = "dlock-agent";

/// The number of words of a heartbeat without options.
const SESSION_ID_PX_MS: usize = 4;

/// The time between two pings of the server of a request that waits.
const LOOK: Duration = Duration::from_secs(5);

/// How long a server may take to answer a short command.
const SHORT: Duration = Duration::from_secs(5);

/// How long a short command looks for a server. Clients allow one second for a try, and repeat it by themselves: the
/// error comes within that second.
const SEARCH: Duration = Duration::from_millis(850);

/// How long a request that waits looks for a server that is away.
const OUTAGE: Duration = Duration::from_secs(30);

/// The pause between two attempts, at first and at most.
const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(250);
