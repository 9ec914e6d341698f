//! The time of a thread on a core, which other work of the machine makes hardly longer.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns how long this thread has run on a core while it does this.
pub fn on_core(act: impl FnOnce()) -> Duration {
    let start = so_far();
    act();
    so_far() - start
}

fn so_far() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
