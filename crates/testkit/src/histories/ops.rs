//! The vocabulary of operations: what can happen to the locks of a server. Every tool that plays histories uses it, and
//! runs them in its own way.
//!
//! An option of a command that acquires is a field of [`How`], in a file of its own.

use dlock_core::engine::OpenIf;
use dlock_core::{Entries, Mode};

use super::how::How;
use crate::histories::values::{ClientNo, KeyNo, Lease, Permit, SessionNo, Somebody, TokenPick, TokenRule};

/// The operator's settings, and the operations that follow.
#[derive(Clone, Debug)]
pub struct History {
    /// The lease of a new hold that names none, in ms.
    pub default_lease: u64,
    /// `dlock.session-grace`, in ms.
    pub grace: Option<u64>,
    /// `dlock.max-waiters`.
    pub max_waiters: Option<usize>,
    /// The number of owners that hold the first lock shared when the history begins, bound to the clients in turn.
    pub crowd: usize,
    /// The operations, with the runs of the timer.
    pub steps: Vec<Step>,
}

impl History {
    /// A history without limits, without grace and without steps.
    pub const fn new(default_lease: u64) -> History {
        History { default_lease, grace: None, max_waiters: None, crowd: 0, steps: Vec::new() }
    }
}

/// Something happens, and perhaps the timer runs then.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub op: Op,
    pub then_tick: bool,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Time passes, in µs.
    Wait(u64),
    /// `ACQUIRE`, `RACQUIRE`, `RLOCK`, `WLOCK`, `SACQUIRE`, `MACQUIRE`.
    Enter {
        client: ClientNo,
        /// `None`: `*`.
        owner: Option<Somebody>,
        /// Different keys of one database.
        keys: Vec<KeyNo>,
        /// The end of its lease counts from now.
        how: How,
    },
    /// The last request that had an id comes again.
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
        /// The lease, which counts from now.
        lease: Lease,
        token: TokenRule,
        binds: bool,
        /// The session, if it is one with a name.
        named: Option<SessionNo>,
    },
    /// The wait of the waiter with this number ends: `CLIENT UNBLOCK`, or its time is over.
    Abandon(usize),
    ClientGone(ClientNo),
    /// A heartbeat.
    Beat {
        client: ClientNo,
        session: SessionNo,
        only: OpenIf,
        /// When the session ends without another, in ms.
        timeout: u64,
    },
    /// `DLOCK.SESSION … CLOSE`.
    Close(ClientNo, SessionNo),
    /// The timer runs this many times, as often as it does for named sessions, and nothing else happens.
    Idle(usize),
    /// `PEXPIRE`, in ms from now; 0 deletes.
    Expire(KeyNo, u64),
    Persist(KeyNo),
    Delete(KeyNo),
    /// `SET`: another type.
    Overwrite(KeyNo),
    Rename(KeyNo, KeyNo),
    /// `DUMP` and `RESTORE … REPLACE`, with a TTL or none.
    Restore(KeyNo, KeyNo, Option<u64>),
    Flush(Option<i32>),
    Swap,
    Reload,
    /// The server removes what has expired.
    ExpireActively,
    /// Changes what the server lets timers do to a key.
    Permit(KeyNo, Permit),
    /// The slot of a key moves to another node.
    MoveAway(KeyNo),
    Pause,
    Resume,
    Demote,
    Promote,
    /// The primary dies, and its replica takes over.
    FailOver,
    /// From now on, clients may read every key, or only those that they name.
    Blind(bool),
}
