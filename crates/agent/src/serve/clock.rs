//! The clocks of the server. A test may move them on.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dlock_core::{Now, UnixMs, Uptime};

/// The machine's clocks, and how far a test has moved both on.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    ahead_us: Cell<u64>,
}

impl Clock {
    pub fn new() -> Self {
        Self { began: Instant::now(), ahead_us: Cell::new(0) }
    }

    pub fn now(&self) -> Now {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now::from_us(micros(since).saturating_add(self.ahead_us.get()))
    }

    /// Returns the time since the start, which does not change when the machine's time is set.
    pub fn uptime(&self) -> Uptime {
        Uptime::from_us(micros(self.began.elapsed()).saturating_add(self.ahead_us.get()))
    }

    /// Returns how long the process has run, however far a test has moved the clocks.
    pub fn ran(&self) -> Duration {
        self.began.elapsed()
    }

    /// Moves both clocks on.
    pub fn advance(&self, us: u64) {
        self.ahead_us.set(self.ahead_us.get().saturating_add(us));
    }

    /// Returns how long it is until `at`.
    pub fn until(&self, at: UnixMs) -> Duration {
        Duration::from_micros(at.get().saturating_mul(1000).saturating_sub(self.now().us()))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
