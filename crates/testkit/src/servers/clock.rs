//! Deadlines of keys by the server's clock.

use crate::client::{Client, Request};

/// How far the clock of a command may be from the answers to `TIME` just before and after it, in ms.
const BLUR: i64 = 2;

impl Client {
    /// Runs a command that must answer an integer. Fails unless the key then expires in `left` ms.
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

    /// Returns when the key expires (unix ms).
    #[track_caller]
    pub fn end_of(&mut self, key: &str) -> i64 {
        self.int(format!("PEXPIRETIME {key}"))
    }

    /// Waits until the key has expired. It may have expired already.
    #[track_caller]
    pub fn outlive(&mut self, key: &str) {
        const GONE: i64 = -2;
        let end = self.end_of(key);
        assert!(end > 0 || end == GONE, "{key} never expires");
        self.pass(end);
    }
}
