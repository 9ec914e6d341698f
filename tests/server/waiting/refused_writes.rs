//! While the server accepts no writes, neither a timer nor anything that frees a lock grants it to a waiter. The waiter
//! gets the lock when writes are accepted again.

use std::fs;

use crate::support::replica::{counter, info_field};
use crate::support::{Client, Server, lock_info, soon};

/// Checks that the lease of `k` is over at `end`, and that its queue is not served.
#[track_caller]
fn nothing_is_granted(server: &Server, client: &mut Client, end: i64, waiters: &mut [Client]) {
    client.pass(end + 150);
    waiters.iter_mut().for_each(|waiter| waiter.waits());
    assert_eq!(counter(client, "waiters"), waiters.len() as i64);
    let info = lock_info(client, "k FULL").expect("a lock with waiters");
    assert_eq!((info.mode.as_str(), info.ttl, info.waiters), ("free", 0, waiters.len() as i64));
    assert_eq!(server.waiting(), waiters.len() as i64);
}

#[test]
fn too_few_replicas() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 800");
    let end = client.end_of("k");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0 PX 600000", "DLOCK.ACQUIRE k c BLOCK 0"]);
    client.ok("CONFIG SET min-replicas-to-write 1");
    nothing_is_granted(&server, &mut client, end, &mut waiters);
    assert!(client.error("DLOCK.ACQUIRE k d BLOCK 0").starts_with("NOREPLICAS "));
    assert!(client.error("DLOCK.RELEASE k a").starts_with("NOREPLICAS "));
    client.ok("CONFIG SET min-replicas-to-write 0");
    waiters[0].granted();
    assert_eq!(server.queue("k"), ["c"]);
    // A client that vanishes does not bring about a grant either.
    client.int("DLOCK.RELEASE k b");
    waiters[1].granted();
    client.int("DLOCK.RLOCK r a");
    let head = server.waiter("DLOCK.WLOCK r w BLOCK 0");
    let mut reader = server.waiter("DLOCK.RLOCK r b BLOCK 0");
    client.ok("CONFIG SET min-replicas-to-write 1");
    drop(head);
    server.left_waiting(1);
    reader.waits();
    client.ok("CONFIG SET min-replicas-to-write 0");
    reader.granted();
}

#[test]
fn the_timer_grants_when_a_replica_comes_back() {
    let (server, mut client) = Server::conf("min-replicas-max-lag 10").with_client();
    client.int("DLOCK.ACQUIRE k a PX 800");
    let end = client.end_of("k");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0 PX 600000"]);
    client.ok("CONFIG SET min-replicas-to-write 1");
    nothing_is_granted(&server, &mut client, end, &mut waiters);
    let replica = server.replica();
    waiters[0].granted();
    replica.wait_synced(&server);
    assert_eq!(replica.holders("k"), ["b"]);
}

#[test]
fn a_disk_that_fails() {
    let (server, mut client) = Server::conf("dbfilename dump.rdb\nstop-writes-on-bgsave-error yes").with_client();
    client.ok(["CONFIG", "SET", "save", "36000 100000"]);
    client.int("DLOCK.ACQUIRE k a PX 2000");
    let end = client.end_of("k");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0 PX 600000"]);
    // The file cannot be put in the place of a directory.
    let in_the_way = server.path("dump.rdb");
    fs::create_dir_all(in_the_way.join("full")).unwrap();
    let saved = |client: &mut Client, wanted: &str| {
        soon("the outcome of the save is the wanted one", || {
            let _ = client.attempt("BGSAVE");
            info_field(client, "persistence", "rdb_last_bgsave_status").as_deref() == Some(wanted)
        });
    };
    saved(&mut client, "err");
    assert!(client.error("SET x y").starts_with("MISCONF "));
    nothing_is_granted(&server, &mut client, end, &mut waiters);
    fs::remove_dir_all(in_the_way).unwrap();
    saved(&mut client, "ok");
    waiters[0].granted();
}

