//! Waits for conditions, each with a time limit. Tests wait for a condition instead of a fixed time.

use std::time::{Duration, Instant};

/// The time limit of conditions that have no limit of their own: enough for a busy machine, and for a server under
/// valgrind.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds. After `limit`, fails the test with `what`, which describes the condition.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "did not happen within {limit:?}: {what}");
        // The pause leaves the core to the process that is waited for.
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Calls [`eventually`] with [`PATIENCE`].
#[track_caller]
pub fn soon(what: &str, condition: impl FnMut() -> bool) {
    eventually(PATIENCE, what, condition);
}
