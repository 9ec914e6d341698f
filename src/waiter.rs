//! One client that waits, as the line and the server's callbacks share it.

use std::cell::Cell;
use std::rc::Rc;

use dlock_core::{Owner, Place};

use crate::error::Error;
use crate::ffi::blocking::Blocked;
use crate::ffi::context::Now;
use crate::lines::{LockLine, Waits};
use crate::reply::Reply;

/// A client that waits.
pub struct Waiter {
    /// For which lock.
    pub line: Rc<LockLine>,
    /// Where it stands; `None` when it has left the line.
    pub place: Cell<Option<Place>>,
    /// Whether the server made the owner up, so that the client has to be told.
    pub made_up: bool,
    /// Whether its hold is to be bound to the client.
    pub binds: bool,
    /// Since when.
    pub since: Now,
    /// The id of the client.
    pub client: u64,
    /// The server's handle, until the client is gone.
    pub blocked: Cell<Option<Blocked>>,
    /// What the client is told, once that is decided.
    pub outcome: Cell<Option<Result<Reply, Error>>>,
}

/// What the module keeps for each who waits in a long line, in bytes, beside the names of key and owner: at most 512. The
/// waiter and its two counts of references; at most 200 in its line (a test of the core counts them); its entry by owner,
/// of which a table has at most twice as many as it needs.
const _: () = assert!(size_of::<Waiter>() + 16 + 200 + 2 * (size_of::<(Owner, Waits)>() + 1) <= 512);
