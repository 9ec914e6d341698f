//! Every entry from C is guarded: a panic becomes a log line and the caller's fallback, never an abort.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::context::log_warning;

/// Runs `body`; if it panics, logs that `entry` did and returns `fallback`.
///
/// The guard cannot undo: code behind it computes first and assigns last.
pub fn guarded<T>(entry: &str, fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no reason given");
        log_warning(&format!("dlock: panic in {entry}: {reason}. Please report this; the server continues"));
        fallback
    })
}

/// Logs a panic's location in the server's log, and nothing else.
///
/// The usual report prints a backtrace if the server's environment has `RUST_BACKTRACE`. Making one frees memory of
/// the libc with the module's own `free`, and these belong to two allocators where the server loads modules with
/// `RTLD_DEEPBIND` (Valkey 8.1 and later): the server would crash.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        log_warning(&format!("dlock: panic at {place}"));
    }));
}
