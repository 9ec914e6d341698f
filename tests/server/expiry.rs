//! `EXPIRE` and its kin on a lock: earlier frees it, later and never do not move a lease.

use std::time::Duration;

use crate::support::{Client, Server, eventually, hold, lock_info};

/// What the contract gives the module to put a key's time back, and a little for a busy machine.
const PUT_BACK: Duration = Duration::from_millis(1500);

/// Commands that make the key end at this time.
fn ways_to_end(now: i64, end: i64) -> Vec<String> {
    let left = end - now;
    vec![
        format!("EXPIRE k {}", left / 1000),
        format!("PEXPIRE k {left}"),
        format!("EXPIREAT k {}", end / 1000),
        format!("PEXPIREAT k {end}"),
    ]
}

#[track_caller]
fn put_back(client: &mut Client, end: i64, what: &str) {
    eventually(PUT_BACK, &format!("{what} is undone"), || client.end_of("k") == end);
}

#[test]
fn a_later_end_or_none_is_put_back_within_a_second() {
    let server = Server::start();
    let mut client = server.client();
    let now = client.now();
    for way in ways_to_end(now, now + 500_000).iter().chain([&"PERSIST k".to_owned()]) {
        client.int("DLOCK.WLOCK k a PX 40000");
        client.int("DLOCK.RLOCK k a PX 50000");
        let end = client.end_of("k");
        assert_eq!(client.int(way), 1);
        assert!(lock_info(&mut client, "k").unwrap().ttl <= 50_000, "{way}");
        put_back(&mut client, end, way);
        let info = lock_info(&mut client, "k OWNER a").unwrap();
        assert_eq!((info.count, info.holds().len()), (2, 2), "{way}");
        client.int("DEL k");
    }
}

#[test]
fn an_end_that_is_later_by_a_little_is_put_back_too() {
    let server = Server::start();
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 40000");
    let end = client.end_of("k");
    assert_eq!(client.int(format!("PEXPIREAT k {}", end + 1)), 1);
    put_back(&mut client, end, "a millisecond more");
}

#[test]
fn a_key_ends_with_its_leases_when_nobody_waits_any_more() {
    let server = Server::start();
    let (mut client, mut killed) = (server.client(), server.client());
    client.int("DLOCK.ACQUIRE k a PX 40000");
    let end = client.end_of("k");
    client.nil("DLOCK.ACQUIRE k b BLOCK 20");
    put_back(&mut client, end, "a wait whose time ran out");
    server.lines_up(&mut killed, "DLOCK.ACQUIRE k b BLOCK 60000");
    assert_eq!(client.end_of("k"), end + 50);
    killed.hang_up();
    put_back(&mut client, end, "a waiter that hung up");
    let _waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 60000");
    client.ok("SWAPDB 0 1");
    client.ok("SELECT 1");
    put_back(&mut client, end, "a line that stayed with the other database");
}

#[test]
fn many_keys_are_put_back_at_once() {
    let server = Server::start();
    let mut client = server.client();
    let each = |word: &str, rest: &str| (0..500).map(|n| format!("{word} k{n}{rest}")).collect::<Vec<_>>();
    client.pipeline(&each("DLOCK.ACQUIRE", " a PX 40000"));
    let ends = client.pipeline(&each("PEXPIRETIME", ""));
    client.pipeline(&each("PERSIST", ""));
    eventually(PUT_BACK, "all are back", || client.pipeline(&each("PEXPIRETIME", "")) == ends);
}

#[test]
fn a_lease_ends_on_time_whatever_the_key_says() {
    let server = Server::start();
    let mut client = server.client();
    for way in ["PERSIST k", "PEXPIRE k 900000"] {
        let token = client.int("DLOCK.ACQUIRE k a PX 300");
        let end = client.end_of("k");
        assert_eq!(client.int(way), 1);
        client.pass(end);
        client.nil("DLOCK.INFO k");
        client.nil("DLOCK.RENEW k a");
        assert!(client.int("DLOCK.ACQUIRE k b PX 40000") > token, "{way}");
        client.int("DEL k");
        // And nothing of it is left, even if nobody comes.
        client.int("DLOCK.ACQUIRE k a PX 300");
        client.int(way);
        eventually(PUT_BACK, "the key is gone", || client.int("EXISTS k") == 0);
    }
}

