//! `EXPIRE` and similar commands on a lock: an earlier end frees the lock, a later one or none extends no lease.

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Client, Server, hold, lock_info, req, soon};

/// Returns the commands that make the key end at `end`, or less than a second before.
fn ways_to_end(now: i64, end: i64) -> Vec<String> {
    let left = end - now;
    vec![
        format!("EXPIRE k {}", left / 1000),
        format!("PEXPIRE k {left}"),
        format!("EXPIREAT k {}", end / 1000),
        format!("PEXPIREAT k {end}"),
    ]
}

#[test]
fn a_later_end_or_none_extends_no_lease() {
    let (_server, mut client) = Server::start().with_client();
    let now = client.now();
    for way in ways_to_end(now, now + 500_000).iter().chain([&"PERSIST k".to_owned()]) {
        let token = client.int("DLOCK.WLOCK k a PX 900");
        let read = client.int("DLOCK.RLOCK k a PX 1000");
        let end = client.end_of("k");
        assert_eq!(client.int(way), 1, "{way}");
        assert!(lock_info(&mut client, "k").unwrap().ttl <= 1000, "{way}");
        assert!(client.int(format!("DLOCK.CHECK k {read}")) <= 1000, "{way}");
        client.pass(end);
        for request in ["INFO k", "INFO k OWNER a", "INFO k FULL", "RENEW k a", "RELEASE k a", "RELEASE k a ALL"] {
            client.nil(format!("DLOCK.{request}"));
        }
        for token in [token, read] {
            client.nil(format!("DLOCK.CHECK k {token}"));
        }
        // The key may be left without a live hold. The next grant sets its end.
        client.leaves("k", 40_000, "DLOCK.ACQUIRE k b PX 40000");
        let info = lock_info(&mut client, "k FULL").unwrap();
        assert!(info.token > read && info.count == 1 && info.holds()[0].owner == b"b", "{way}: {info:?}");
        client.int("DEL k");
    }
}

#[test]
fn a_release_or_renewal_that_finds_only_lapsed_holds_leaves_the_key() {
    let (server, mut client) = Server::conf("appendonly yes\nappendfsync always").with_client();
    for way in ["PERSIST k", "PEXPIRE k 900000"] {
        client.int("DLOCK.RLOCK k a PX 1000");
        let token = client.int("DLOCK.RLOCK k b PX 1000");
        let end = client.end_of("k");
        client.int(way);
        let key_end = client.end_of("k");
        client.pass(end + 20);
        let appended = server.appended(|| {
            for request in ["RELEASE k a", "RELEASE k b ALL", "RENEW k a", "RENEW k b PX 5000", "RENEW k a SESSION"] {
                client.nil(format!("DLOCK.{request}"));
            }
            client.nil(format!("DLOCK.RELEASE k b TOKEN {token}"));
            client.nil(format!("DLOCK.CHECK k {token}"));
            client.nil("DLOCK.INFO k FULL");
        });
        assert_eq!(appended, [""; 0], "{way}");
        assert_eq!((client.int("EXISTS k"), client.end_of("k")), (1, key_end), "{way}");
        // The next acquiring command drops the lapsed holds.
        let next = client.int("DLOCK.RLOCK k c PX 40000");
        let info = lock_info(&mut client, "k FULL").unwrap();
        assert_eq!((info.holders, info.count, info.token), (1, 1, next), "{way}");
        assert_eq!(client.int("DLOCK.RELEASE k c"), 1);
        assert_eq!(client.int("EXISTS k"), 0, "{way}");
    }
    assert_eq!(counter(&mut client, "lapses"), 4);
}

#[test]
fn a_key_ends_with_its_leases_when_nobody_waits_any_more() {
    let (server, [mut client, mut killed]) = Server::start().with_clients();
    client.int("DLOCK.ACQUIRE k a PX 40000");
    let end = client.end_of("k");
    client.nil("DLOCK.ACQUIRE k b BLOCK 20");
    soon("a wait whose time ran out leaves nothing", || client.end_of("k") == end);
    server.enters_queue(&mut killed, "DLOCK.ACQUIRE k b BLOCK 60000");
    assert!((end..=end + 50).contains(&client.end_of("k")));
    killed.hang_up();
    soon("a waiter that hung up leaves nothing", || client.end_of("k") == end);
}

