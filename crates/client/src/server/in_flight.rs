//! The state of a request under way, for a caller that ends it before its last answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fault::Fault;
use super::link::Link;
use crate::options::Replicas;

#[derive(Default)]
pub(crate) struct At {
    /// The connection on which it was sent, as soon as it has been.
    link: Mutex<Option<Link>>,
    /// The first command was answered, and not with nil; other answers are to come.
    has_begun: AtomicBool,
    /// Why it fails, while the failure has something left to do.
    why: Mutex<Option<Fault>>,
}

impl At {
    /// The request is sent on this connection now, and has no answer yet.
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

    /// Where to note the first answer.
    pub fn has_begun(&self) -> &AtomicBool {
        &self.has_begun
    }

    /// Notes why it fails.
    pub fn fails(&self, why: &Fault) {
        *locked(&self.why) = Some(why.clone());
    }

    /// Returns why it has failed if its time is over now. A lock that was granted lacks the replicas that were to
    /// acknowledge it, as far as is known.
    pub fn why(&self, replicas: Option<Replicas>) -> Option<Fault> {
        let late = || {
            let Replicas { count: wanted, .. } = replicas.filter(|_| self.has_begun.load(Ordering::Acquire))?;
            Some(Fault::TooFewReplicas { acknowledged: 0, wanted })
        };
        locked(&self.why).take().or_else(late)
    }
}

/// Every change replaces the value: whoever panicked left nothing half-done.
fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
