//! A client's connection: its requests are answered one after the other.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::answer::{Answer, Greeted};
use crate::catalog;
use crate::hello::{BEFORE_LOGIN, GUESS, LOGIN};
use crate::inbox::{Inbox, NoRequest};
use crate::listen::ClientReader;
use crate::pass::{Outcome, Upstream};
use crate::quorum::{Anchor, AnchorId};
use crate::resp::{Bounds, Protocol, Reply, Request};
use crate::shared::{Locks, Shared};
use crate::stats::Stats;

/// The agent's state of a client.
pub(crate) struct Connection {
    pub shared: Arc<Shared>,
    pub number: u64,
    pub address: String,
    pub protocol: Protocol,
    pub is_logged_in: bool,
    /// The time since which the client has not been logged in.
    stranger_since: Instant,
    pub name: Option<String>,
    /// Over a quorum, the session of this connection.
    anchor: Arc<Anchor>,
    upstream: Option<Upstream>,
}

impl Connection {
    pub fn new(shared: Arc<Shared>, number: u64, address: String) -> Self {
        let is_logged_in = shared.options.login.is_none();
        let anchor = Anchor::new(AnchorId::Connection(number), Duration::ZERO);
        let (protocol, name, upstream, stranger_since) = (Protocol::Resp2, None, None, Instant::now());
        Self { shared, number, address, protocol, is_logged_in, stranger_since, name, anchor, upstream }
    }

    /// Answers until the client leaves, or must be disconnected.
    pub async fn serve(mut self, reader: impl ClientReader, mut writer: impl AsyncWrite + Unpin) {
        let mut out = Vec::new();
        let mut inbox = Inbox::new(reader, self.bounds());
        while self.is_logged_in || self.stranger_since.elapsed() < LOGIN {
            let next = tokio::select! {
                biased;
                () = self.ended() => return,
                next = inbox.next(self.patience()) => next,
            };
            let answer = match next {
                Ok(request) => {
                    let ended = self.ended();
                    tokio::select! {
                        biased;
                        // A client that waits must learn at once that its session has ended.
                        () = ended => return,
                        answer = self.answer(&request, &mut inbox) => answer,
                    }
                }
                Err(NoRequest::Wrong(error)) => {
                    Stats::count(&self.shared.stats.protocol_errors);
                    Answer::Last(Reply::error(error.to_string()))
                }
                Err(NoRequest::Closed | NoRequest::Idle) => return,
            };
            inbox.bounds = self.bounds();
            let is_last = match answer {
                Answer::Reply(reply) => {
                    reply.encode(self.protocol, &mut out);
                    false
                }
                Answer::Last(reply) => {
                    reply.encode(self.protocol, &mut out);
                    true
                }
                Answer::Close => return,
            };
            // A client that does not read its replies gets no more of them.
            if !matches!(timeout(WRITE, writer.write_all(&out)).await, Ok(Ok(()))) || is_last {
                let _ = timeout(WRITE, writer.shutdown()).await;
                return;
            }
            out.clear();
            out.shrink_to(KEPT);
            if inbox.has_more() {
                // Other clients come first. Otherwise a client that sends without a pause would be answered a hundred
                // times in a row.
                tokio::task::yield_now().await;
            }
        }
    }

