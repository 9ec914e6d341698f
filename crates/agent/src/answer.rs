//! The answer to a client's request.

use crate::resp::Reply;

/// The answer to a request.
pub(crate) enum Answer {
    Reply(Reply),
    /// The reply is the last one.
    Last(Reply),
    /// No reply: the connection is closed.
    Close,
}

/// Whether the agent answers a request by itself.
pub(crate) enum Greeted {
    Answer(Answer),
    /// The servers have to be asked.
    ForServers,
}