#[test]
fn an_earlier_end_frees_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    let token = client.int("DLOCK.ACQUIRE k a PX 60000");
    client.nil("DLOCK.ACQUIRE k b");
    client.int("PEXPIRE k 50");
    client.outlive("k");
    client.nil(format!("DLOCK.CHECK k {token}"));
    client.nil("DLOCK.RENEW k a");
    assert!(client.int("DLOCK.ACQUIRE k b") > token);
    for past in ["EXPIRE k -1", "PEXPIRE k 0", "EXPIREAT k 1", "PEXPIREAT k 1000"] {
        client.int("DEL k");
        client.int("DLOCK.RLOCK k a");
        client.int(past);
        assert_eq!(client.int("EXISTS k"), 0, "{past}");
        client.nil("DLOCK.INFO k");
    }
}

#[test]
fn nothing_shown_outlives_the_key() {
    let server = Server::start();
    let mut client = server.client();
    let now = client.now();
    for way in ways_to_end(now, now + 9_000) {
        let write = client.int("DLOCK.WLOCK k a PX 40000");
        let read = client.int("DLOCK.RLOCK k a PX 60000");
        client.int(&way);
        let left = client.int("PTTL k");
        assert!(left <= 9_000, "{way}");
        let info = lock_info(&mut client, "k FULL").unwrap();
        let mut shown: Vec<_> = info.holds().iter().map(|hold| hold.ttl).collect();
        shown.push(info.ttl);
        shown.extend([write, read].map(|token| client.int(format!("DLOCK.CHECK k {token}"))));
        shown.extend(["exclusive", "shared"].map(|mode| hold(&mut client, "k", "a", mode).unwrap().ttl));
        assert!(shown.iter().all(|ttl| (1..=left).contains(ttl)), "{way}: {shown:?} above {left}");
        client.int("DEL k");
    }
}

#[test]
fn what_is_shown_is_never_nothing_left() {
    let server = Server::start();
    let mut client = server.client();
    // Several times, as only one millisecond is of interest.
    for _ in 0..20 {
        let token = client.int("DLOCK.ACQUIRE k a PX 60000");
        let end = client.now() + 5;
        client.int(format!("PEXPIREAT k {end}"));
        while let Some(info) = lock_info(&mut client, "k OWNER a") {
            assert!(info.ttl >= 1 && info.holds().iter().all(|hold| hold.ttl >= 1), "{info:?}");
            let left = client.run(format!("DLOCK.CHECK k {token}"));
            assert!(matches!(left, redis::Value::Nil | redis::Value::Int(1..)), "{left:?}");
        }
        assert!(client.now() >= end, "not before the end");
        client.int("DEL k");
    }
}

#[test]
fn an_earlier_end_stands_until_the_next_grant_re_entry_or_renewal() {
    let server = Server::start();
    let mut client = server.client();
    let early = |client: &mut Client| {
        client.int("DEL k");
        client.int("DLOCK.RLOCK k a PX 60000");
        client.int("DLOCK.RLOCK k a PX 60000");
        client.int("DLOCK.RLOCK k c PX 60000");
        client.int("PEXPIRE k 9000");
        client.end_of("k")
    };
    let end = early(&mut client);
    for (request, reply) in [
        ("DLOCK.RELEASE k a", Some(0)),
        ("DLOCK.RELEASE k c", Some(1)),
        ("DLOCK.WLOCK k b", None),
        ("DLOCK.RELEASE k b", None),
        ("DLOCK.RENEW k b", None),
        ("DLOCK.RENEW k a WRITE", None),
    ] {
        let value = client.run(request);
        assert_eq!(value, reply.map_or(redis::Value::Nil, redis::Value::Int), "{request}");
        assert_eq!(client.end_of("k"), end, "{request}");
    }
    let now = client.now();
    client.pass(now + 1200);
    assert_eq!(client.end_of("k"), end, "it is not put back either");
    for (request, left) in [
        ("DLOCK.RLOCK k a PX 70000", 70_000),
        ("DLOCK.RENEW k a PX 80000", 80_000),
        ("DLOCK.RLOCK k b PX 90000", 90_000),
    ] {
        early(&mut client);
        client.leaves("k", left, request);
    }
    early(&mut client);
    client.int("DLOCK.RLOCK k b PX 1000");
    let left = client.int("PTTL k");
    assert!((50_000..=60_000).contains(&left), "the last deadline, not that of the new hold: {left}");
}

#[test]
fn a_lock_restored_without_an_end_gets_its_own() {
    let server = Server::start();
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 40000");
    let end = client.end_of("k");
    let dump = client.bytes("DUMP k");
    for ttl in ["0", "900000"] {
        client.int("DEL k");
        client.ok([b"RESTORE".as_slice(), b"k", ttl.as_bytes(), &dump]);
        put_back(&mut client, end, "RESTORE");
    }
    // A dump of holds that have all lapsed is nothing.
    client.int("DEL k");
    client.int("DLOCK.ACQUIRE k a PX 300");
    let dump = client.bytes("DUMP k");
    client.outlive("k");
    client.ok([b"RESTORE".as_slice(), b"k", b"0", &dump, b"REPLACE"]);
    client.nil("DLOCK.INFO k");
    client.nil("DLOCK.RENEW k a");
    eventually(PUT_BACK, "the key is gone", || client.int("EXISTS k") == 0);
}

