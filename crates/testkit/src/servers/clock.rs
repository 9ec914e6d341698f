//! Deadlines, between two looks at the server's clock.

use crate::client::{Client, Request};

/// How far the time that a command works with may be from what `TIME` said just before or after it.
const BLUR: i64 = 2;

impl Client {
    /// Runs a command that must answer an integer, and checks that it left the key with this much to live.
    #[track_caller]
    pub fn leaves(&mut self, key: &str, left: i64, request: impl Request) -> i64 {
        let before = self.now();
        let reply = self.int(request);
        let after = self.now();
        let end = self.int(format!("PEXPIRETIME {key}"));
        let range = before + left - BLUR..=after + left + BLUR;
        assert!(range.contains(&end), "{} ms left, not {left}", end - before);
        reply
    }

    /// Returns when the key ends (unix ms).
    #[track_caller]
    pub fn end_of(&mut self, key: &str) -> i64 {
        self.int(format!("PEXPIRETIME {key}"))
    }

    /// Waits until the key's time is over. It may be over already.
    #[track_caller]
    pub fn outlive(&mut self, key: &str) {
        const GONE: i64 = -2;
        let end = self.end_of(key);
        assert!(end > 0 || end == GONE, "{key} has no end");
        self.pass(end);
    }
}
