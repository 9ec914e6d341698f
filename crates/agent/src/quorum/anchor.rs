//! The targets of a binding: a connection of a client, or a named session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

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
        let before = hold.bind(self.clone());
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, self)) {
            return true;
        }
        if before.is_some() {
            // It may have been bound here even before that.
            bound.retain(|other| other.as_ptr() != Arc::as_ptr(hold));
        }
        // Holds that are gone make place for the next.
        if bound.len() >= 16 && bound.len() == bound.capacity() {
            bound.retain(|hold| hold.strong_count() > 0);
        }
        bound.push(Arc::downgrade(hold));
        true
    }

    /// Ends it, and returns the holds that were bound. Empty if it had ended before.
    pub fn end(self: &Arc<Self>, how: End) -> Vec<Arc<Hold>> {
        let holds = self.close(how, &mut self.bound());
        holds.into_iter().filter(|hold| hold.is_bound_to(self)).collect()
    }

    /// Ends it because this hold is lost, and returns the others. No heartbeat is told anything between the two.
    /// `None`: the hold was over before.
    pub fn lose(self: &Arc<Self>, hold: &Hold) -> Option<Vec<Arc<Hold>>> {
        let mut bound = self.bound();
        if !hold.finish() {
            return None;
        }
        let holds = self.close(End::Forgotten, &mut bound);
        drop(bound);
        Some(holds.into_iter().filter(|hold| hold.is_bound_to(self)).collect())
    }

    fn close(&self, how: End, bound: &mut Vec<Weak<Hold>>) -> Vec<Arc<Hold>> {
        if self.end.borrow().is_some() {
            return Vec::new();
        }
        self.end.send_replace(Some(how));
        bound.drain(..).filter_map(|hold| hold.upgrade()).collect()
    }

    /// Returns how many holds are bound, if all of them live for this time. `None`: one does not, be it that it was
    /// lost and nobody has noticed yet, or this has ended.
    pub fn vouch(self: &Arc<Self>, time: Duration) -> Option<usize> {
        let mut bound = self.bound();
        if self.end.borrow().is_some() {
            return None;
        }
        bound.retain(|hold| hold.upgrade().is_some_and(|hold| hold.is_bound_to(self) && !hold.is_over()));
        let is_sure = bound.iter().filter_map(Weak::upgrade).all(|hold| hold.is_over() || hold.remaining() >= time);
        is_sure.then_some(bound.len())
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
