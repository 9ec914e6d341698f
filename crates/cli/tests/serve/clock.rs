//! A clock that a test may move.

use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Serve, lock_info};

use crate::process::{serve, waiting};

fn moving() -> (Serve, Client) {
    let server = serve(&["--test-clock"]);
    let client = server.client();
    (server, client)
}

/// Returns clients that wait, one after the other.
fn in_line(server: &Serve, requests: [&str; 2]) -> [Client; 2] {
    let mut count = 0;
    requests.map(|request| {
        let mut client = server.client();
        client.send(request);
        count += 1;
        waiting(server, count);
        client
    })
}

#[test]
fn a_lease_ends_without_waiting() {
    let (_server, mut client) = moving();
    client.int("DLOCK.ACQUIRE job a PX 60000");
    client.int("DLOCK.CLOCK ADVANCE 59000");
    assert_eq!(client.run("DLOCK.ACQUIRE job b"), Value::Nil);
    client.int("DLOCK.CLOCK ADVANCE 1001");
    client.int("DLOCK.ACQUIRE job b");
}

#[test]
fn a_waiter_gets_in_when_the_lease_has_ended_and_gives_up_when_its_time_is_over() {
    let (server, mut client) = moving();
    client.int("DLOCK.ACQUIRE job a PX 3600000");
    let [mut first, mut second] =
        in_line(&server, ["DLOCK.ACQUIRE job b PX 600000 BLOCK 7200000", "DLOCK.ACQUIRE job c BLOCK 60000"]);
    client.int("DLOCK.CLOCK ADVANCE 60001");
    assert_eq!(second.read().unwrap(), Value::Nil);
    client.int("DLOCK.CLOCK ADVANCE 3600000");
    assert!(matches!(first.read().unwrap(), Value::Int(_)));
}

#[test]
fn holds_of_live_sessions_are_renewed_as_the_clock_moves() {
    let (server, mut client) = moving();
    let mut holder = server.client();
    holder.int("DLOCK.ACQUIRE job a PX 1000 SESSION");
    holder.int("DLOCK.SESSION s PX 60000");
    holder.int("DLOCK.ACQUIRE other a PX 1000 SESSIONID s");
    client.int("DLOCK.CLOCK ADVANCE 30000");
    assert_eq!(client.run("DLOCK.ACQUIRE job b"), Value::Nil, "the connection lives");
    assert_eq!(client.run("DLOCK.ACQUIRE other b"), Value::Nil, "the session lives");
    client.int("DLOCK.CLOCK ADVANCE 31000");
    assert_eq!(client.run("DLOCK.ACQUIRE job b"), Value::Nil, "the connection lives");
    client.int("DLOCK.ACQUIRE other b");
}

#[test]
fn without_test_clock_the_clock_cannot_be_moved() {
    let server = serve(&[]);
    let error = server.client().error("DLOCK.CLOCK ADVANCE 1");
    assert!(error.contains("--test-clock"), "{error}");
}

/// When the writer's wait ends, the reader could be granted, but its own time ends at the same moment.
#[test]
fn a_reply_is_true_if_the_wait_ends_as_the_lock_becomes_free() {
    let (server, mut client) = moving();
    client.int("DLOCK.RLOCK job a PX 3600000");
    let [mut writer, mut reader] = in_line(&server, ["DLOCK.WLOCK job b BLOCK 60000", "DLOCK.RLOCK job c BLOCK 60000"]);
    client.int("DLOCK.CLOCK ADVANCE 60001");
    assert_eq!(writer.read().unwrap(), Value::Nil);
    is_answered_once(&mut reader, &mut client, "c");
}

#[test]
fn a_reply_is_true_if_the_wait_ends_as_the_lease_does() {
    let server = serve(&[]);
    let mut client = server.client();
    for round in 0..40 {
        client.int("DLOCK.ACQUIRE job a PX 100");
        let mut waiter = server.client();
        waiter.send(format!("DLOCK.ACQUIRE job b PX 60000 BLOCK {}", 98 + round % 5));
        is_answered_once(&mut waiter, &mut client, "b");
        client.run("DEL job");
    }
}

/// Reads the reply of a client that has waited. Fails unless it says whether the owner has the lock, and no second
/// reply follows.
fn is_answered_once(waiter: &mut Client, client: &mut Client, owner: &str) {
    let is_granted = waiter.read().unwrap() != Value::Nil;
    let info = lock_info(client, &format!("job OWNER {owner}"));
    assert_eq!(
        is_granted,
        info.as_ref().is_some_and(|info| info.holds.as_ref().is_some_and(|holds| !holds.is_empty())),
        "{info:?}"
    );
    assert_eq!(waiter.text("ECHO after"), "after");
}
