//! Requests that wait and may be repeated (`REQUEST`): the repeat takes the place of the first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_core::Owner;
use tokio::sync::{mpsc, oneshot};

use super::acquire::{Pending, Wanted};

/// Carries repeats to a waiting request. Each repeat is a channel for the acquisition that it takes over.
type Line = mpsc::UnboundedSender<oneshot::Sender<Pending>>;
type Lines = HashMap<Vec<u8>, Vec<Waiter>>;

/// Finds the requests. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<Lines>>);

struct Waiter {
    owner: Owner,
    request: dlock_core::RequestId,
    line: Line,
}

/// The place of a request, until it is dropped.
pub(super) struct Place {
    waiting: Waiting,
    key: Vec<u8>,
    /// The request's own line, by which `drop` finds its entry, and the end where repeats arrive. `None`: the request
    /// has no id or does not wait, so no repeat can take it over.
    line: Option<(Line, mpsc::UnboundedReceiver<oneshot::Sender<Pending>>)>,
}

impl Waiting {
    /// Takes over the acquisition of the request that this one repeats.
    pub async fn take_over(&self, wanted: &Wanted) -> Option<Pending> {
        let (to, pending) = oneshot::channel();
        {
            let lines = self.lines();
            let waiters = lines.get(&wanted.key)?;
            let first = waiters
                .iter()
                .rev()
                .find(|waiter| waiter.owner == wanted.owner && wanted.request.as_ref() == Some(&waiter.request))?;
            first.line.send(to).ok()?;
        }
        pending.await.ok()
    }

    /// Registers a request, so that its repeats find it.
    pub fn join(&self, wanted: &Wanted) -> Place {
        let line = wanted.request.clone().filter(|_| wanted.block.is_some()).map(|request| {
            let (line, repeats) = mpsc::unbounded_channel();
            let waiter = Waiter { owner: wanted.owner.clone(), request, line: line.clone() };
            self.lines().entry(wanted.key.clone()).or_default().push(waiter);
            (line, repeats)
        });
        Place { waiting: self.clone(), key: wanted.key.clone(), line }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits for a repeat, and returns where it expects the acquisition.
    pub async fn repeated(&mut self) -> oneshot::Sender<Pending> {
        let repeat = match &mut self.line {
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
        let Some((line, _)) = &self.line else { return };
        let mut lines = self.waiting.lines();
        if let Some(waiters) = lines.get_mut(&self.key) {
            waiters.retain(|waiter| !waiter.line.same_channel(line));
            if waiters.is_empty() {
                lines.remove(&self.key);
            }
        }
    }
}
