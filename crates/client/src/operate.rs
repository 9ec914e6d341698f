//! Servers and Sentinels one by one, for programs that operate them: each command goes to the node that is named.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ConnectionInfo, FromRedisValue};

use crate::client::Client;
use crate::error::Error;
use crate::profile::Setup;
use crate::profile::{Place, at};
use crate::server::link::Link;

/// The servers or Sentinels of a URL, and the login there: see [`Client::operator`].
pub struct Operator {
    place: Place,
    setup: Setup,
}

/// A server or a Sentinel. It has one connection, which is made when it is first needed, and again after it has ended.
/// Clones share it.
#[derive(Clone)]
pub struct Node {
    info: ConnectionInfo,
    setup: Setup,
    link: Arc<Mutex<Option<Link>>>,
}

impl Client {
    /// Returns the servers one by one, for programs that operate them, such as a failover.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a quorum.
    pub fn operator(&self) -> Result<Operator, Error> {
        let (place, setup) = self.backend().server()?.origin();
        Ok(Operator { place: place.clone(), setup: setup.clone() })
    }
}

impl Operator {
    /// Returns the name that Sentinels know the primary by, and the Sentinels, if the URL names some.
    pub fn sentinels(&self) -> Option<(&str, Vec<Node>)> {
        match &self.place {
            Place::Nodes(_) => None,
            // The login of Sentinels is in their address: the provider of credentials is for servers.
            Place::Sentinels { sentinels, name, .. } => {
                Some((name, sentinels.iter().map(|info| Node::new(info.clone(), Setup::default())).collect()))
            }
        }
    }

    /// Returns the servers that the URL names. Empty if the URL names Sentinels.
    pub fn nodes(&self) -> Vec<Node> {
        match &self.place {
            Place::Nodes(nodes) => nodes.iter().map(|info| Node::new(info.clone(), self.setup.clone())).collect(),
            Place::Sentinels { .. } => Vec::new(),
        }
    }

    /// Returns the server at that address, with the login of the URL.
    pub fn server_at(&self, host: &str, port: u16) -> Option<Node> {
        let login = match &self.place {
            Place::Nodes(nodes) => nodes.first()?,
            Place::Sentinels { primary, .. } => primary,
        };
        Some(Node::new(at(login, host, port), self.setup.clone()))
    }
}

impl Node {
    fn new(info: ConnectionInfo, setup: Setup) -> Self {
        Self { info, setup, link: Arc::default() }
    }

    /// Returns the host and the port, or the path of a socket.
    pub fn address(&self) -> String {
        self.info.addr().to_string()
    }

    /// Sends a command and waits for its reply no longer than `within`, which includes the time to connect.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the node answered with an error, and [`Error::Unreachable`] if it did not answer: then the
    /// command may have been executed.
    pub async fn ask<T: FromRedisValue>(&self, command: &[&str], within: Duration) -> Result<T, Error> {
        let mut packed = Cmd::new();
        packed.arg(command);
        let asked = async { self.link().await?.ask(&packed, None).await.map_err(Error::from) };
        let reply = match tokio::time::timeout(within, asked).await {
            Ok(reply) => reply,
            Err(_) => Err(Error::Unreachable(format!("{}: no reply within {within:?}", self.address()).into())),
        };
        if let Err(Error::Unreachable(_)) = reply {
            *self.link.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        redis::from_redis_value(reply?).map_err(|error| Error::Refused(redis::RedisError::from(error).into()))
    }

    async fn link(&self) -> Result<Link, Error> {
        let known = self.link.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(link) = known.filter(|link| !link.is_closed()) {
            return Ok(link);
        }
        let link = Link::open(&self.info, &self.setup).await?;
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.clone());
        Ok(link)
    }
}

/// Shows the addresses without logins.
impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("place", &format_args!("{}", self.place)).finish_non_exhaustive()
    }
}

/// Shows the address without the login.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("address", &format_args!("{}", self.info.addr())).finish_non_exhaustive()
    }
}
