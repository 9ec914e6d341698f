//! The state of a request in flight, for a caller that ends the request before its last answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fault::Fault;
use super::link::Link;
use crate::options::Replicas;

#[derive(Default)]
pub(crate) struct InFlight {
    /// The connection of the request, once it has been sent.
    link: Mutex<Option<Link>>,
    /// Whether the first command has an answer other than nil, while later answers are open.
    has_begun: AtomicBool,
    /// Why the request fails, while it still has to be cleaned up.
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

    /// Returns the flag to set at the first answer.
    pub fn has_begun(&self) -> &AtomicBool {
        &self.has_begun
    }

    /// Records why the request fails.
    pub fn fails(&self, why: &Fault) {
        *locked(&self.why) = Some(why.clone());
    }

    /// Returns why the request fails if its time is over now. If the lock was granted, no replica is known to have
    /// acknowledged it.
    pub fn why(&self, replicas: Option<Replicas>) -> Option<Fault> {
        let late = || {
            let Replicas { count: wanted, .. } = replicas.filter(|_| self.has_begun.load(Ordering::Acquire))?;
            Some(Fault::TooFewReplicas { acknowledged: 0, wanted })
        };
        locked(&self.why).take().or_else(late)
    }
}

/// Every change replaces the value, so a panic leaves nothing half-done.
fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
