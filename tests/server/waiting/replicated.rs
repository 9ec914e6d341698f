//! Grants from the queue reach replicas and files as effects, after what caused them.

use crate::support::queue::all_granted;
use crate::support::state::{assert_same_but_for_grace, state};
use crate::support::{Client, Server, lock_info, req, soon};

const KEEP: &str = "PX 600000 BLOCK 0";

/// Returns what an act appends to the AOF, without the brackets of transactions.
#[track_caller]
fn stream(server: &Server, act: impl FnOnce()) -> Vec<String> {
    let names = server.appended(act);
    names.into_iter().filter(|name| name != "MULTI" && name != "EXEC").collect()
}

#[test]
fn a_grant_follows_what_freed_the_lock() {
    let (server, mut client) = Server::conf("appendonly yes\nappendfsync no").with_client();
    for act in
        ["DEL k", "UNLINK k", "RENAME k l", "FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1", "DLOCK.RELEASE k a", "MOVE k 1"]
    {
        client.ok("FLUSHALL");
        client.int(format!("DLOCK.ACQUIRE k a {KEEP}"));
        let mut waiter = server.waiter(format!("DLOCK.ACQUIRE k b {KEEP}"));
        let appended = stream(&server, || {
            client.run(act);
            waiter.granted();
        });
        let name = act.split(' ').next().unwrap_or(act);
        assert_eq!(appended, [name, "DLOCK.APPLY"], "{act}");
    }
    // An expiry in the past is a deletion.
    client.ok("FLUSHALL");
    client.int(format!("DLOCK.ACQUIRE k a {KEEP}"));
    let mut waiter = server.waiter(format!("DLOCK.ACQUIRE k b {KEEP}"));
    let appended = stream(&server, || {
        client.int("EXPIRE k -1");
        waiter.granted();
    });
    assert!(matches!(appended[0].as_str(), "DEL" | "UNLINK") && appended[1..] == ["DLOCK.APPLY"], "{appended:?}");
}

#[test]
fn a_lease_end_is_one_effect() {
    let (server, mut client) = Server::conf("appendonly yes\nappendfsync no").with_client();
    // A server that gets no processor for 50 ms finds the key expired, and appends a deletion, too.
    let in_place = (0..10).any(|_| {
        client.int("DLOCK.ACQUIRE k a PX 800");
        let mut waiter = server.waiter(format!("DLOCK.ACQUIRE k b {KEEP}"));
        let appended = stream(&server, || {
            waiter.granted();
        });
        client.int("DLOCK.RELEASE k b");
        appended == ["DLOCK.APPLY"]
    });
    assert!(in_place, "in place, without a deletion");
}

#[test]
fn a_key_overwritten_or_left_alone_brings_no_effect() {
    let (server, mut client) = Server::conf("appendonly yes\nappendfsync no").with_client();
    client.int(format!("DLOCK.ACQUIRE k a {KEEP}"));
    let mut waiter = server.waiter(format!("DLOCK.ACQUIRE k b {KEEP}"));
    let appended = stream(&server, || {
        client.ok("SET k v");
        waiter.fails();
    });
    assert_eq!(appended, ["SET"]);
    client.int("DEL k");
    client.int(format!("DLOCK.ACQUIRE k a {KEEP}"));
    let _first = server.waiter(format!("DLOCK.ACQUIRE k b {KEEP}"));
    let appended = stream(&server, || {
        server.waiter("DLOCK.ACQUIRE k c BLOCK 30").gives_up();
        drop(server.waiter("DLOCK.ACQUIRE k d BLOCK 0"));
        server.left_waiting(1);
        client.nil("DLOCK.ACQUIRE k e");
    });
    assert_eq!(appended, [""; 0], "who waits and leaves does not change the lock");
}

/// Makes hand-overs of every kind. All locks are held at the end.
#[track_caller]
fn hand_over(server: &Server, client: &mut Client) {
    client.pipeline(&(0..8).map(|n| format!("DLOCK.WLOCK k{n} a PX 600000")).collect::<Vec<_>>());
    client.int("DLOCK.RLOCK k7 a PX 600000");
    for (owner, lease) in [("a", 1500), ("b", 600_000), ("c", 1700)] {
        client.int(format!("DLOCK.RLOCK r {owner} PX {lease}"));
    }
    client.int("DLOCK.RLOCK u a PX 600000");
    client.int("DLOCK.RLOCK u b PX 1600");
    client.int("DLOCK.ACQUIRE short a PX 1500");
    let mut waiters = server.waiters((0..8).map(|n| format!("DLOCK.RLOCK k{n} b {KEEP}")));
    waiters.extend(server.waiters((0..8).map(|n| format!("DLOCK.RLOCK k{n} c {KEEP}"))));
    waiters.push(server.waiter(format!("DLOCK.WLOCK u a {KEEP}")));
    waiters.push(server.waiter(format!("DLOCK.ACQUIRE short b {KEEP}")));
    let mut last = server.waiter(format!("DLOCK.WLOCK r w {KEEP}"));
    for act in [
        req!["DLOCK.RELEASE", "k0", "a"],
        req!["DEL", "k1"],
        req!["UNLINK", "k2"],
        req!["RENAME", "k3", "renamed"],
        req!["MOVE", "k4", 1],
        req!["PEXPIRE", "k5", 30],
        req!["EVAL", "return redis.call('DLOCK.RELEASE', KEYS[1], 'a')", 1, "k6"],
        req!["DLOCK.RELEASE", "k7", "a", "WRITE"],
    ] {
        client.run(&act);
    }
    all_granted(&mut waiters);
    soon("those whose leases are over are gone", || server.holders("r") == ["b"]);
    client.int("DLOCK.RELEASE r b");
    last.granted();
}

