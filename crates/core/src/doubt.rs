//! Faults that a server survives: broken invariants here, and panics of the module that are caught. Nobody knows what
//! they have left undone. They are counted, and the engine looks at every lock again: see
//! [`Engine::look_at_all_again`](crate::Engine::look_at_all_again).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static IS_RAISED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

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

/// Returns whether there was a fault since the last call.
pub fn take() -> bool {
    IS_RAISED.swap(false, Ordering::AcqRel)
}

/// Returns how many faults there were.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}
