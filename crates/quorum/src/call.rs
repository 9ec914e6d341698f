//! Requests to a server, and their answers.

use std::time::Duration;

/// A message to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The server, counted from 0 in the order that all clients share.
    pub to: usize,
    /// The attempt, counted from 1: each is made by an owner of its own.
    pub attempt: u32,
    /// When the client decided to send the question. It leaves then or later.
    pub sent: Duration,
    /// The question.
    pub ask: Ask,
}

/// The request of a [`Call`]. `key` and `owner` are the caller's to add, and `PX lease` with [`Terms::lease`] where the
/// call names no lease of its own.
///
/// [`Terms::lease`]: crate::Terms::lease
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `ACQUIRE` (or `WLOCK`, `RLOCK`) `key owner PX lease MINTOKEN token`, never sent twice. It is answered by
    /// `Granted` or `Refused`.
    Enter(Entry),
    /// The same with `BLOCK`: for this long, or forever. It needs a connection of its own while it waits. It may follow
    /// an `Enter` that was refused.
    Queue(Entry, Option<Duration>),
    /// `RENEW key owner PX lease MINTOKEN token`.
    Raise(u64),
    /// `RENEW key owner PX lease`.
    Renew,
    /// `ACQUIRE` (or `WLOCK`, `RLOCK`) `key owner PX lease MINTOKEN token REQUEST id`, with the same id each time. Like
    /// `Raise` and `Renew`, it also goes to a server that does not count yet because it is too young.
    Repair(u64),
    /// `RELEASE key owner ALL`, best on the connection that asked to enter, so that it comes after that. A caller that
    /// waits in the queue there ends that wait.
    Release,
    /// `PING`: is it there? Not on a connection that waits.
    Ping,
}

/// The options of a request to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// For how long, unless renewed.
    pub lease: Duration,
    /// `MINTOKEN`: the token is at least this.
    pub min_token: Option<u64>,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Enter`, `Queue` and `Repair`: the fencing token.
    Granted(u64),
    /// To `Enter`, `Queue` and `Repair`: nil.
    Refused,
    /// To `Raise`, `Renew`, `Release`: 1. To `Ping`: whatever.
    Done,
    /// To `Raise` and `Renew`: 1, from a server that was too young to count when this was sent.
    Reserved,
    /// To `Raise`, `Renew`, `Release`: nil, the owner has no such hold.
    Gone,
    /// To anything: no connection, an error, or a server that may not count. The command may have been executed.
    Failed,
}