/// Sends these in one transaction.
fn transact(client: &mut Client, requests: &[&str]) {
    client.ok("MULTI");
    requests.iter().for_each(|request| assert_eq!(client.text(request), "QUEUED"));
    client.run("EXEC");
}

#[test]
fn an_end_is_put_back_wherever_the_lock_went() {
    let server = Server::start();
    let mut client = server.client();
    for (requests, db, key) in [
        (["PERSIST k", "PING"].as_slice(), 0, "k"),
        (&["PERSIST k", "RENAME k n"], 0, "n"),
        (&["PERSIST k", "MOVE k 1"], 1, "k"),
        (&["PERSIST k", "SWAPDB 0 1"], 1, "k"),
        (&["PERSIST k", "RENAME k n", "MOVE n 1", "SWAPDB 1 2"], 2, "n"),
    ] {
        client.ok("FLUSHALL");
        client.ok("SELECT 0");
        client.int("DLOCK.ACQUIRE k a PX 60000");
        let end = client.end_of("k");
        // In one turn of the server's event loop, as in a transaction or a script.
        client.pipeline(requests);
        client.ok(format!("SELECT {db}"));
        eventually(PUT_BACK, &format!("after {requests:?} the end is put back"), || client.end_of(key) == end);
    }
}

#[test]
fn an_end_is_put_back_in_any_database() {
    let server = Server::start();
    let mut client = server.client();
    for db in [3, 0, 1] {
        client.ok(format!("SELECT {db}"));
        client.int("DLOCK.ACQUIRE k a PX 60000");
        let end = client.end_of("k");
        client.int("PERSIST k");
        put_back(&mut client, end, "PERSIST");
    }
    // In all of them at once.
    let mut ends = Vec::new();
    for db in [3, 0, 1] {
        client.ok(format!("SELECT {db}"));
        ends.push(client.end_of("k"));
    }
    client.pipeline(&["SELECT 3", "PERSIST k", "SELECT 0", "PERSIST k", "SELECT 1", "PERSIST k"]);
    for (db, end) in [3, 0, 1].into_iter().zip(ends) {
        client.ok(format!("SELECT {db}"));
        put_back(&mut client, end, "PERSIST");
    }
}

#[test]
fn nothing_is_put_back_while_writes_are_paused() {
    let server = Server::conf("appendonly yes");
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 60000");
    client.int("DLOCK.ACQUIRE short a PX 300");
    let end = client.end_of("k");
    transact(&mut client, &["PERSIST k", "PERSIST short", "CLIENT PAUSE 600 WRITE"]);
    let now = client.now();
    let pause_ends = now + 450;
    while client.now() < pause_ends {
        assert_eq!(client.end_of("k"), -1, "paused");
        lock_info(&mut client, "short FULL");
    }
    eventually(PUT_BACK, "put back", || client.end_of("k") == end && client.int("EXISTS short") == 0);
}

#[test]
fn an_end_that_a_file_lacks_is_put_back_after_the_restart() {
    let mut server = Server::start();
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 60000");
    client.int("DLOCK.ACQUIRE short a PX 700");
    let end = client.end_of("k");
    // In one turn of the server's event loop.
    client.pipeline(&["PERSIST k", "PERSIST short", "SAVE"]);
    server.kill9();
    server.boot();
    let mut client = server.client();
    eventually(PUT_BACK, "put back", || client.end_of("k") == end && client.int("EXISTS short") == 0);
}

#[test]
fn an_end_that_a_replica_lacks_is_put_back_when_it_is_promoted() {
    let primary = Server::start();
    let replica = primary.replica();
    let mut client = primary.client();
    client.int("DLOCK.ACQUIRE k a PX 60000");
    replica.wait_synced(&primary);
    let end = client.end_of("k");
    // What a primary leaves behind that dies between the command and what the module makes of it.
    let mut copy = replica.client();
    copy.ok("CONFIG SET replica-read-only no");
    copy.int("PERSIST k");
    let now = copy.now();
    copy.pass(now + 200);
    assert_eq!(copy.end_of("k"), -1, "a replica does nothing by itself");
    replica.promote();
    eventually(PUT_BACK, "put back", || copy.end_of("k") == end);
}
