//! One connection, and whether it is still open.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, PushInfo, PushKind, RedisError, Value};
use tokio::sync::watch;

use super::fault::Fault;

/// A connection. Closed when its last clone is dropped, even in the middle of a command: so a request that waits in
/// line leaves the line when nobody wants it any more.
#[derive(Clone)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    info: ConnectionInfo,
    closed: watch::Receiver<bool>,
}

impl Link {
    pub async fn open(info: &ConnectionInfo) -> Result<Self, Fault> {
        let (end, closed) = watch::channel(false);
        let told = move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                end.send_replace(true);
            }
            Ok::<_, RedisError>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(None)
            .set_push_sender(told);
        // What is sent behind a request that waits does not wait for its reply.
        let info = &info.clone().set_tcp_settings(info.tcp_settings().clone().set_nodelay(true));
        let opened = async { Client::open(info.clone())?.get_multiplexed_async_connection_with_config(&config).await };
        let connection = opened.await.map_err(|error| match Fault::of(&error, info) {
            Fault::Cut(why) => Fault::NoWay(format!("{}: {why}", info.addr())),
            fault => fault,
        })?;
        Ok(Self { connection, info: info.clone(), closed })
    }

    pub fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Where it leads, as the key of a table.
    pub fn address(&self) -> String {
        self.info.addr().to_string()
    }

    pub fn is_closed(&self) -> bool {
        *self.closed.borrow() || self.closed.has_changed().is_err()
    }

    pub fn is(&self, other: &Self) -> bool {
        self.closed.same_channel(&other.closed)
    }

    /// Waits for the connection to end.
    pub async fn closed(&self) {
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// The reply, waiting for it no longer than that.
    pub async fn ask(&self, cmd: &Cmd, patience: Option<Duration>) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        let reply = connection.send_packed_command(cmd);
        let reply = match patience {
            None => reply.await,
            Some(patience) => match tokio::time::timeout(patience, reply).await {
                Ok(reply) => reply,
                Err(_) => return Err(Fault::Cut(format!("{}: no reply within {patience:?}", self.info.addr()))),
            },
        };
        reply.and_then(Value::extract_error).map_err(|error| match Fault::of(&error, &self.info) {
            Fault::Cut(why) => Fault::Cut(format!("{}: {why}", self.info.addr())),
            fault => fault,
        })
    }
}

/// How long a connection may take to be made, with the handshake.
const CONNECT: Duration = Duration::from_secs(2);
