//! Reports of tests that the machine or the server does not allow.

use std::io::Write;

/// Prints why a test, or a part of it, is skipped. The line goes to the process's standard error, which libtest does
/// not capture. `.ci/run` repeats all these lines at its end.
pub fn skipped(reason: &str) {
    let test = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", test.name().unwrap_or("a test"));
    // A single write, so that lines of other tests do not mix with it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
