//! Requests that wait and may be repeated (`REQUEST`): the repeat takes the place of the first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_core::{Mode, Owner};
use tokio::sync::{mpsc, oneshot};

use super::acquire::{Pending, Wanted};

/// Sends repeats to a waiting request. Each repeat is a channel for the acquisition that it takes over.
type ToRequest = mpsc::UnboundedSender<oneshot::Sender<Pending>>;
type ByKey = HashMap<Vec<u8>, Vec<Waiter>>;

/// Finds the requests. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<ByKey>>);

struct Waiter {
    owner: Owner,
    mode: Mode,
    lease: Duration,
    request: dlock_core::RequestId,
    to: ToRequest,
}

/// The place of a request, until it is dropped.
pub(super) struct Place {
    waiting: Waiting,
    key: Vec<u8>,
    /// The sender of the request's entry, by which `drop` finds the entry, and the receiver of repeats. `None`: the
    /// request has no id or does not wait, so no repeat can take it over.
    channel: Option<(ToRequest, mpsc::UnboundedReceiver<oneshot::Sender<Pending>>)>,
}

impl Waiting {
    /// Takes over the acquisition of the request that this one repeats. Returns the acquisition and its lease.
    pub async fn take_over(&self, wanted: &Wanted) -> Option<(Pending, Duration)> {
        let (to, pending) = oneshot::channel();
        let lease = {
            let by_key = self.by_key();
            let waiters = by_key.get(&wanted.key)?;
            let first = waiters
                .iter()
                .rev()
                .filter(|waiter| waiter.owner == wanted.owner && waiter.mode == wanted.mode())
                .find(|waiter| wanted.request.as_ref() == Some(&waiter.request))?;
            first.to.send(to).ok()?;
            first.lease
        };
        Some((pending.await.ok()?, lease))
    }

    /// Registers a request, so that its repeats find it.
    pub fn join(&self, wanted: &Wanted) -> Place {
        let channel = wanted.request.clone().filter(|_| wanted.block.is_some()).map(|request| {
            let (to, repeats) = mpsc::unbounded_channel();
            let (owner, mode, lease) = (wanted.owner.clone(), wanted.mode(), wanted.lease);
            let waiter = Waiter { owner, mode, lease, request, to: to.clone() };
            self.by_key().entry(wanted.key.clone()).or_default().push(waiter);
            (to, repeats)
        });
        Place { waiting: self.clone(), key: wanted.key.clone(), channel }
    }

    fn by_key(&self) -> MutexGuard<'_, ByKey> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits for a repeat, and returns where it expects the acquisition.
    pub async fn repeated(&mut self) -> oneshot::Sender<Pending> {
        let repeat = match &mut self.channel {
            Some((_, repeats)) => repeats.recv().await,
            None => None,
        };
        match repeat {
            Some(repeat) => repeat,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((to, _)) = &self.channel else { return };
        let mut by_key = self.waiting.by_key();
        if let Some(waiters) = by_key.get_mut(&self.key) {
            waiters.retain(|waiter| !waiter.to.same_channel(to));
            if waiters.is_empty() {
                by_key.remove(&self.key);
            }
        }
    }
}