    async fn answer<R: ClientReader>(&mut self, request: &Request, inbox: &mut Inbox<R>) -> Answer {
        Stats::count(&self.shared.stats.commands);
        let name = request.name();
        if !self.is_logged_in && !BEFORE_LOGIN.contains(&name.as_str()) {
            return Answer::Reply(Reply::error("NOAUTH Authentication required."));
        }
        if let Some(command) = catalog::find(&name).filter(|command| !command.takes(request.words().len())) {
            let name = command.name.to_ascii_lowercase();
            return Answer::Reply(Reply::error(format!("ERR wrong number of arguments for '{name}' command")));
        }
        match self.greeted(&name, request) {
            Greeted::Answer(answer) => {
                if matches!(&answer, Answer::Reply(Reply::Error(text)) if text.starts_with("WRONGPASS")) {
                    sleep(GUESS).await;
                }
                answer
            }
            Greeted::ForServers => match self.shared.locks.clone() {
                Locks::Quorum(quorum) => {
                    let reply = match name.as_str() {
                        "EXISTS" => Some(quorum.exists(request).await),
                        "PING" => Some(quorum.ping().await.unwrap_or_else(|| self.pong(request))),
                        _ => {
                            // A `dyn`, because concrete types would nest too deep for the compiler.
                            let answer: Pin<Box<dyn Future<Output = _> + Send + '_>> =
                                Box::pin(quorum.answer(request, &self.anchor, inbox.closed()));
                            answer.await
                        }
                    };
                    reply.map_or(Answer::Close, Answer::Reply)
                }
                Locks::Passed(pass) => {
                    if self.upstream.is_none() {
                        match pass.open(self.name.as_deref()) {
                            Ok(upstream) => self.upstream = Some(upstream),
                            Err(error) => return Answer::Reply(Reply::error(format!("ERR {error}"))),
                        }
                    }
                    let Some(upstream) = &mut self.upstream else { return Answer::Close };
                    // A `dyn` here, too: concrete types would nest too deep for the compiler.
                    let answer: Pin<Box<dyn Future<Output = _> + Send + '_>> =
                        Box::pin(upstream.answer(request, inbox.closed()));
                    match answer.await {
                        Outcome::Reply(reply) => Answer::Reply(self.completed(&name, request, reply)),
                        Outcome::Gone => Answer::Close,
                        Outcome::Unknown(why) => {
                            let why = format!("closes connection {}: {why}", self.number);
                            self.shared.stats.log(&why);
                            Answer::Close
                        }
                    }
                }
            },
        }
    }

    /// Adds what the agent knows to a server's reply.
    fn completed(&self, name: &str, request: &Request, reply: Reply) -> Reply {
        match (name, reply) {
            ("PING", Reply::Status(_)) => self.pong(request),
            ("INFO", Reply::Bulk(mut text)) if request.words().len() == 1 => {
                text.extend_from_slice(b"\r\n");
                text.extend_from_slice(self.shared.info().as_bytes());
                Reply::Bulk(text)
            }
            (_, reply) => reply,
        }
    }

    /// Waits until the client's session, or a connection to a server that its holds are bound to, has ended. The
    /// client's connection then ends, too.
    fn ended(&self) -> impl Future<Output = ()> + use<> {
        let session = self.anchor.ended();
        let lost = self.upstream.as_ref().map(Upstream::lost);
        async move {
            match lost {
                Some(lost) => tokio::select! {
                    () = session => {}
                    () = lost => {}
                },
                None => session.await,
            }
        }
    }

    fn bounds(&self) -> Bounds {
        if self.is_logged_in { Bounds::default() } else { Bounds::of_strangers() }
    }

    fn patience(&self) -> Option<Duration> {
        if self.is_logged_in {
            self.shared.options.idle
        } else {
            Some(LOGIN.saturating_sub(self.stranger_since.elapsed()))
        }
    }

    /// Forgets that the client has logged in, if the agent has a login. The client may log in again.
    pub fn log_out(&mut self) {
        if self.is_logged_in && self.shared.options.login.is_some() {
            (self.is_logged_in, self.stranger_since) = (false, Instant::now());
        }
    }
}

impl Drop for Connection {
    /// Ends the client's session, however the connection ended.
    fn drop(&mut self) {
        if let Locks::Quorum(quorum) = &self.shared.locks {
            quorum.disconnect(&self.anchor);
        }
        self.shared.stats.connected.fetch_sub(1, Ordering::Relaxed);
        if self.shared.options.verbose {
            self.shared.stats.log(&format!("connection {} has ended", self.number));
        }
    }
}

/// How long a client may take to read a reply.
const WRITE: Duration = Duration::from_secs(10);

/// How many bytes of memory for replies are kept.
const KEPT: usize = 4096;
