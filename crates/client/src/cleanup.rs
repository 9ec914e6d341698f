//! Releases in the background.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// The releases in the background, and how many of them are under way. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Cleanups(Arc<watch::Sender<usize>>);

/// A release that is under way, until it is dropped.
pub(crate) struct Cleanup(Arc<watch::Sender<usize>>);

impl Cleanups {
    /// Does `work` in the background, for a few seconds at most. A lock that is not released by then ends with its
    /// lease.
    pub fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        let cleanup = self.begin();
        runtime.spawn(async move {
            let _ = timeout(LIMIT, work).await;
            drop(cleanup);
        });
    }

    /// Counts a release until the result is dropped.
    pub fn begin(&self) -> Cleanup {
        self.0.send_modify(|count| *count += 1);
        Cleanup(self.0.clone())
    }

    /// Waits until no release is under way.
    pub async fn settled(&self) {
        // The wait cannot fail: `self` keeps the sender.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// How long a release is tried in the background.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
