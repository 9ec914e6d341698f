//! The clocks of the server: the time of day, and the time since the start. A test may move both forward.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dlock_core::{Now, UnixMs, Uptime};

/// The machine's clocks, and how far a test has moved both forward.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    ahead_us: Cell<u64>,
}

impl Clock {
    pub fn new() -> Self {
        Self { began: Instant::now(), ahead_us: Cell::new(0) }
    }

    /// Returns the time of day.
    pub fn now(&self) -> Now {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now::from_us(micros(since).saturating_add(self.ahead_us.get()))
    }

    /// Returns the time since the start. Setting the machine's time of day does not change it.
    pub fn uptime(&self) -> Uptime {
        Uptime::from_us(micros(self.began.elapsed()).saturating_add(self.ahead_us.get()))
    }

    /// Returns how long the process has run, however far a test has moved the clocks.
    pub fn ran(&self) -> Duration {
        self.began.elapsed()
    }

    /// Moves both clocks forward.
    pub fn advance(&self, us: u64) {
        self.ahead_us.set(self.ahead_us.get().saturating_add(us));
    }

    /// Returns the time until `at`, or zero if that has passed.
    pub fn until(&self, at: UnixMs) -> Duration {
        Duration::from_micros(at.get().saturating_mul(1000).saturating_sub(self.now().us()))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
