//! Deadlocks while there is no fault: a cycle of two is refused at once, and a wait that may end is not refused.

use std::time::Duration;

use dlock_testkit::redis::Value;
use dlock_testkit::wire::error_text;
use dlock_testkit::{Client, Server, lock_info};

use crate::time::wait_until;

const PATIENCE_MS: u64 = 20_000;

/// Has owners wait for each other. Returns the violations.
pub fn check(server: &Server) -> Vec<String> {
    let mut admin = server.client();
    for (key, owner) in [("{c}a", "alice"), ("{c}b", "bob"), ("{c}c", "carol")] {
        admin.int(format!("DLOCK.ACQUIRE {key} {owner} PX 60000"));
    }
    let mut found = Vec::new();
    let mut has_waiters = |key, number| {
        let mut waiters = || lock_info(&mut admin, key).map(|info| info.waiters);
        let is_so = wait_until(PATIENCE_MS, || waiters() == Some(number));
        if !is_so {
            found.push(format!("{number} should wait for `{key}`, not {:?}", waiters()));
        }
    };
    // bob waits twice, for alice and for carol, so alice may wait for bob: carol may let him go on. In both orders.
    for keys in [["{c}a", "{c}c"], ["{c}c", "{c}a"]] {
        let two = keys.map(|key| {
            let bob = ask(server, key, "bob");
            has_waiters(key, 1);
            bob
        });
        let alice = ask(server, "{c}b", "alice");
        has_waiters("{c}b", 1);
        drop((two, alice));
        for key in ["{c}a", "{c}b", "{c}c"] {
            has_waiters(key, 0);
        }
    }
    // bob waits once, for alice.
    let one = ask(server, "{c}a", "bob");
    has_waiters("{c}a", 1);
    match ask(server, "{c}b", "alice").poll(Duration::from_millis(PATIENCE_MS)) {
        Some(Value::ServerError(error)) if error_text(&error).starts_with("DEADLOCK") => {}
        reply => found.push(format!("a deadlock of two owners is answered with {reply:?}")),
    }
    drop(one);
    admin.run("DEL {c}a {c}b {c}c");
    found
}

fn ask(server: &Server, key: &str, owner: &str) -> Client {
    let mut client = server.client();
    client.send(format!("DLOCK.RACQUIRE {key} {owner} PX 60000 BLOCK 0"));
    client
}
