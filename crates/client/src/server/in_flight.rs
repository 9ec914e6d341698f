//! The state of a request that is under way, for a caller that ends the request before its last answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fault::Fault;
use super::link::Link;
use crate::options::Replicas;

/// The state of a request that is under way.
#[derive(Default)]
pub(crate) struct InFlight {
    /// The connection of the request, once it has been sent.
    link: Mutex<Option<Link>>,
    /// Whether the first command has an answer other than nil, while later answers are open.
    has_begun: AtomicBool,
    /// Why the request fails, while the cleanup after it is not done.
    why: Mutex<Option<Fault>>,
}

impl InFlight {
    /// Records that the request is sent on this connection now.
    pub fn sent(&self, link: &Link) {
        *locked(&self.link) = Some(link.clone());
        self.has_begun.store(false, Ordering::Release);
        *locked(&self.why) = None;
    }

    pub fn link(&self) -> Option<Link> {
        locked(&self.link).clone()
    }

    pub fn take_link(&self) -> Option<Link> {
        locked(&self.link).take()
    }

    /// Returns the flag that the sender sets at the first answer that is not nil.
    pub fn has_begun(&self) -> &AtomicBool {
        &self.has_begun
    }

    /// Records why the request fails.
    pub fn fails(&self, why: &Fault) {
        *locked(&self.why) = Some(why.clone());
    }

    /// Takes the reason why the request fails, when its time is over. If none is recorded and the lock was granted, the
    /// reason is that no replica is known to have acknowledged the grant.
    pub fn why(&self, replicas: Option<Replicas>) -> Option<Fault> {
        let late = || {
            let Replicas { count: wanted, .. } = replicas.filter(|_| self.has_begun.load(Ordering::Acquire))?;
            Some(Fault::TooFewReplicas { acknowledged: 0, wanted })
        };
        locked(&self.why).take().or_else(late)
    }
}

/// Returns a value, even if a thread has panicked with it: every change replaces the whole value.
fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
