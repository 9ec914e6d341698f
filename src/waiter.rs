//! A client that waits: the engine and the server's callbacks share it.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use dlock_core::engine::{Answer, WaiterId};

use crate::ffi::blocking::{Blocked, unblock};
use crate::ffi::rights::Rights;

/// A client that waits.
pub struct Waiter {
    /// The engine's id of the request; `None` when it has left its queues.
    pub id: Cell<Option<WaiterId>>,
    /// The server's handle, until the client is gone.
    pub blocked: Cell<Option<Blocked>>,
    /// The answer, once there is one.
    pub answer: Cell<Option<Answer>>,
    /// The rights that the client needs when its turn comes; empty while its command is running, and for a client that
    /// the ACL does not know.
    pub rights: OnceCell<Rights>,
}

impl Waiter {
    /// Returns a client that is about to wait.
    pub fn new(id: WaiterId) -> Waiter {
        Waiter { id: Cell::new(Some(id)), blocked: Cell::new(None), answer: Cell::new(None), rights: OnceCell::new() }
    }

    /// Returns whether the client still has the rights to send its command.
    pub fn has_rights(&self) -> bool {
        self.rights.get().is_none_or(Rights::are_left)
    }

    /// Returns whether the wait has ended.
    pub fn is_over(&self) -> bool {
        self.id.get().is_none()
    }

    /// Ends the wait. Call it while the engine is not borrowed: on some servers, `unblock` sends the answer at once.
    pub fn end(self: Rc<Waiter>, answer: Answer) {
        self.id.set(None);
        self.answer.set(Some(answer));
        unblock(self);
    }
}