#[test]
fn an_earlier_end_frees_the_lock() {
    let (_server, mut client) = Server::start().with_client();
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
    let (_server, mut client) = Server::start().with_client();
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
fn a_hold_is_never_shown_with_0_ms_left() {
    let (_server, mut client) = Server::start().with_client();
    // Each round sees the last milliseconds of a key, in one of which 0 might be shown.
    for _ in 0..20 {
        let token = client.int("DLOCK.ACQUIRE k a PX 60000");
        let end = client.now() + 5;
        client.int(format!("PEXPIREAT k {end}"));
        while let Some(info) = lock_info(&mut client, "k OWNER a") {
            assert!(info.ttl >= 1 && info.holds().iter().all(|hold| hold.ttl >= 1), "{info:?}");
            let left = client.run(format!("DLOCK.CHECK k {token}"));
            assert!(matches!(left, redis::Value::Nil | redis::Value::Int(1..)), "{left:?}");
        }
        assert!(client.now() >= end, "the lock vanished before its end");
        client.int("DEL k");
    }
}

#[test]
fn an_earlier_end_stands_until_the_next_grant_re_entry_or_renewal() {
    let (_server, mut client) = Server::start().with_client();
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
    client.pass_ms(1200);
    assert_eq!(client.end_of("k"), end, "the module leaves the earlier end alone");
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

/// Returns the client of a session, another client, the token of the session's hold, and the time at which its key is
/// set to expire: earlier than the end of the lease, and after the watchdog would have extended the lease.
fn ends_early(server: &Server) -> (Client, Client, i64, i64) {
    let (mut session, mut client) = (server.client(), server.client());
    let token = session.int("DLOCK.ACQUIRE k a PX 1500 SESSION");
    let end = client.now() + 1200;
    assert_eq!(client.int(format!("PEXPIREAT k {end}")), 1);
    (session, client, token, end)
}

#[test]
fn the_watchdog_leaves_an_earlier_end_alone() {
    let server = Server::start();
    let (mut session, mut client, token, end) = ends_early(&server);
    while client.now() < end {
        let found = client.end_of("k");
        assert!(found == end || client.now() >= end, "the key ends {} ms later", found - end);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    client.pass(end);
    client.nil(format!("DLOCK.CHECK k {token}"));
    client.nil("DLOCK.INFO k");
    session.nil("DLOCK.RENEW k a SESSION");
    soon("nothing is bound", || counter(&mut client, "sessions") == 0);
    assert!(client.int("DLOCK.ACQUIRE k b") > token);
}

#[test]
fn an_earlier_end_of_a_sessions_lock_serves_its_waiters() {
    let server = Server::start();
    let (session, mut client, token, end) = ends_early(&server);
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b PX 600000 BLOCK 0");
    let next = waiter.granted();
    // A token is at least the time of its grant, in µs.
    assert!(next > token && next / 1000 >= end, "granted {} ms early", end - next / 1000);
    assert_eq!(server.holders("k"), ["b"]);
    client.watch_close(session);
    assert_eq!(server.holders("k"), ["b"]);
}

#[test]
fn a_renewal_by_command_replaces_an_earlier_end_of_a_sessions_lock() {
    let server = Server::start();
    let (session, mut client, token, end) = ends_early(&server);
    client.leaves("k", 1500, "DLOCK.RENEW k a");
    client.pass(end + 1000);
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0, "the watchdog renews the lease again");
    drop(session);
}

#[test]
fn a_lock_restored_without_an_end_gets_its_last_deadline_in_the_same_turn() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    client.int("DLOCK.WLOCK k a PX 30000");
    client.int("DLOCK.RLOCK k a PX 40000");
    let (dump, end) = (client.bytes("DUMP k"), client.end_of("k"));
    let restore = req!["RESTORE", "k", 0, &dump, "REPLACE"];
    for db in [0, 3] {
        client.ok(format!("SELECT {db}"));
        client.ok(&restore);
        assert_eq!(client.end_of("k"), end, "RESTORE");
        client.ok("MULTI");
        client.text(&restore);
        client.run("EXEC");
        assert_eq!(client.end_of("k"), end, "in a transaction");
        client.run(req!["EVAL", "return redis.call('RESTORE', KEYS[1], 0, ARGV[1], 'REPLACE')", 1, "k", &dump]);
        assert_eq!(client.end_of("k"), end, "in a script");
        replica.wait_synced(&primary);
        let mut copy = replica.client();
        copy.ok(format!("SELECT {db}"));
        assert_eq!(copy.end_of("k"), end, "on the replica");
    }
    // A command in the same pipeline may still see no end.
    let replies = client.pipeline(&[&restore, &req!["PEXPIRETIME", "k"], &req!["DLOCK.INFO", "k"]]);
    assert!([Ok(Value::Int(-1)), Ok(Value::Int(end))].contains(&replies[1]), "{replies:?}");
    assert_eq!(client.end_of("k"), end);
}

#[test]
fn a_lock_restored_in_a_pause_gets_its_end_afterwards() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 40000");
    let (dump, end) = (client.bytes("DUMP k"), client.end_of("k"));
    client.ok("MULTI");
    client.text(req!["RESTORE", "k", 0, &dump, "REPLACE"]);
    client.text("CLIENT PAUSE 300 WRITE");
    client.run("EXEC");
    assert!(lock_info(&mut client, "k").unwrap().ttl <= 40_000);
    soon("the key has the end of the lease", || client.end_of("k") == end);
}

