//! Waiting for a condition with a deadline, never for a fixed time.

use std::time::{Duration, Instant};

/// The time limit of conditions that have no limit of their own: enough for a busy machine, and for a server under
/// valgrind.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds. Fails the test with `what` if the deadline passes before.
#[track_caller]
pub fn eventually(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < deadline, "not within {deadline:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Calls [`eventually`] with [`PATIENCE`].
#[track_caller]
pub fn soon(what: &str, condition: impl FnMut() -> bool) {
    eventually(PATIENCE, what, condition);
}
