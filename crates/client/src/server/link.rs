//! A connection, and whether it is still open.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, PushInfo, PushKind, RedisError, Value, cmd};
use tokio::sync::watch;

use super::fault::Fault;
use crate::error::Cause;
use crate::join::join_all;
use crate::profile::Setup;

/// A connection. Closed when its last clone is dropped, even in the middle of a command, so that a request without a
/// caller leaves the queue.
#[derive(Clone)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    info: ConnectionInfo,
    closed: watch::Receiver<bool>,
    /// Changes when the server says that a tracked key has changed.
    touched: watch::Receiver<()>,
    /// The number of commands whose replies were not read: abandoned, or in flight.
    unread: Arc<AtomicUsize>,
    /// Set for a connection of the program, whose end is not reported: a command that fails is the first sign.
    _unreported: Option<Arc<watch::Sender<bool>>>,
}

impl Link {
    pub async fn open(info: &ConnectionInfo, setup: &Setup) -> Result<Self, Fault> {
        let info = setup
            .log_in(info.clone())
            .await
            .map_err(|error| Fault::NotSent(Cause::from(format!("no credentials: {error}")).at(info.addr())))?;
        let (end, closed) = watch::channel(false);
        let (touch, touched) = watch::channel(());
        let on_push = move |push: PushInfo| {
            match push.kind {
                PushKind::Disconnection => _ = end.send_replace(true),
                PushKind::Invalidate => touch.send_replace(()),
                _ => {}
            }
            Ok::<_, RedisError>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(IN_ORDER)
            .set_push_sender(on_push);
        // A command behind a request that waits must be sent before the reply to that request.
        let settings = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_tcp_settings(settings);
        let opened = async { Client::open(info.clone())?.get_multiplexed_async_connection_with_config(&config).await };
        let connection = opened.await.map_err(|error| match Fault::of(error, &info) {
            Fault::OutcomeUnknown(cause) => Fault::NotSent(cause),
            fault => fault,
        })?;
        let link = Self { connection, info, closed, touched, unread: Arc::default(), _unreported: None };
        if let Some(name) = &setup.client_name {
            link.ask(cmd("CLIENT").arg("SETNAME").arg(name), Some(CONNECT)).await?;
        }
        Ok(link)
    }

    /// Wraps a connection of the program. Ignores pushes.
    pub fn of(connection: MultiplexedConnection, info: ConnectionInfo) -> Self {
        let ((end, closed), (_, touched)) = (watch::channel(false), watch::channel(()));
        Self { connection, info, closed, touched, unread: Arc::default(), _unreported: Some(Arc::new(end)) }
    }

    pub fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Returns the address as the key of a table.
    pub fn address(&self) -> String {
        self.info.addr().to_string()
    }

    pub fn is_closed(&self) -> bool {
        *self.closed.borrow() || self.closed.has_changed().is_err()
    }

    /// Returns whether every reply on it was read. Otherwise the next command would have to wait for an abandoned
    /// reply.
    pub fn is_clear(&self) -> bool {
        self.unread.load(Ordering::Acquire) == 0 && !self.is_closed()
    }

    pub fn is(&self, other: &Self) -> bool {
        self.closed.same_channel(&other.closed)
    }

    /// Waits for the connection to end, without keeping it open.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut closed = self.closed.clone();
        async move {
            let _ = closed.wait_for(|closed| *closed).await;
        }
    }

    /// Forgets earlier changes of tracked keys.
    pub fn forget_touches(&mut self) {
        self.touched.mark_unchanged();
    }

    /// Waits until a key changes that was read on this connection after `CLIENT TRACKING ON`. False: the connection has
    /// ended.
    pub async fn touched(&mut self) -> bool {
        let mut closed = self.closed.clone();
        tokio::select! {
            changed = self.touched.changed() => changed.is_ok(),
            _ = closed.wait_for(|closed| *closed) => false,
        }
    }

