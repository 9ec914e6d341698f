//! Why a command has no usable answer, which decides what to do next.

use redis::{ConnectionInfo, ErrorKind, RedisError, ServerErrorKind};

use crate::error::{Cause, Error};
use crate::profile;

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The server refused for good. Nothing was changed.
    Refused(Cause),
    /// Not now, or not here: nothing was changed, and it is worth asking again.
    Later(Cause),
    /// Nothing could be sent.
    NotSent(Cause),
    /// Sent, and no answer came: it may have been executed.
    OutcomeUnknown(Cause),
    /// Too few replicas acknowledged a grant, which was released, or a renewal.
    TooFewReplicas { acknowledged: u32, wanted: u32 },
    /// The slot is on another node.
    Moved(u16, Box<ConnectionInfo>),
    /// The slot is on another node, for this command only.
    Ask(Box<ConnectionInfo>),
}

impl Fault {
    /// Classifies an error that came over a connection to `from`.
    pub fn of(error: RedisError, from: &ConnectionInfo) -> Self {
        match error.kind() {
            ErrorKind::Server(kind) => Self::of_server(kind, error, from),
            // The wait was ended from outside, or by a demotion: the grant may have come before.
            ErrorKind::Extension if error.code() == Some("UNBLOCKED") => Self::OutcomeUnknown(error.into()),
            ErrorKind::Extension
            | ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::RESP3NotSupported => Self::Refused(error.into()),
            _ => Self::OutcomeUnknown(Cause::from(error).at(from.addr())),
        }
    }

    fn of_server(kind: ServerErrorKind, error: RedisError, from: &ConnectionInfo) -> Self {
        match kind {
            ServerErrorKind::Moved | ServerErrorKind::Ask => match redirection(&error, from) {
                Some((slot, node)) if kind == ServerErrorKind::Moved => Self::Moved(slot, Box::new(node)),
                Some((_, node)) => Self::Ask(Box::new(node)),
                None => Self::Later(error.into()),
            },
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly => Self::Later(error.into()),
            _ => match Cause::from(error) {
                cause if LATER.iter().any(|text| cause.message().starts_with(text)) => Self::Later(cause),
                cause => Self::Refused(cause),
            },
        }
    }

    /// Turns the fault of a command into that of an earlier one on the same connection, which was executed.
    pub fn of_earlier_command(self) -> Self {
        if let Self::Refused(_) = self { self } else { Self::OutcomeUnknown(self.cause()) }
    }

    pub fn cause(self) -> Cause {
        match self {
            Self::Refused(cause) | Self::Later(cause) | Self::NotSent(cause) | Self::OutcomeUnknown(cause) => cause,
            Self::TooFewReplicas { .. } => Error::from(self).to_string().into(),
            Self::Moved(_, node) | Self::Ask(node) => format!("the key is at {}", node.addr()).into(),
        }
    }

    /// Returns whether the command may have been executed: no answer came, or an agent said `LOADING` because it has no
    /// answer of its servers. A server that starts says `LOADING Redis is loading …`, with its own name; an agent may
    /// quote that text further on.
    pub fn leaves_open(&self) -> bool {
        match self {
            Self::OutcomeUnknown(_) => true,
            Self::Later(cause) if cause.code() == Some("LOADING") => {
                !cause.message().split_ascii_whitespace().skip(2).take(2).eq(["is", "loading"])
            }
            _ => false,
        }
    }

    /// Returns whether the connection has ended before the answer came.
    pub fn has_ended_connection(&self) -> bool {
        // With a code, the server has answered.
        matches!(self, Self::OutcomeUnknown(cause) if cause.is_end_of_connection() && cause.code().is_none())
    }

    /// Returns whether the server does not know the session.
    pub fn is_no_session(&self) -> bool {
        matches!(self, Self::Refused(cause) if cause.code() == Some("NOSESSION"))
    }

    /// Returns whether the key has another type.
    pub fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Refused(cause) if cause.code() == Some("WRONGTYPE"))
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(cause) => Self::Refused(cause),
            Fault::TooFewReplicas { acknowledged, wanted } => Self::TooFewReplicas { acknowledged, wanted },
            other => Self::Unreachable(other.cause()),
        }
    }
}

/// The errors without a code of their own that mean: not now, or not here. `WAIT` says so on a server that was demoted.
const LATER: [&str; 2] = ["ERR max number of clients", "ERR WAIT cannot be used with replica"];

/// Returns the slot, and the node with the login of `from`. A redirection without a host means that of `from`.
fn redirection(error: &RedisError, from: &ConnectionInfo) -> Option<(u16, ConnectionInfo)> {
    let (node, slot) = error.redirect_node()?;
    let (host, port) = node.rsplit_once(':')?;
    let own = from.addr().to_string();
    let host = if host.is_empty() { own.rsplit_once(':')?.0 } else { host };
    Some((slot, profile::at(from, host, port.parse().ok()?)))
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use super::*;

    /// Returns what the table writes down for an error.
    fn meaning(reply: &str) -> &'static str {
        let answered =
            redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).and_then(redis::Value::extract_error);
        let from = redis::IntoConnectionInfo::into_connection_info("redis://127.0.0.1").expect("a URL");
        let fault = Fault::of(answered.expect_err(reply), &from);
        if fault.is_wrong_type() {
            return "foreign";
        }
        if fault.is_no_session() {
            return "session";
        }
        match fault {
            fault if fault.leaves_open() => "open",
            Fault::Later(_) | Fault::Moved(..) | Fault::Ask(_) => "elsewhere",
            Fault::Refused(cause) if cause.is_module_missing() => "module",
            _ => "final",
        }
    }

    #[test]
    fn every_error_means_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/tables/replies.txt");
        let table = std::fs::read_to_string(path).expect("the table");
        let (mut rows, mut wrong) = (0, Vec::new());
        for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (reply, expected) = line.split_once('"').expect(line).1.split_once("\" => ").expect(line);
            // The guard goes on after any failure of a renewal, and the caller sees the code.
            let expected = if let "paused" | "deadlock" = expected { "final" } else { expected };
            rows += 1;
            let found = meaning(reply);
            if found != expected {
                wrong.push(format!("{reply}: {found}, not {expected}"));
            }
        }
        assert!(wrong.is_empty() && rows > 20, "{rows} rows\n{}", wrong.join("\n"));
    }
}
