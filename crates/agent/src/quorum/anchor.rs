//! What holds are bound to: a connection of a client, or a named session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dlock_core::SessionId;
use tokio::sync::watch;

use super::hold::Hold;

/// A connection or a named session, and the holds that are bound to it.
pub(crate) struct Anchor {
    pub what: What,
    bound: Mutex<Vec<Weak<Hold>>>,
    end: watch::Sender<Option<End>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The number of a connection.
    Connection(u64),
    Named(SessionId),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its holds are released.
    Over,
    /// A hold was lost, so the client must learn that the session is none any more. The other holds keep their leases,
    /// and the client may bind them again: as after a failover of a server.
    Forgotten,
}

impl Anchor {
    pub fn new(what: What) -> Arc<Self> {
        Arc::new(Self { what, bound: Mutex::default(), end: watch::Sender::new(None) })
    }

    /// Binds the hold, unless this has ended.
    pub fn bind(self: &Arc<Self>, hold: &Arc<Hold>) -> bool {
        let mut bound = self.bound();
        if self.end.borrow().is_some() {
            return false;
        }
        if !hold.bind(self.clone()) {
            // It was bound here before. Holds that are gone make place for the next.
            if bound.len() >= 16 && bound.len() == bound.capacity() {
                bound.retain(|hold| hold.strong_count() > 0);
            }
            bound.push(Arc::downgrade(hold));
        }
        true
    }

    /// Ends it, and returns the holds that were bound. Empty if it had ended before.
    pub fn end(self: &Arc<Self>, how: End) -> Vec<Arc<Hold>> {
        let mut bound = self.bound();
        if self.end.borrow().is_some() {
            return Vec::new();
        }
        self.end.send_replace(Some(how));
        let holds: Vec<_> = bound.drain(..).filter_map(|hold| hold.upgrade()).collect();
        drop(bound);
        holds.into_iter().filter(|hold| hold.is_bound_to(self)).collect()
    }

    /// Returns the live holds that are bound.
    pub fn holds(self: &Arc<Self>) -> Vec<Arc<Hold>> {
        let mut bound = self.bound();
        bound.retain(|hold| hold.upgrade().is_some_and(|hold| hold.is_bound_to(self)));
        bound.iter().filter_map(Weak::upgrade).filter(|hold| hold.is_live()).collect()
    }

    pub fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Waits until it has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut end = self.end.subscribe();
        async move {
            let _ = end.wait_for(Option::is_some).await;
        }
    }

    fn bound(&self) -> MutexGuard<'_, Vec<Weak<Hold>>> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