/// Acquires `k` with this lease and lets another client wait for it. Returns both clients.
fn held_and_waited_for(server: &Server, lease: &str) -> (Client, Client) {
    let mut client = server.client();
    client.int(format!("DLOCK.ACQUIRE k a {lease}"));
    (client, server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 600000"))
}

/// Checks that the lock is free, and that its waiter gets it only when writes are accepted again.
#[track_caller]
fn waits_until_writes_are_accepted(client: &mut Client, waiter: &mut Client, what: &str) {
    client.pass_ms(150);
    if let Some(reply) = waiter.poll(std::time::Duration::from_millis(5)) {
        panic!("{what}: the waiter got {reply:?} while writes are refused");
    }
    let info = lock_info(client, "k FULL").unwrap_or_else(|| panic!("{what}: nobody waits"));
    assert_eq!((info.mode.as_str(), info.holders, info.waiters), ("free", 0, 1), "{what}");
    client.ok("CONFIG SET min-replicas-to-write 0");
    waiter.granted();
}

#[test]
fn no_timer_makes_up_for_a_pause_while_writes_are_refused() {
    // `PING` leaves the expiry of the key as it is.
    for expiry in ["PERSIST k", "PEXPIRE k 900000", "PING"] {
        let server = Server::start();
        let (mut client, mut waiter) = held_and_waited_for(&server, "PX 600");
        let pause = ["CLIENT PAUSE 900 WRITE", "CONFIG SET min-replicas-to-write 1"];
        client.pipeline(&[&[expiry], &pause[..]].concat());
        client.pass_ms(1100);
        waits_until_writes_are_accepted(&mut client, &mut waiter, expiry);
    }
}

#[test]
fn whatever_frees_a_lock_grants_nothing_while_writes_are_refused() {
    for free in
        ["DEL k", "UNLINK k", "RENAME k l", "MOVE k 1", "PEXPIREAT k 1", "FLUSHDB", "FLUSHALL ASYNC", "SWAPDB 0 1"]
    {
        let server = Server::start();
        let (mut client, mut waiter) = held_and_waited_for(&server, "PX 600000");
        client.ok("MULTI");
        client.text(free);
        client.text("CONFIG SET min-replicas-to-write 1");
        client.run("EXEC");
        waits_until_writes_are_accepted(&mut client, &mut waiter, free);
    }
}

#[test]
fn no_end_by_time_grants_anything_while_writes_are_refused() {
    for (what, lease, requests) in [
        ("a lease end", "PX 500", [""].as_slice()),
        ("an early end", "PX 600000", &["PEXPIRE k 200"]),
        ("a lease end without an end of the key", "PX 500", &["PERSIST k"]),
        ("a lease end before a later end of the key", "PX 500", &["PEXPIRE k 900000"]),
    ] {
        let server = Server::start();
        let (mut client, mut waiter) = held_and_waited_for(&server, lease);
        let end = client.now() + 600;
        requests.iter().filter(|request| !request.is_empty()).for_each(|request| drop(client.run(request)));
        client.ok("CONFIG SET min-replicas-to-write 1");
        client.pass(end);
        waits_until_writes_are_accepted(&mut client, &mut waiter, what);
    }
}

#[test]
fn a_session_that_ends_while_writes_are_refused_frees_the_lock_and_grants_nothing() {
    for paused in [false, true] {
        let (server, mut session) = Server::start().with_client();
        session.int("DLOCK.ACQUIRE k a PX 600000 SESSION");
        let (mut client, mut waiter) = (server.client(), server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 600000"));
        if paused {
            client.ok("CLIENT PAUSE 300 WRITE");
        }
        client.ok("CONFIG SET min-replicas-to-write 1");
        client.watch_close(session);
        client.pass_ms(300);
        soon("the session has ended", || counter(&mut client, "session_ends") == 1);
        let what = format!("the end of a session, paused: {paused}");
        waits_until_writes_are_accepted(&mut client, &mut waiter, &what);
    }
}
