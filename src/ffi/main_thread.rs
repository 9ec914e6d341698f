//! Module state, which only the thread of the event loop touches.

/// A value that only the thread which runs commands, timers and events may use.
pub struct MainThread<T>(T);

// SAFETY: the server calls every entry of the module that reaches module state (commands, timers, events, info,
// config, RDB and AOF callbacks) with its global lock held, one at a time. The type's `free` callback, which may run
// on another thread, uses no module state. A forked child has a copy of its own.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> MainThread<T> {
        MainThread(value)
    }
}

impl<T> std::ops::Deref for MainThread<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
