//! The upgrades of a reader: one at a time, and none while the release of an earlier one may still arrive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::error::Error;

/// The time between two checks whether an upgrade is over.
const LOOK: Duration = Duration::from_millis(20);

/// The upgrades of a reader, of which one at a time exists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upgrades(Arc<Mutex<Weak<Upgrade>>>);

/// An upgrade, from its beginning until its hold is released.
#[derive(Debug, Default)]
pub(crate) struct Upgrade {
    is_given_up: AtomicBool,
    has_ended: AtomicBool,
}

impl Upgrades {
    /// Begins an upgrade. If the hold of an earlier one is being released in the background, waits for that first, until
    /// `end` at most. No server has refused the upgrade then.
    pub async fn begin(&self, end: Option<Instant>) -> Result<Arc<Upgrade>, Error> {
        loop {
            if let Some(upgrade) = self.begin_now()? {
                return Ok(upgrade);
            }
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(Error::Unreachable("the last upgrade is still being released".into()));
            }
            sleep(left.min(LOOK)).await;
        }
    }

    /// Lets the first upgrade wait for the release of an earlier hold of the owner.
    pub fn follow(&self, earlier: &Arc<Upgrade>) {
        earlier.give_up();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(earlier);
    }

    fn begin_now(&self) -> Result<Option<Arc<Upgrade>>, Error> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.upgrade().filter(|last| !last.has_ended.load(Ordering::Relaxed)) {
            return match last.is_given_up() {
                true => Ok(None),
                false => Err(Error::Invalid("the guard has been upgraded, or is being upgraded".to_owned())),
            };
        }
        let upgrade = Arc::default();
        *last = Arc::downgrade(&upgrade);
        Ok(Some(upgrade))
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

    /// Marks its hold as released.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}
