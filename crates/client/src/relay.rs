//! Commands of other programs, passed on to the server of their key.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::client::Client;
use crate::error::{Cause, Error};
use crate::join::join_all;
use crate::server::fault::Fault;
use crate::server::link::Link;
use crate::server::nodes::{Lane, Nodes};

/// Passes on commands of another program: see [`Client::relay`]. Has one connection to each server that a command was
/// sent to. Follows Sentinels and the redirections of a cluster. Nobody else uses its connections, so a command may
/// block, and what a server binds to the connection is bound to the relay.
pub struct Relay {
    nodes: Nodes,
}

/// A connection of a [`Relay`].
#[derive(Clone)]
pub struct RelayLink(Link);

/// Why a command that was passed on has no reply.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unanswered {
    /// The server replied with an error: its code and its text.
    Refused(Cause),
    /// Not now, or not here (`READONLY`, `LOADING`, …). Nothing was changed, and it is worth asking again.
    Later(Cause),
    /// Nothing was sent.
    NotSent(Cause),
    /// The command was sent, and no answer came, or an agent said that it got none: it may have been executed. In the
    /// first case, the connection is closed.
    Unknown(Cause),
}

impl Client {
    /// Returns a way to pass on the commands of one other program. Connects when it is first needed. `name` is the name
    /// of its connections, which `CLIENT LIST` shows.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a quorum, whose servers are asked one by one, and for a name with blanks or special
    /// characters.
    pub fn relay(&self, name: Option<&str>) -> Result<Relay, Error> {
        let (place, setup) = self.backend().server()?.origin();
        let mut setup = setup.clone();
        if let Some(name) = name {
            if name.contains(|c: char| !c.is_ascii_graphic()) {
                return Err(Error::Invalid("the name of a client has no blanks and no special characters".to_owned()));
            }
            setup.client_name = Some(name.to_owned());
        }
        Ok(Relay { nodes: Nodes::new(place.clone(), setup) })
    }
}

impl Relay {
    /// Sends a command to the server of the key. Waits for its reply no longer than `within`; `None`: as long as it
    /// takes. If this future is dropped, drop the relay, too: the reply is unread.
    ///
    /// # Errors
    ///
    /// [`Unanswered`]: no reply, or an error.
    pub async fn ask(
        &self,
        key: &[u8],
        command: &Cmd,
        within: Option<Duration>,
    ) -> Result<(Value, RelayLink), Unanswered> {
        let (reply, link) = self.nodes.call(key, command, Lane::Shared, within).await?;
        Ok((reply, RelayLink(link)))
    }

    /// Returns the connection that a command for this key is sent on next. Opens it if there is none.
    ///
    /// # Errors
    ///
    /// [`Unanswered::NotSent`]: there is no server to connect to.
    pub async fn link(&self, key: &[u8]) -> Result<RelayLink, Unanswered> {
        Ok(RelayLink(self.nodes.link(key).await?))
    }

    /// Sends a command to each primary that has slots; without a cluster to the one server. Returns their answers.
    ///
    /// # Errors
    ///
    /// [`Unanswered::NotSent`]: which servers there are is not known.
    pub async fn ask_each(
        &self,
        command: &Cmd,
        within: Duration,
    ) -> Result<Vec<Result<(Value, RelayLink), Unanswered>>, Unanswered> {
        let primaries = self.nodes.primaries().await?;
        let asked = primaries.iter().map(|node| async move {
            let link = self.nodes.link_to(node, Lane::Shared).await?;
            match link.ask(command, Some(within)).await {
                Ok(reply) => Ok((reply, RelayLink(link))),
                Err(fault) => {
                    if !matches!(fault, Fault::Refused(_)) {
                        self.nodes.forget(&link);
                    }
                    Err(fault.into())
                }
            }
        });
        Ok(join_all(asked).await)
    }
}

impl RelayLink {
    /// Waits for the connection to end, without keeping it open.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.closed()
    }

    /// Returns whether both lead to the same address.
    pub fn leads_where(&self, other: &Self) -> bool {
        self.0.address() == other.0.address()
    }

    /// Returns whether both are the same connection.
    pub fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

impl Unanswered {
    /// Returns what happened, with the server's code first if it said one.
    pub fn cause(&self) -> &Cause {
        match self {
            Self::Refused(cause) | Self::Later(cause) | Self::NotSent(cause) | Self::Unknown(cause) => cause,
        }
    }
}

impl From<Fault> for Unanswered {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(cause) => Self::Refused(cause),
            open if open.leaves_open() => Self::Unknown(open.cause()),
            Fault::Later(cause) => Self::Later(cause),
            Fault::NotSent(cause) => Self::NotSent(cause),
            // Redirections were followed as far as they lead.
            other => Self::Later(other.cause()),
        }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cause().message())
    }
}

impl std::error::Error for Unanswered {}

/// Shows the place without logins.
impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("place", &format_args!("{}", self.nodes.place())).finish_non_exhaustive()
    }
}

/// Shows the address.
impl fmt::Debug for RelayLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayLink").field("address", &self.0.address()).finish_non_exhaustive()
    }
}
