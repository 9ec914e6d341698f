//! Faults that a server survives: broken invariants here, and panics of the module that are caught. Nobody knows what
//! they have left undone. They are counted, and the engine looks at every lock again: see
//! [`Engine::look_at_all_again`](crate::Engine::look_at_all_again).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Uptime;

static IS_RAISED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Until when the times are used up at which [`take`] may find a fault, in µs of the uptime.
static PAID_US: AtomicU64 = AtomicU64::new(0);

/// How many times in a row faults are taken in at once.
pub const AT_ONCE: u64 = 8;
/// How often faults that go on are taken in, in ms.
pub const GAP_MS: u64 = 1000;

/// Records a fault.
#[cold]
pub fn raise() {
    COUNT.fetch_add(1, Ordering::Relaxed);
    IS_RAISED.store(true, Ordering::Release);
}

/// Returns whether there was a fault since [`take`].
#[inline]
pub fn is_raised() -> bool {
    IS_RAISED.load(Ordering::Relaxed)
}

/// Returns whether there was a fault since it returned so last. If faults go on, it returns so [`AT_ONCE`] times, and then
/// once in [`GAP_MS`]: the module then looks at every lock, and a fault that lasts would have each command do that.
pub fn take(uptime: Uptime) -> bool {
    if !is_raised() {
        return false;
    }
    // Only one thread at a time takes a doubt.
    let now = uptime.us();
    let paid = PAID_US.load(Ordering::Relaxed).max(now);
    if paid - now > (AT_ONCE - 1) * GAP_MS * 1000 {
        return false;
    }
    PAID_US.store(paid + GAP_MS * 1000, Ordering::Relaxed);
    IS_RAISED.swap(false, Ordering::AcqRel)
}

/// Returns how many faults there were.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Lets the server's log have a line once in [`GAP_MS`], whichever thread writes it.
#[derive(Debug)]
pub struct LogLimit {
    /// From when the next line may come, in µs of the uptime.
    next_us: AtomicU64,
}

impl LogLimit {
    /// Returns a limit that lets the first line through.
    pub const fn new() -> LogLimit {
        LogLimit { next_us: AtomicU64::new(0) }
    }

    /// Returns whether a line may come now: then the next one comes later.
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
