//! Why a command brought no answer, and so what may be done next.

use redis::{ConnectionInfo, ErrorKind, RedisError, ServerErrorKind};

use crate::address;
use crate::error::Error;

#[derive(Debug)]
pub(crate) enum Fault {
    /// The server said no for good. Nothing was changed.
    Refused(String),
    /// Not now, or not here: nothing was changed, and it is worth asking again.
    Later(String),
    /// Nothing could be sent.
    NoWay(String),
    /// Sent, and no answer came: it may have been executed.
    Cut(String),
    /// The slot lives at that node.
    Moved(u16, Box<ConnectionInfo>),
    /// This once, that node has it.
    Ask(Box<ConnectionInfo>),
}

impl Fault {
    /// The meaning of an error that came over a connection to `from`.
    pub fn of(error: &RedisError, from: &ConnectionInfo) -> Self {
        match error.kind() {
            ErrorKind::Server(kind) => Self::of_server(kind, error, from),
            // The wait was ended from outside, or by a demotion: the grant may have come before.
            ErrorKind::Extension if error.code() == Some("UNBLOCKED") => Self::Cut(text(error)),
            ErrorKind::Extension
            | ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::RESP3NotSupported => Self::Refused(text(error)),
            _ => Self::Cut(text(error)),
        }
    }

    fn of_server(kind: ServerErrorKind, error: &RedisError, from: &ConnectionInfo) -> Self {
        match kind {
            ServerErrorKind::Moved | ServerErrorKind::Ask => match redirection(error, from) {
                Some((slot, node)) if kind == ServerErrorKind::Moved => Self::Moved(slot, Box::new(node)),
                Some((_, node)) => Self::Ask(Box::new(node)),
                None => Self::Later(text(error)),
            },
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly => Self::Later(text(error)),
            _ => Self::Refused(text(error)),
        }
    }

    pub fn why(self) -> String {
        match self {
            Self::Refused(why) | Self::Later(why) | Self::NoWay(why) | Self::Cut(why) => why,
            Self::Moved(_, node) | Self::Ask(node) => format!("the key is at {}", node.addr()),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(why) => Self::Refused(why),
            other => Self::Unreachable(other.why()),
        }
    }
}

/// The slot, and the node with the login of the one that named it. It may leave out its own host.
fn redirection(error: &RedisError, from: &ConnectionInfo) -> Option<(u16, ConnectionInfo)> {
    let (node, slot) = error.redirect_node()?;
    let (host, port) = node.rsplit_once(':')?;
    let own = from.addr().to_string();
    let host = if host.is_empty() { own.rsplit_once(':')?.0 } else { host };
    Some((slot, address::at(from, host, port.parse().ok()?)))
}

/// As the server said it, or as the library did.
fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}