    /// Sends a command and returns its reply, waiting for it no longer than `within`.
    pub async fn ask(&self, cmd: &Cmd, within: Option<Duration>) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        // Pinned here, so that it is not moved: almost every future of this crate contains this one.
        let reply = pin!(connection.send_packed_command(cmd));
        self.read(reply, within).await?.extract_error().map_err(|error| self.fault(error))
    }

    /// Sends a command behind `ASKING`, which a node answers although it does not have the slot yet. Both are sent as
    /// one: on a shared connection, no other command may come between.
    pub async fn ask_importing(&self, cmd: &Cmd, within: Option<Duration>) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        let mut both = redis::pipe();
        both.cmd("ASKING").ignore().add_command(cmd.clone());
        let replies = self.read(pin!(connection.send_packed_commands(&both, 1, 1)), within).await?;
        let reply = replies.into_iter().next().unwrap_or(Value::Nil);
        reply.extract_error().map_err(|error| self.fault(error))
    }

    /// Sends two commands as one. Returns both replies. Fails only if the first reply is an error.
    pub async fn ask_both(
        &self,
        command: &Cmd,
        other: &Cmd,
        within: Option<Duration>,
    ) -> Result<(Value, Value), Fault> {
        let mut connection = self.connection.clone();
        let mut both = redis::pipe();
        both.add_command(command.clone()).add_command(other.clone());
        let replies = self.read(pin!(connection.send_packed_commands(&both, 0, 2)), within).await?;
        let mut replies = replies.into_iter();
        let reply = replies.next().unwrap_or(Value::Nil).extract_error().map_err(|error| self.fault(error))?;
        Ok((reply, replies.next().unwrap_or(Value::Nil)))
    }

    /// Reads a reply, for all other functions. A dropped future or a timeout leaves the reply unread.
    async fn read<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
        within: Option<Duration>,
    ) -> Result<T, Fault> {
        self.unread.fetch_add(1, Ordering::AcqRel);
        let reply = match within {
            None => reply.await,
            Some(within) => match tokio::time::timeout(within, reply).await {
                Ok(reply) => reply,
                Err(_) => return Err(self.silent(within)),
            },
        };
        self.unread.fetch_sub(1, Ordering::AcqRel);
        reply.map_err(|error| self.fault(error))
    }

    fn fault(&self, error: RedisError) -> Fault {
        Fault::of(error, &self.info)
    }

    fn silent(&self, within: Duration) -> Fault {
        Fault::OutcomeUnknown(format!("{}: no reply within {within:?}", self.info.addr()).into())
    }

    /// Sends several commands at once. The first reply may take `within`; if it is nil, returns it alone. Otherwise
    /// sets `has_begun` and returns all replies, for which the others may take `rest` longer. If one of the others has
    /// no answer, the outcome of all is unknown: the first was executed.
    pub async fn ask_all(
        &self,
        commands: &[Cmd],
        within: Option<Duration>,
        rest: Duration,
        has_begun: &AtomicBool,
    ) -> Result<Vec<Value>, Fault> {
        let Some((first, others)) = commands.split_first() else { return Ok(Vec::new()) };
        let mut first = pin!(self.ask(first, within));
        let mut others = pin!(join_all(others.iter().map(|command| self.ask(command, None))));
        let mut early = None;
        let first = loop {
            // The first command is polled first, so that it is sent first.
            tokio::select! {
                biased;
                reply = &mut first => break reply?,
                replies = &mut others, if early.is_none() => early = Some(replies),
            }
        };
        if first == Value::Nil {
            return Ok(vec![first]);
        }
        has_begun.store(true, Ordering::Release);
        let others = match early {
            Some(replies) => replies,
            None => match tokio::time::timeout(rest, others).await {
                Ok(replies) => replies,
                Err(_) => return Err(self.silent(rest)),
            },
        };
        std::iter::once(Ok(first))
            .chain(others.into_iter().map(|reply| reply.map_err(Fault::of_earlier_command)))
            .collect()
    }
}

/// How many commands a connection queues at their first poll. If the queue were full, a command would wait for room,
/// and the release of an abandoned command could overtake it.
const IN_ORDER: usize = 1 << 16;

/// How long connecting may take, with the handshake.
const CONNECT: Duration = Duration::from_secs(2);
