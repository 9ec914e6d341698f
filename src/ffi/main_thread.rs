//! Module state, which only the thread of the event loop may use.

use std::sync::atomic::{AtomicU64, Ordering};

/// A value that only the thread which loaded the module may use. Another thread that reaches for it panics.
pub struct MainThread<T>(T);

// SAFETY: `deref` lets only the thread that loaded the module through, so the value is never shared between threads.
// (The type's `free` callback, which may run on another thread, uses none. A forked child has a copy of its own.)
unsafe impl<T> Sync for MainThread<T> {}

/// The thread that loaded the module; 0 before.
static MAIN: AtomicU64 = AtomicU64::new(0);

/// Declares the calling thread to be that of the event loop. Called once, during the load.
pub fn this_is_the_main_thread() {
    MAIN.store(this_thread(), Ordering::Relaxed);
}

#[inline]
fn this_thread() -> u64 {
    // SAFETY: the function takes nothing and cannot fail.
    unsafe { libc::pthread_self() }
}

impl<T> MainThread<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> MainThread<T> {
        MainThread(value)
    }
}

impl<T> std::ops::Deref for MainThread<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        assert!(
            MAIN.load(Ordering::Relaxed) == this_thread(),
            "dlock state was reached from another thread than that of the event loop"
        );
        &self.0
    }
}
