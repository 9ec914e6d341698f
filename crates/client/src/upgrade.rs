//! The upgrades of a reader: one at a time, and none while something of an earlier one is left on the server.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::error::Error;

/// The time between two checks whether an upgrade is over.
const LOOK: Duration = Duration::from_millis(20);

/// The upgrades of a reader, of which one at a time exists: the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upgrades(Arc<Mutex<Option<Arc<Upgrade>>>>);

/// An upgrade. As long as others than [`Upgrades`] refer to it, it has a guard, or commands without a token may arrive
/// late that would end the next one.
#[derive(Debug, Default)]
pub(crate) struct Upgrade {
    is_given_up: AtomicBool,
    has_ended: AtomicBool,
}

/// The next step of an upgrade that begins.
enum First {
    Nothing(Arc<Upgrade>),
    Wait,
    /// The last upgrade is over, and may have left its hold on the server.
    Release(Arc<Upgrade>),
}

impl Upgrades {
    /// Begins an upgrade, by `end` at the latest. If the last one is being released in the background, waits for that
    /// first. If the server may still have its hold, releases that by `release`, which marks it as released. Otherwise
    /// the upgrade would enter that hold, and end with it: by its cap, its session or a late command with its token. No
    /// server has refused the upgrade then.
    pub async fn begin<F>(
        &self,
        end: Option<Instant>,
        release: impl Fn(Arc<Upgrade>) -> F,
    ) -> Result<Arc<Upgrade>, Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        loop {
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            match self.first()? {
                First::Nothing(upgrade) => return Ok(upgrade),
                _ if left.is_zero() => {
                    return Err(Error::Unreachable("the last upgrade is still being released".into()));
                }
                First::Wait => sleep(left.min(LOOK)).await,
                First::Release(last) => timeout(left, release(last)).await.unwrap_or(Ok(()))?,
            }
        }
    }

    /// Lets the first upgrade come after an earlier hold of the owner.
    pub fn follow(&self, earlier: Arc<Upgrade>) {
        earlier.give_up();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(earlier);
    }

    fn first(&self) -> Result<First, Error> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match last.as_ref().filter(|last| !last.has_ended.load(Ordering::Relaxed)) {
            Some(last) if Arc::strong_count(last) == 1 => {
                last.give_up();
                Ok(First::Release(last.clone()))
            }
            Some(last) if last.is_given_up() => Ok(First::Wait),
            Some(_) => Err(Error::Invalid("the guard has been upgraded, or is being upgraded".to_owned())),
            None => Ok(First::Nothing(last.insert(Arc::default()).clone())),
        }
    }
}

impl Upgrade {
    /// Returns whether its hold is being released.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Marks its hold as being released.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Marks it as over: the server has no hold of it, and nothing can come late that would give it one.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}
