//! A named session keeps its locks while heartbeats come, through whatever connection, and frees them when they stop.

use std::time::{Duration, Instant};

use crate::support::{Client, Server, lock_info, soon};

/// Opens the session `s`, which has no bindings yet.
fn open(client: &mut Client, ms: u64) {
    assert_eq!(client.int(format!("DLOCK.SESSION s PX {ms}")), 0);
}

#[test]
fn holds_end_with_the_heartbeats_and_not_before() {
    let (_server, [mut client, mut next]) = Server::start().with_clients();
    open(&mut client, 600);
    let start = Instant::now();
    client.int("DLOCK.ACQUIRE k a PX 600000 SESSIONID s");
    next.send("DLOCK.ACQUIRE k b BLOCK 20000");
    next.read().expect("a token");
    // The timeout of 600 ms counts from the opening of the session, a little before `start`.
    assert!(start.elapsed() >= Duration::from_millis(590), "{:?}", start.elapsed());
    assert!(client.error("DLOCK.SESSION s PX 600 XX").starts_with("NOSESSION"));
}

#[test]
fn a_heartbeat_through_another_connection_keeps_the_holds() {
    let server = Server::start();
    let mut client = server.client();
    open(&mut client, 2000);
    client.int("DLOCK.ACQUIRE k a PX 2000 SESSIONID s");
    drop(client);
    let mut other = server.client();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        assert_eq!(other.int("DLOCK.SESSION s PX 2000 XX"), 1);
        assert!(lock_info(&mut other, "k").is_some());
    }
    assert_eq!(other.int("DLOCK.SESSION s CLOSE"), 1);
    other.int("DLOCK.ACQUIRE k b");
}

#[test]
fn an_unknown_session_is_an_error_before_every_nil() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    for command in ["DLOCK.ACQUIRE k b", "DLOCK.ACQUIRE free b", "DLOCK.RENEW k b", "DLOCK.MACQUIRE 2 k l b"] {
        assert!(client.error(format!("{command} SESSIONID s")).starts_with("NOSESSION"), "{command}");
    }
    assert!(client.error("DLOCK.ACQUIRE k b SESSIONID s SESSION").starts_with("ERR syntax error"));
    client.nil("DLOCK.SESSION s CLOSE");
    client.nil("DLOCK.SESSION s LIST");
    open(&mut client, 60000);
    client.nil("DLOCK.SESSION s PX 60000 NX");
}

#[test]
fn a_waiter_leaves_with_its_session() {
    let (_server, [mut client, mut waiter]) = Server::start().with_clients();
    client.int("DLOCK.ACQUIRE k a");
    open(&mut client, 60000);
    waiter.send("DLOCK.ACQUIRE k b BLOCK 20000 SESSIONID s");
    soon("the request waits", || lock_info(&mut client, "k").unwrap().waiters == 1);
    assert_eq!(client.int("DLOCK.SESSION s CLOSE"), 0);
    assert!(waiter.read().expect_err("its session has ended").to_string().contains("NOSESSION"));
    soon("the request has left the queue", || lock_info(&mut client, "k").unwrap().waiters == 0);
}

#[test]
fn a_stall_of_the_server_ends_no_session() {
    let (_server, mut client) = Server::start().with_client();
    open(&mut client, 1000);
    client.int("DLOCK.ACQUIRE k a PX 600000 SESSIONID s");
    // The server stalls for three times the timeout of the session.
    client.ok("DEBUG SLEEP 3");
    assert_eq!(client.int("DLOCK.SESSION s PX 60000 XX"), 1);
}

#[test]
fn the_old_sessions_end_does_not_release_a_hold_that_was_bound_elsewhere() {
    let (_server, mut client) = Server::start().with_client();
    open(&mut client, 60000);
    client.int("DLOCK.SESSION t PX 60000");
    client.int("DLOCK.ACQUIRE k a PX 60000 SESSIONID s");
    assert_eq!(client.int("DLOCK.RENEW k a SESSIONID t"), 1);
    assert_eq!(client.int("DLOCK.SESSION s CLOSE"), 0);
    client.nil("DLOCK.ACQUIRE k b");
    assert_eq!(client.int("DLOCK.SESSION t PX 60000 XX"), 1);
}