#[test]
fn replica_and_file_are_equal_after_hand_overs() {
    let (mut server, replica) = Server::conf("appendonly yes\nappendfsync no").with_replica();
    let second = replica.replica();
    let mut client = server.client();
    hand_over(&server, &mut client);
    replica.wait_synced(&server);
    second.wait_synced(&replica);
    let expected = state(&mut client);
    assert_eq!(expected.len(), 13, "{expected:?}");
    assert_same_but_for_grace("replica", &expected, &state(&mut replica.client()));
    assert_same_but_for_grace("replica of the replica", &expected, &state(&mut second.client()));
    for pair in server.aof().windows(2) {
        assert_ne!([&pair[0][0], &pair[1][0]], [b"DEL".as_slice(), b"DEL"], "nothing goes twice");
    }
    server.crash();
    assert_same_but_for_grace("file", &expected, &state(&mut server.client()));
}

#[test]
fn replicas_have_the_deadline_while_somebody_waits() {
    let (server, replica) = Server::conf("appendonly yes\nappendfsync no").with_replica();
    let (mut client, mut copy) = (server.client(), replica.client());
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let deadline = client.end_of("k");
    let mut waiters = server.waiters(["b", "c"].map(|owner| format!("DLOCK.ACQUIRE k {owner} {KEEP}")));
    replica.wait_synced(&server);
    assert_eq!(copy.end_of("k"), deadline, "who waits does not change it");
    let until = client.now() + 700_000;
    for act in [
        "PING".to_owned(),
        format!("DLOCK.RENEW k a PXAT {until}"),
        "DLOCK.RELEASE k a".to_owned(),
        "DLOCK.RELEASE k b".to_owned(),
        "DLOCK.RENEW k c".to_owned(),
    ] {
        client.run(&act);
        replica.wait_synced(&server);
        let (here, there) = (client.end_of("k"), copy.end_of("k"));
        let waiting = server.waiting();
        let longer = if waiting > 0 { 50 } else { 0 };
        assert!((there..=there + longer).contains(&here), "{act}: {} ms longer, {waiting} wait", here - there);
        if act.contains("PXAT") {
            assert_eq!(there, until);
        }
    }
    all_granted(&mut waiters);
}

#[test]
fn a_promoted_replica_has_what_was_granted_and_no_queue() {
    let (server, replica) = Server::start().with_replica();
    let mut client = server.client();
    client.int(format!("DLOCK.ACQUIRE k a {KEEP}"));
    let mut waiters = server.waiters(["b", "c", "d"].map(|owner| format!("DLOCK.ACQUIRE k {owner} {KEEP}")));
    client.int("DLOCK.RELEASE k a");
    let token = waiters[0].granted();
    replica.wait_synced(&server);
    let mut copy = replica.client();
    let info = lock_info(&mut copy, "k FULL").unwrap();
    assert_eq!((info.token, info.waiters, info.queue), (token, 0, Some(vec![])), "a replica shows no queue");
    drop(server);
    replica.promote();
    copy.nil("DLOCK.ACQUIRE k c");
    let mut waiter = replica.waiter(format!("DLOCK.ACQUIRE k c {KEEP}"));
    assert_eq!(copy.int(format!("DLOCK.RELEASE k b TOKEN {token}")), 1);
    assert!(waiter.granted() > token);
}

#[test]
fn a_grant_survives_a_restart_and_the_queue_does_not() {
    let (mut server, mut client) = Server::conf("appendonly yes\nappendfsync no").with_client();
    client.int(format!("DLOCK.ACQUIRE k a {KEEP}"));
    let mut waiters = server.waiters(["b", "c"].map(|owner| format!("DLOCK.ACQUIRE k {owner} {KEEP}")));
    client.int("DEL k");
    let token = waiters[0].granted();
    server.crash();
    let mut client = server.client();
    assert_eq!((server.holders("k"), server.queue("k")), (vec!["b".to_owned()], vec![]));
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert_eq!(client.int("DLOCK.RELEASE k b"), 1);
    assert!(client.int("DLOCK.ACQUIRE k c") > token);
}
