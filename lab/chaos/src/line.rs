//! The order of a line when nothing disturbs it: first come, first served, and nobody is forgotten.

use std::time::Duration;

use dlock_testkit::redis::Value;
use dlock_testkit::{Server, lock_info};

use crate::time::wait_until;

/// How many stand in line.
const LENGTH: usize = 8;
const PATIENCE_MS: u64 = 20_000;

/// Puts clients into line one after the other, and lets them through. Returns what must not be.
pub fn check(server: &Server) -> Vec<String> {
    let mut admin = server.client();
    let mut last = admin.int("DLOCK.ACQUIRE line first PX 60000");
    let mut waiters = Vec::new();
    for number in 0..LENGTH {
        let mut waiter = server.client();
        waiter.send(format!("DLOCK.ACQUIRE line waiter-{number} PX 60000 BLOCK 0"));
        let mut waiting = || lock_info(&mut admin, "line").map(|info| info.waiters);
        if !wait_until(PATIENCE_MS, || waiting() == i64::try_from(number + 1).ok()) {
            return vec![format!("waiter {number} does not get into the line")];
        }
        waiters.push(waiter);
    }
    let mut found = Vec::new();
    let mut owner = "first".to_owned();
    for (number, mut waiter) in waiters.into_iter().enumerate() {
        admin.run(format!("DLOCK.RELEASE line {owner}"));
        match waiter.poll(Duration::from_millis(PATIENCE_MS)) {
            Some(Value::Int(token)) if token > last => last = token,
            Some(reply) => found.push(format!("waiter {number} of a line in order got {reply:?} after token {last}")),
            None => {
                found.push(format!("waiter {number} of a line was forgotten"));
                break;
            }
        }
        owner = format!("waiter-{number}");
    }
    admin.run("DEL line");
    found
}
