//! The connection that the hold of a session is bound to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::server::link::Link;

/// The connections of a session. A new one replaces one that has ended, if the server still has the hold.
pub(crate) struct Session(Mutex<Links>);

struct Links {
    bound: Link,
    /// Connections on which a command that binds the hold got no reply. The command may still arrive, and bind the hold
    /// to its connection: they stay open as long as the hold, because their end would release it.
    unanswered: Vec<Link>,
}

impl Session {
    pub fn new(link: Link) -> Self {
        Self(Mutex::new(Links { bound: link, unanswered: Vec::new() }))
    }

    /// Returns the connection that the hold was bound to last.
    pub fn link(&self) -> Link {
        self.links().bound.clone()
    }

    /// Returns the connection while it is open, so that the server renews the hold.
    pub fn bound(&self) -> Option<Link> {
        Some(self.link()).filter(|link| !link.is_closed())
    }

    /// Replaces the connection.
    pub fn bind(&self, link: Link) {
        self.links().bound = link;
    }

    /// Keeps connections open on which the hold may be bound later.
    pub fn keep_open(&self, links: impl IntoIterator<Item = Link>) {
        let mut kept = self.links();
        kept.unanswered.extend(links);
        kept.unanswered.retain(|link| !link.is_closed() && !link.is_clear());
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
