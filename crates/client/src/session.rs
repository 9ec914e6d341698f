//! The connection that the hold of a session is bound to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::server::link::Link;

/// A new connection takes the place of one that has ended, if the server still has the hold then.
pub(crate) struct Session(Mutex<Links>);

struct Links {
    bound: Link,
    /// Connections on which a command that binds got no reply. It may still arrive, and moves the hold there: they stay
    /// open for as long as the hold, or their end would release it.
    unanswered: Vec<Link>,
}

impl Session {
    pub fn new(link: Link) -> Self {
        Self(Mutex::new(Links { bound: link, unanswered: Vec::new() }))
    }

    /// Returns the connection that it was bound to last.
    pub fn link(&self) -> Link {
        self.links().bound.clone()
    }

    /// Returns the connection, while it is open: the server keeps the hold alive.
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
