//! Faults that a server survives: broken invariants, and panics that are caught. They may leave work undone, so they
//! are counted, and the engine looks at every lock again: see
//! [`Engine::look_at_all_again`](crate::Engine::look_at_all_again).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Uptime;

static IS_RAISED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
/// The state of the rate limit of [`take`]: when it may return `true` [`AT_ONCE`] times again, in µs of the uptime.
static FREE_AT_US: AtomicU64 = AtomicU64::new(0);

/// How many times [`take`] returns `true` without a gap.
pub const AT_ONCE: u64 = 8;
/// The gap after which [`take`] may return `true` once more, in ms.
pub const GAP_MS: u64 = 1000;

/// Records a fault.
#[cold]
pub fn raise() {
    COUNT.fetch_add(1, Ordering::Relaxed);
    IS_RAISED.store(true, Ordering::Release);
}

/// Returns whether there was a fault since [`take`] last returned `true`.
#[inline]
pub fn is_raised() -> bool {
    IS_RAISED.load(Ordering::Relaxed)
}

/// Returns whether there was a fault since the last call that returned `true`: the caller then looks at every lock.
/// While faults go on, the result is `true` [`AT_ONCE`] times and then once in [`GAP_MS`], so that not every command
/// looks at every lock.
pub fn take(uptime: Uptime) -> bool {
    if !is_raised() {
        return false;
    }
    // Only one thread at a time calls this, so the load and the store need not be one step.
    let now = uptime.us();
    let free_at = FREE_AT_US.load(Ordering::Relaxed).max(now);
    if free_at - now > (AT_ONCE - 1) * GAP_MS * 1000 {
        return false;
    }
    FREE_AT_US.store(free_at + GAP_MS * 1000, Ordering::Relaxed);
    IS_RAISED.swap(false, Ordering::AcqRel)
}

/// Returns the number of faults since the start.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Limits a line in the server's log to one in [`GAP_MS`], by all threads together.
#[derive(Debug)]
pub struct LogLimit {
    /// When the next line is allowed, in µs of the uptime.
    next_us: AtomicU64,
}

impl LogLimit {
    /// Returns a limit that lets the first line through.
    pub const fn new() -> LogLimit {
        LogLimit { next_us: AtomicU64::new(0) }
    }

    /// Returns whether a line is allowed now. If so, the next one is allowed after the gap.
    pub fn may_log(&self, uptime: Uptime) -> bool {
        let (now, next) = (uptime.us(), self.next_us.load(Ordering::Relaxed));
        let later = now + GAP_MS * 1000;
        next <= now && self.next_us.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Default for LogLimit {
    fn default() -> LogLimit {
        LogLimit::new()
    }
}
