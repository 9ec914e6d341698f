//! The order of a queue when nothing disturbs it: first come, first served, and nobody is forgotten.

use std::time::Duration;

use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Server, lock_info};

use crate::time::wait_until;

/// How many wait.
const LENGTH: usize = 8;
const PATIENCE_MS: u64 = 20_000;

/// The requests of the waiters, by their number.
type Wanted = fn(usize) -> &'static str;

/// Puts clients into a queue one after the other, and lets them through one after the other. Returns the violations.
pub fn check(server: &Server) -> Vec<String> {
    let all = "ACQUIRE {c}queue first";
    let exclusive: Wanted = |_| "ACQUIRE {c}queue waiter-{}";
    // A small request behind a large one waits, though it would fit.
    let one = "SACQUIRE {c}queue first 2";
    let permits: Wanted = |number| {
        if number % 2 == 0 { "SACQUIRE {c}queue waiter-{} 2 PERMITS 2" } else { "SACQUIRE {c}queue waiter-{} 2" }
    };
    let several: Wanted =
        |number| if number % 2 == 0 { "MACQUIRE 2 {c}queue {c}other waiter-{}" } else { "ACQUIRE {c}queue waiter-{}" };
    let queues: [(&str, Wanted); 3] = [(all, exclusive), (one, permits), (all, several)];
    let found = queues.into_iter().flat_map(|(first, wanted)| check_of(server, first, wanted));
    found.chain(a_head_leaves(server)).collect()
}

/// A reader behind a writer gets in when the writer gives up.
fn a_head_leaves(server: &Server) -> Option<String> {
    let mut admin = server.client();
    free(&mut admin);
    admin.int("DLOCK.RLOCK {c}queue first PX 60000");
    let [writer, mut reader] = ["WLOCK", "RLOCK"].map(|verb| {
        let mut waiter = server.client();
        let number = lock_info(&mut admin, "{c}queue").map_or(0, |info| info.waiters);
        waiter.send(format!("DLOCK.{verb} {{c}}queue {verb} PX 60000 BLOCK 0"));
        let mut waiting = || lock_info(&mut admin, "{c}queue").map(|info| info.waiters);
        wait_until(PATIENCE_MS, || waiting() == Some(number + 1));
        waiter
    });
    drop(writer);
    let is_in = matches!(reader.poll(Duration::from_millis(PATIENCE_MS)), Some(Value::Int(_)));
    admin.run("DEL {c}queue");
    (!is_in).then(|| "a reader was forgotten when the writer before it gave up".to_owned())
}

/// Frees the locks: an earlier check that found a violation may have left holders and waiters behind.
fn free(admin: &mut Client) {
    wait_until(PATIENCE_MS, || {
        admin.run("DEL {c}queue {c}other");
        lock_info(admin, "{c}queue").is_none() && lock_info(admin, "{c}other").is_none()
    });
}

fn check_of(server: &Server, first: &str, wanted: Wanted) -> Vec<String> {
    let mut admin = server.client();
    free(&mut admin);
    let mut last = admin.int(format!("DLOCK.{first} PX 60000"));
    let mut waiters = Vec::new();
    for number in 0..LENGTH {
        let mut waiter = server.client();
        let request = wanted(number).replace("{}", &number.to_string());
        waiter.send(format!("DLOCK.{request} PX 60000 BLOCK 0"));
        let mut waiting = || lock_info(&mut admin, "{c}queue").map(|info| info.waiters);
        if !wait_until(PATIENCE_MS, || waiting() == i64::try_from(number + 1).ok()) {
            return vec![format!("`{request}` does not get into the queue")];
        }
        waiters.push((request, waiter));
    }
    let mut found = Vec::new();
    let mut owner = "first".to_owned();
    for (number, (request, mut waiter)) in waiters.into_iter().enumerate() {
        for key in ["{c}queue", "{c}other"] {
            admin.run(format!("DLOCK.RELEASE {key} {owner} ALL"));
        }
        match waiter.poll(Duration::from_millis(PATIENCE_MS)) {
            Some(Value::Int(token)) if token > last => last = token,
            Some(reply) => found.push(format!("`{request}` of a queue in order got {reply:?} after token {last}")),
            None => {
                found.push(format!("`{request}` of a queue was forgotten"));
                break;
            }
        }
        owner = format!("waiter-{number}");
    }
    admin.run("DEL {c}queue {c}other");
    found
}
