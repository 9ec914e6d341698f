//! Releases in the background.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// Releases that nobody waits for, and how many of them there are. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Cleanups(Arc<watch::Sender<usize>>);

/// A release that is under way, until it is dropped.
pub(crate) struct Cleanup(Arc<watch::Sender<usize>>);

impl Cleanups {
    /// Does this in the background, for a few seconds at most: what is left then ends with its lease.
    pub fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        let cleanup = self.begin();
        runtime.spawn(async move {
            let _ = timeout(LIMIT, work).await;
            drop(cleanup);
        });
    }

    /// Counts one more.
    pub fn begin(&self) -> Cleanup {
        self.0.send_modify(|count| *count += 1);
        Cleanup(self.0.clone())
    }

    /// Waits until none is under way.
    pub async fn settled(&self) {
        // The sender is `self`.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// How long something is tried in the background.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
