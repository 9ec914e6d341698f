//! Requests to a server, and their answers.

use std::time::Duration;

/// A request to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The server, counted from 0 in the order that all clients share.
    pub to: usize,
    /// The attempt, counted from 1. Each attempt has an owner of its own.
    pub attempt: u32,
    /// When the client decided to send the request. The request leaves then or later.
    pub sent: Duration,
    /// The command.
    pub ask: Ask,
}

/// The command of a [`Call`]. The caller adds `key` and `owner`, and `PX lease` with [`Terms::lease`] if the call has no
/// lease of its own.
///
/// [`Terms::lease`]: crate::Terms::lease
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `ACQUIRE` (or `WLOCK`, `RLOCK`) `key owner PX lease MINTOKEN token`, never sent twice. The answer is `Granted` or
    /// `Refused`.
    Enter(Entry),
    /// `Enter` with `BLOCK`, for this long or forever. The request needs a connection of its own while it waits. It may
    /// follow an `Enter` that was refused.
    Queue(Entry, Option<Duration>),
    /// `RENEW key owner PX lease MINTOKEN token`.
    Raise(u64),
    /// `RENEW key owner PX lease`.
    Renew,
    /// `ACQUIRE` (or `WLOCK`, `RLOCK`) `key owner PX lease MINTOKEN token REQUEST id`, with the same id each time. Like
    /// `Raise` and `Renew`, it also goes to a server that does not count yet because it is too young.
    Repair(u64),
    /// `RELEASE key owner ALL`, preferably on the connection of the request for the lock, so that it arrives after that
    /// request. If the request still waits in the server's queue, the caller ends that wait.
    Release,
    /// `PING`, to learn whether the server is up, on a connection that does not wait.
    Ping,
}

/// The options of a request for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `PX`: the lease.
    pub lease: Duration,
    /// `MINTOKEN`: the lowest token that the server may grant.
    pub min_token: Option<u64>,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Enter`, `Queue` and `Repair`: granted, with this fencing token.
    Granted(u64),
    /// To `Enter`, `Queue` and `Repair`: nil.
    Refused,
    /// To `Raise`, `Renew`, `Release`: 1. To `Ping`: any reply.
    Done,
    /// To `Raise` and `Renew`: 1, from a server that was too young to count when the call was sent.
    Reserved,
    /// To `Raise`, `Renew`, `Release`: nil, because the owner has no such hold.
    Gone,
    /// To anything: no connection, an error, or a server that may not count. The command may have been executed.
    Failed,
}
