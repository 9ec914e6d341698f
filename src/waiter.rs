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

    /// Returns whether the client still waits, and still has the rights to send its command. A wait that another module
    /// ends while the engine works is over before the engine hears of it.
    pub fn may_be_granted(&self) -> bool {
        !self.is_over() && self.rights.get().is_none_or(Rights::are_left)
    }

    /// Returns whether the wait has ended.
    pub fn is_over(&self) -> bool {
        self.id.get().is_none()
    }

    /// Sets the answer, which is sent when the wait ends.
    pub fn decide(&self, answer: Answer) {
        self.id.set(None);
        self.answer.set(Some(answer));
    }

    /// Ends the wait. Call it while the engine is not borrowed: on some servers, `unblock` sends the answer at once.
    pub fn end(self: Rc<Waiter>) {
        unblock(self);
    }
}
