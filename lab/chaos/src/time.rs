//! The time for all processes: µs of the machine's monotonic clock, which no fault touches.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// µs of the monotonic clock.
pub type Micros = u64;

/// Now, by the monotonic clock.
pub fn now() -> Micros {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000)
}

/// By how much the machine's own unix clock is ahead of the monotonic one, in µs. Leases run by the first and are
/// judged by the second, so the difference has to stay.
pub fn unix_ahead() -> i64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_micros());
    i64::try_from(unix).unwrap_or(i64::MAX).saturating_sub_unsigned(now())
}

/// Sleeps for `ms` milliseconds.
pub fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Waits until `is_done`, for at most `ms` milliseconds. Returns whether it was done in time.
pub fn wait_until(ms: u64, mut is_done: impl FnMut() -> bool) -> bool {
    let end = now().saturating_add(ms.saturating_mul(1000));
    loop {
        if is_done() {
            return true;
        }
        if now() >= end {
            return false;
        }
        sleep_ms(5);
    }
}
