//! Tests that cannot run here.

use std::io::Write;

/// Says why this test, or a part of it, is not run here, past what libtest captures; `.ci/run` repeats it at its end.
pub fn skipped(reason: &str) {
    let test = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", test.name().unwrap_or("a test"));
    // All at once, so that no other test's line gets into it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