#[test]
fn a_lock_restored_with_a_later_end_is_free_at_its_deadline() {
    let (_server, mut client) = Server::start().with_client();
    let token = client.int("DLOCK.ACQUIRE k a PX 1000");
    let (dump, end) = (client.bytes("DUMP k"), client.end_of("k"));
    client.ok(req!["RESTORE", "k", 900_000, &dump, "REPLACE"]);
    assert!(client.int(format!("DLOCK.CHECK k {token}")) <= 1000);
    client.pass(end);
    client.nil(format!("DLOCK.CHECK k {token}"));
    client.leaves("k", 40_000, "DLOCK.ACQUIRE k b PX 40000");
}

#[test]
fn a_dump_of_lapsed_holds_restores_no_lock() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 100");
    let dump = client.bytes("DUMP k");
    client.outlive("k");
    client.ok(req!["RESTORE", "k", 0, &dump, "REPLACE"]);
    client.nil("DLOCK.INFO k");
    client.nil("DLOCK.RENEW k a");
    soon("the key is gone", || client.int("EXISTS k") == 0);
}

#[test]
fn a_key_without_an_end_holds_nobody_up_after_a_restart() {
    let (mut server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 60000");
    let token = client.int("DLOCK.ACQUIRE short a PX 1200");
    let end = client.end_of("short");
    client.pipeline(&["PERSIST k", "PERSIST short", "SAVE"]);
    server.crash();
    let mut client = server.client();
    assert!(lock_info(&mut client, "k").unwrap().ttl <= 60_000);
    client.pass(end);
    client.nil(format!("DLOCK.CHECK short {token}"));
    client.nil("DLOCK.INFO short");
    client.leaves("short", 40_000, "DLOCK.ACQUIRE short b PX 40000");
}

#[test]
fn a_key_without_an_end_holds_nobody_up_after_a_promotion() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    let token = client.int("DLOCK.ACQUIRE k a PX 800");
    let end = client.end_of("k");
    client.int("PERSIST k");
    replica.wait_synced(&primary);
    let mut copy = replica.client();
    copy.pass(end);
    copy.nil(format!("DLOCK.CHECK k {token}"));
    copy.nil("DLOCK.INFO k");
    replica.promote();
    copy.leaves("k", 40_000, "DLOCK.ACQUIRE k b PX 40000");
}
