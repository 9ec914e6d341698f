//! Every entry from C is guarded: a panic becomes a log line and the caller's fallback, never an abort.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use dlock_core::doubt::{self, LogLimit};

use super::context::{log_warning, uptime};
use super::under_lock::Inside;

/// The name under which a panic in the timer is logged.
pub(super) const TIMER_ENTRY: &str = "timer";

/// The functions that follow a panic. `look_again` has the timer run soon, and is told whether the timer itself has
/// panicked; `wake` does the same from a thread that may not use the module's state.
pub(super) struct InDoubt {
    pub look_again: fn(bool),
    pub wake: fn(),
}

/// When the server's log last got a line about a thread that was turned away.
static REFUSED: LogLimit = LogLimit::new();

static IN_DOUBT: OnceLock<InDoubt> = OnceLock::new();

/// Sets what follows a panic. Called once, during the load.
pub(super) fn when_in_doubt(in_doubt: InDoubt) {
    _ = IN_DOUBT.set(in_doubt);
}

/// Runs `body` with the right to use the module's state; if it panics, logs that `entry` did and returns `fallback`.
///
/// The guard cannot undo: code behind it computes first and assigns last. Nobody knows which event a panic has lost, so the
/// engine looks at every lock again.
pub fn guarded<T>(entry: &str, fallback: T, body: impl FnOnce() -> T) -> T {
    let Some(inside) = Inside::enter() else {
        turned_away(entry);
        return fallback;
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(debug_assertions)]
        super::planned::panic_if_planned(entry);
        body()
    }));
    let result = result.unwrap_or_else(|panic| {
        panicked(entry, &*panic);
        fallback
    });
    drop(inside);
    result
}

/// Logs a call by a thread without the server's lock, which is against the rules of the module interface, and has the timer
/// visit all locks.
#[cold]
fn turned_away(entry: &str) {
    if REFUSED.may_log(uptime()) {
        log_warning(&format!("dlock: {entry} was called by a thread without the server's lock. Please report this"));
    }
    doubt::raise();
    if let Some(in_doubt) = IN_DOUBT.get() {
        (in_doubt.wake)();
    }
}

#[cold]
fn panicked(entry: &str, panic: &(dyn std::any::Any + Send)) {
    report(entry, panic);
    doubt::raise();
    if let Some(in_doubt) = IN_DOUBT.get() {
        (in_doubt.look_again)(entry == TIMER_ENTRY);
    }
}

/// Runs a `body` that uses no state of the module, on any thread, with the server's lock or without; if it panics, logs that
/// `entry` did and returns `fallback`.
pub(super) fn caught<T>(entry: &str, fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        report(entry, &*panic);
        fallback
    })
}

#[cold]
fn report(entry: &str, panic: &(dyn std::any::Any + Send)) {
    let reason = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given");
    log_warning(&format!("dlock: panic in {entry}: {reason}. Please report this; the server continues"));
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
