//! The consequence of a request of a client.

use crate::resp::Reply;

/// The consequence of a request.
pub(crate) enum Answer {
    Reply(Reply),
    /// The reply is the last one.
    Last(Reply),
    /// Nothing, and the connection is closed.
    Close,
}

/// Whether the agent answers by itself.
pub(crate) enum Greeted {
    Answer(Answer),
    /// The servers have to be asked.
    ForServers,
}
