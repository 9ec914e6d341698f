//! The connection that the hold of a session is bound to.

use std::sync::{Mutex, PoisonError};

use crate::server::Link;

/// Another connection takes the place of one that has ended, if the server still has the hold then.
pub(crate) struct Session(Mutex<Link>);

impl Session {
    pub fn new(link: Link) -> Self {
        Self(Mutex::new(link))
    }

    /// Returns the connection that it was bound to last.
    pub fn link(&self) -> Link {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the connection, while it is open: the server keeps the hold alive.
    pub fn bound(&self) -> Option<Link> {
        Some(self.link()).filter(|link| !link.is_closed())
    }

    /// Replaces the connection.
    pub fn bind(&self, link: Link) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }
}
