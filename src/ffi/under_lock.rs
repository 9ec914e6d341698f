//! Module state. Only the thread that has the server's lock may use it.
//!
//! Nearly always, the thread of the event loop has the lock. Another module may take it on a thread of its own
//! (`RM_ThreadSafeContextLock`). When that thread changes keys, settings or clients, hooks and commands of this module
//! run on it. The server calls some functions without the lock, too (`free` on a thread of its own, the save in a
//! forked child): they enter by [`super::guard::caught`] and use no state.

use std::sync::atomic::{AtomicU64, Ordering};

/// A value that only the thread inside of the module uses. Every function that the server calls and that uses state
/// enters by [`super::guard::guarded`], which turns a second thread away. A debug build checks that the thread has
/// entered.
pub struct UnderLock<T>(T);

// SAFETY: state is used behind `guarded` only, and `Inside::enter` lets one thread in at a time. A thread that enters
// sees all that the thread before it has written: leaving is a release, entering an acquire.
unsafe impl<T> Sync for UnderLock<T> {}

/// The thread that is inside of the module; 0 if none is.
static INSIDE: AtomicU64 = AtomicU64::new(0);

/// The thread that loaded the module, and runs the event loop; 0 before the load.
static MAIN: AtomicU64 = AtomicU64::new(0);

/// The proof that a thread is inside of the module, until it is dropped.
pub(super) struct Inside {
    /// The thread that was inside before: 0, or this one.
    before: u64,
}

impl Inside {
    /// Enters the module; `None` if another thread is inside. The server's lock makes threads enter one at a time.
    #[inline]
    pub(super) fn enter() -> Option<Inside> {
        let me = this_thread();
        let (Ok(before) | Err(before)) = INSIDE.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
        // A thread that is turned away gets no `Inside`, because dropping one changes which thread is inside.
        if before == 0 || before == me { Some(Inside { before }) } else { None }
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        INSIDE.store(self.before, Ordering::Release);
    }
}

/// Declares the calling thread to be that of the event loop. Called once, during the load.
pub fn this_is_the_main_thread() {
    MAIN.store(this_thread(), Ordering::Relaxed);
}

/// Returns whether the calling thread runs the event loop.
pub(super) fn is_main_thread() -> bool {
    MAIN.load(Ordering::Relaxed) == this_thread()
}

#[inline]
fn this_thread() -> u64 {
    // SAFETY: the function takes nothing and cannot fail.
    unsafe { libc::pthread_self() }
}

impl<T> UnderLock<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> UnderLock<T> {
        UnderLock(value)
    }
}

impl<T> std::ops::Deref for UnderLock<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        debug_assert!(
            INSIDE.load(Ordering::Relaxed) == this_thread(),
            "dlock state was reached from outside of the module"
        );
        &self.0
    }
}
