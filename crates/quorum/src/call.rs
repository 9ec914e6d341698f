//! What is sent to a server and what comes back.

use std::time::Duration;

/// A message to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which server, counted from 0 in the order all clients share.
    pub to: usize,
    /// Which attempt, counted from 1: each is made by an owner of its own.
    pub attempt: u32,
    /// When it was decided to send it. It leaves then or later.
    pub sent: Duration,
    /// What.
    pub ask: Ask,
}

/// What a [`Call`] asks for. `key`, `owner` and the lease are the caller's to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `ACQUIRE` (or `WLOCK`, `RLOCK`) `key owner PX lease`, never sent twice. It is answered by `Granted` or `Refused`.
    Enter,
    /// The same with `BLOCK`: for so long, or for ever. It needs a connection of its own while it waits. It may follow
    /// an `Enter` that was refused.
    Queue(Option<Duration>),
    /// `RENEW key owner PX lease MINTOKEN token`.
    Confirm(u64),
    /// `RENEW key owner PX lease`.
    Renew,
    /// `RELEASE key owner`, best on the connection that asked to enter, so that it comes after that. A caller that
    /// waits in the queue there ends that wait.
    Release,
    /// `PING`: is it there? Not on a connection that waits.
    Ping,
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Enter` and `Queue`: the fencing token.
    Granted(u64),
    /// To `Enter` and `Queue`: nil.
    Refused,
    /// To `Confirm`, `Renew`, `Release`: 1. To `Ping`: whatever.
    Done,
    /// To `Confirm`, `Renew`, `Release`: nil, the owner has no such hold.
    Gone,
    /// To anything: no connection, an error, or a server that may not count. The command may have been executed.
    Failed,
}
