//! The agent's answers to a client's request.

use crate::resp::Reply;

/// The answer to a request.
pub(crate) enum Answer {
    Reply(Reply),
    /// A reply after which the connection is closed.
    Last(Reply),
    /// No reply: the connection is closed at once.
    Close,
}

/// An answer that the agent gives without a server, if it can.
pub(crate) enum Greeted {
    Answer(Answer),
    /// Nothing: the servers have to be asked.
    ForServers,
}
