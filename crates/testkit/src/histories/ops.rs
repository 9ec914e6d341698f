//! The operations on the locks of a server that a history may have. All tools that play histories share them, and each
//! tool runs them in its own way.
//!
//! The options of commands that acquire are in [`How`].

use dlock_core::engine::{OpenIf, Permission};
use dlock_core::{Entries, Mode};

use super::how::How;
use crate::histories::values::{ClientNo, KeyNo, Lease, SessionNo, Somebody, TokenPick, TokenRule};

/// The settings of a server, and a sequence of operations.
#[derive(Clone, Debug)]
pub struct History {
    /// The lease of a new hold if the command gives none, in ms.
    pub default_lease: u64,
    /// `dlock.session-grace`, in ms.
    pub grace: Option<u64>,
    /// `dlock.max-waiters`.
    pub max_waiters: Option<usize>,
    /// The number of owners that hold the first lock shared when the history begins. The holds are bound to the
    /// connections of the clients, in turn.
    pub crowd: usize,
    /// The operations and the runs of the timer.
    pub steps: Vec<Step>,
}

impl History {
    /// Returns a history without limits, grace and steps.
    pub const fn new(default_lease: u64) -> History {
        History { default_lease, grace: None, max_waiters: None, crowd: 0, steps: Vec::new() }
    }
}

/// An operation, and whether the timer runs after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub op: Op,
    pub then_tick: bool,
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Time passes, in µs.
    Wait(u64),
    /// `ACQUIRE`, `RACQUIRE`, `RLOCK`, `WLOCK`, `SACQUIRE`, `MACQUIRE`.
    Enter {
        client: ClientNo,
        /// `None` stands for `*`: the server generates the owner.
        owner: Option<Somebody>,
        /// Different keys of one database.
        keys: Vec<KeyNo>,
        /// The options. An absolute end of a lease is in ms from the time of the operation.
        how: How,
    },
    /// The last request with an id is sent again.
    Resend {
        client: ClientNo,
        block: bool,
    },
    Release {
        key: KeyNo,
        who: Somebody,
        mode: Option<Mode>,
        entries: Entries,
        token: Option<TokenPick>,
        id: Option<u8>,
    },
    Renew {
        client: ClientNo,
        key: KeyNo,
        who: Somebody,
        mode: Option<Mode>,
        /// The lease. An absolute end is in ms from the time of the operation.
        lease: Lease,
        token: TokenRule,
        /// Whether the hold becomes bound to a session.
        binds: bool,
        /// The named session that the hold becomes bound to. `None` stands for the session of the connection.
        named: Option<SessionNo>,
    },
    /// A wait ends by `CLIENT UNBLOCK` or its time limit: that at this place among all waiting requests.
    Abandon(usize),
    /// The connection of a client ends.
    ClientGone(ClientNo),
    /// `DLOCK.SESSION`: a heartbeat.
    Beat {
        client: ClientNo,
        session: SessionNo,
        only: OpenIf,
        /// The time after which the session ends without another heartbeat, in ms.
        timeout: u64,
    },
    /// `DLOCK.SESSION … CLOSE`.
    Close(ClientNo, SessionNo),
    /// Nothing happens, except that the timer runs this many times, at its interval for named sessions.
    Idle(usize),
    /// `PEXPIRE`, in ms from now; 0 deletes.
    Expire(KeyNo, u64),
    Persist(KeyNo),
    Delete(KeyNo),
    /// `SET`: the key gets another type.
    Overwrite(KeyNo),
    Rename(KeyNo, KeyNo),
    /// `DUMP` of the first key and `RESTORE … REPLACE` of the second, with or without a TTL.
    Restore(KeyNo, KeyNo, Option<u64>),
    /// `FLUSHDB` or `FLUSHALL`.
    Flush(Option<i32>),
    /// `SWAPDB`.
    Swap,
    /// The server saves its keys and loads them.
    Reload,
    /// The server removes all expired keys.
    ExpireActively,
    /// Sets the permission of timers for a key.
    SetPermission(KeyNo, Permission),
    /// The slot of a key moves to another node.
    MoveAway(KeyNo),
    /// `CLIENT PAUSE`: the server writes nothing until `Resume`.
    Pause,
    Resume,
    Demote,
    Promote,
    /// The primary dies, and its replica takes over.
    FailOver,
    /// Sets whether clients may read only the keys that they name.
    Blind(bool),
}
