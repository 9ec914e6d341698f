//! The targets of a binding: the connection of a client, or a session that has a name.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::ClientId;

/// The binding that a command asks for. `S` is a named session: the id that the client sent, or the result of its
/// lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindTo<S> {
    /// Nothing: the binding stays as it is.
    Nothing,
    /// `SESSION`: the connection that sends the command.
    Connection,
    /// `SESSIONID`: a named session.
    Named(S),
}

/// The id that a client has given to a named session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Arc<[u8]>);

impl SessionId {
    /// The longest id in bytes.
    pub const MAX_LEN: usize = 128;

    /// Returns the id of these bytes; `None` if there are none or too many.
    pub fn new(id: &[u8]) -> Option<SessionId> {
        if id.is_empty() || id.len() > Self::MAX_LEN { None } else { Some(SessionId(id.into())) }
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for SessionId {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// Identifies an open named session. A session that is opened with the same id later gets another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedId(pub(crate) u64);

/// Why a command cannot use a named session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSession {
    /// The server does not know the session, or it has ended.
    Unknown,
    /// The command has no user: a module has called it.
    Userless,
}

/// The binding that a request asks for, as the engine has looked it up.
pub type Binding = BindTo<Result<NamedId, NoSession>>;

impl Binding {
    /// Returns the session of a request that `client` has sent.
    #[inline]
    pub(crate) fn key(self, client: ClientId) -> Option<SessionKey> {
        match self {
            BindTo::Connection => Some(SessionKey::Connection(client)),
            BindTo::Named(Ok(named)) => Some(SessionKey::Named(named)),
            BindTo::Nothing | BindTo::Named(Err(_)) => None,
        }
    }
}

/// The session that a hold is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionKey {
    /// The session of a connection.
    Connection(ClientId),
    /// A named session.
    Named(NamedId),
}

impl SessionKey {
    /// Returns the id of the account that pays for the work for this session. No server gives connections ids as large
    /// as those of named sessions.
    pub(crate) fn payer(self) -> ClientId {
        const NAMED: u64 = 1 << 63;
        match self {
            SessionKey::Connection(client) => client,
            SessionKey::Named(named) => ClientId(NAMED | named.0),
        }
    }

    /// Returns the connection, if it is the session of one.
    pub fn connection(self) -> Option<ClientId> {
        match self {
            SessionKey::Connection(client) => Some(client),
            SessionKey::Named(_) => None,
        }
    }
}
