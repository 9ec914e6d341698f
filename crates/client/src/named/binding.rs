//! A guard's reference to its hold in a session.

use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::sync::watch;
use tokio::time::timeout_at;

use super::Inner;
use crate::binding::Owed;

/// A hold that is bound to a session.
pub(crate) struct Binding {
    pub(super) session: Arc<Inner>,
    pub(super) number: u64,
    pub(super) lost: watch::Receiver<bool>,
}

/// A binding that keeps no session open.
pub(crate) struct WeakBinding(Weak<Inner>, u64);

impl Binding {
    /// Returns until when the hold is certain; the present if it is lost.
    pub fn until(&self) -> Instant {
        self.session.until(self.number)
    }

    /// Takes the hold out of the session, before its release.
    pub fn leave(&self) {
        self.session.kept().bindings.remove(&self.number);
    }

    /// Hands releases that have failed to the session, which repeats them.
    pub fn owe(&self, owed: Owed) {
        self.session.owe(owed);
    }

    pub fn session(&self) -> &Arc<Inner> {
        &self.session
    }

    /// Waits for the loss.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        while !*lost.borrow_and_update() {
            let until = self.until();
            let over = until <= Instant::now();
            if over || matches!(timeout_at(until.into(), lost.changed()).await, Ok(Err(_))) {
                return;
            }
        }
    }

    pub fn downgrade(&self) -> WeakBinding {
        WeakBinding(Arc::downgrade(&self.session), self.number)
    }
}

impl WeakBinding {
    /// Returns until when the hold is certain; the present if it is lost.
    pub fn until(&self) -> Instant {
        self.0.upgrade().map_or_else(Instant::now, |session| session.until(self.1))
    }
}
