//! What the agent does about a client's request.

use crate::resp::Reply;

/// The answer to a request.
pub(crate) enum Answer {
    Reply(Reply),
    /// A reply after which the connection is closed.
    Last(Reply),
    /// No reply: the connection is closed at once.
    Close,
}

/// What the agent can say to a request without a server.
pub(crate) enum Greeted {
    Answer(Answer),
    /// Nothing: the servers have to be asked.
    ForServers,
}
