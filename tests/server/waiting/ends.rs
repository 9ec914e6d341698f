//! How a wait ends without a grant: time, `CLIENT UNBLOCK`, demotion, a passed deadline, a refusal to wait at all. The
//! form of the reply after a wait.

use std::time::{Duration, Instant};

use redis::Value;

use crate::support::queue::all_granted;
use crate::support::replica::counter;
use crate::support::version::Version;
use crate::support::{Server, bytes_of, int_of, list_of, soon};

#[test]
fn a_wait_ends_with_nil_when_its_time_is_over() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    for command in ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK"] {
        for time in [1, 100, 300] {
            let mut waiter = server.client();
            let start = Instant::now();
            waiter.nil(format!("DLOCK.{command} k b BLOCK {time}"));
            let took = start.elapsed();
            assert!(took >= Duration::from_millis(time), "{command} {time}: {took:?}");
            assert!(took < Duration::from_millis(time + 2000), "{command} {time}: {took:?}");
        }
    }
    assert_eq!(["waits", "wait_timeouts", "refusals"].map(|name| counter(&mut client, name)), [12, 12, 0]);
    assert_eq!(server.queue("k"), [""; 0]);
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    assert_eq!(client.int("EXISTS k"), 0, "a waiter that has left is granted nothing");
}

#[test]
fn nil_after_waiting_has_the_usual_form() {
    let server = Server::start();
    let (mut two, mut three) = (server.client(), server.client().resp3());
    two.int("DLOCK.ACQUIRE k a");
    for owner in ["b", "*"] {
        assert_eq!(two.exact(format!("DLOCK.ACQUIRE k {owner} BLOCK 20")), b"$-1\r\n");
        assert_eq!(three.exact(format!("DLOCK.ACQUIRE k {owner} BLOCK 20")), b"_\r\n");
    }
}

#[test]
fn a_generated_owner_comes_with_the_token() {
    let (server, mut client) = Server::start().with_client();
    for resp3 in [false, true] {
        client.int("DLOCK.ACQUIRE k a");
        let mut waiter = if resp3 { server.client().resp3() } else { server.client() };
        server.enters_queue(&mut waiter, "DLOCK.ACQUIRE k * BLOCK 0");
        client.int("DLOCK.RELEASE k a");
        let reply = list_of(&waiter.read().unwrap());
        let (owner, token) = (String::from_utf8(bytes_of(&reply[0])).unwrap(), int_of(&reply[1]));
        assert_eq!((reply.len(), owner.len(), &owner[14..15]), (2, 36, "4"), "{owner}");
        assert_eq!(server.holders("k"), [owner.as_str()]);
        assert_eq!(client.int(format!("DLOCK.RELEASE k {owner} TOKEN {token}")), 1);
    }
}

#[test]
fn client_unblock_ends_a_wait() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut last = server.client();
    let mut waiters: Vec<_> = (0..3).map(|_| server.client()).collect();
    let ids: Vec<_> = waiters.iter_mut().map(|waiter| waiter.id()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        server.enters_queue(waiter, format!("DLOCK.ACQUIRE k w{n} BLOCK 0"));
    }
    server.enters_queue(&mut last, "DLOCK.ACQUIRE k last BLOCK 0");
    assert_eq!(client.int(format!("CLIENT UNBLOCK {}", ids[1])), 1);
    waiters[1].gives_up();
    assert_eq!(server.queue("k"), ["w0", "w2", "last"]);
    assert_eq!(client.int(format!("CLIENT UNBLOCK {} TIMEOUT", ids[0])), 1);
    waiters[0].gives_up();
    assert_eq!(client.int(format!("CLIENT UNBLOCK {} ERROR", ids[2])), 1);
    assert!(waiters[2].fails().starts_with("UNBLOCKED "));
    assert_eq!(server.queue("k"), ["last"]);
    assert_eq!(client.int(format!("CLIENT UNBLOCK {}", ids[2])), 0, "the client does not wait any more");
    client.int("DLOCK.RELEASE k a");
    last.granted();
    // The connections work on.
    waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.text("PING"), "PONG"));
}

#[test]
fn the_next_gets_in_when_a_head_gives_up() {
    let (server, mut client) = Server::start().with_client();
    for way in ["time", "TIMEOUT", "ERROR", "close", "kill"] {
        client.int("DLOCK.RLOCK k a");
        let mut head = server.client();
        let id = head.id();
        let block = if way == "time" { 100 } else { 0 };
        server.enters_queue(&mut head, format!("DLOCK.WLOCK k w BLOCK {block}"));
        let mut readers = server.waiters(["DLOCK.RLOCK k r1 BLOCK 0", "DLOCK.RLOCK k r2 BLOCK 0"]);
        let mut writer = server.waiter("DLOCK.WLOCK k w2 BLOCK 0");
        match way {
            "time" => {}
            "close" => drop(head),
            "kill" => assert_eq!(client.int(format!("CLIENT KILL ID {id}")), 1),
            _ => assert_eq!(client.int(format!("CLIENT UNBLOCK {id} {way}")), 1),
        }
        all_granted(&mut readers);
        assert_eq!(server.holders("k"), ["a", "r1", "r2"], "{way}");
        assert_eq!(server.queue("k"), ["w2"], "{way}");
        writer.waits();
        client.pipeline(&["DLOCK.RELEASE k a", "DLOCK.RELEASE k r1", "DLOCK.RELEASE k r2"]);
        writer.granted();
        client.int("DLOCK.RELEASE k w2");
    }
}

#[test]
fn an_absolute_lease_that_passes_while_waiting_is_nil() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let passed = client.now() + 800;
    let later = passed + 600_000;
    let requests =
        [format!("ACQUIRE k b PXAT {passed}"), format!("ACQUIRE k c PXAT {later}"), "ACQUIRE k d".to_owned()];
    let mut waiters = server.waiters(requests.map(|request| format!("DLOCK.{request} BLOCK 0")));
    client.pass(passed);
    client.int("DLOCK.RELEASE k a");
    waiters[0].gives_up();
    waiters[1].granted();
    // The key ends up to 50 ms after the lease while a request waits.
    assert!((later..=later + 50).contains(&client.end_of("k")));
    waiters[2].waits();
    assert_eq!(server.holders("k"), ["c"]);
    client.int("DLOCK.RELEASE k c");
    waiters[2].granted();
}

#[test]
fn waiting_for_oneself_is_a_deadlock() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.RLOCK r a");
    for key in ["k", "r"] {
        for time in ["0", "100"] {
            let error = client.error(format!("DLOCK.ACQUIRE {key} a BLOCK {time}"));
            assert!(error.starts_with("DEADLOCK "), "{error}");
        }
        client.nil(format!("DLOCK.ACQUIRE {key} a"));
    }
    assert_eq!(["waits", "deadlocks", "refusals"].map(|name| counter(&mut client, name)), [0, 4, 2]);
}

#[test]
fn no_request_waits_beyond_max_waiters() {
    let (server, mut client) = Server::conf("dlock.max-waiters 3").with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.ACQUIRE l a");
    let mut waiters = server.waiters(["k b", "k c", "l b"].map(|words| format!("DLOCK.ACQUIRE {words} BLOCK 0")));
    for key in ["k", "l"] {
        assert_eq!(
            client.error(format!("DLOCK.RLOCK {key} d BLOCK 0")),
            "ERR max number of waiters reached: dlock.max-waiters"
        );
        client.nil(format!("DLOCK.RLOCK {key} d"));
    }
    assert_eq!((server.queue("k"), counter(&mut client, "waits")), (vec!["b".to_owned(), "c".to_owned()], 3));
    // A free lock is granted.
    client.int("DLOCK.ACQUIRE free d BLOCK 0");
    // A waiter that is granted makes room for another.
    client.int("DLOCK.RELEASE l a");
    waiters[2].granted();
    let mut fourth = server.waiter("DLOCK.ACQUIRE k d BLOCK 0");
    client.error("DLOCK.ACQUIRE k e BLOCK 0");
    // A limit below the number of waiters sends none of them away. 0 is no limit.
    client.ok("CONFIG SET dlock.max-waiters 1");
    assert_eq!(server.queue("k"), ["b", "c", "d"]);
    client.ok("CONFIG SET dlock.max-waiters 0");
    let _many = server.waiters((0..20).map(|n| format!("DLOCK.ACQUIRE k more{n} BLOCK 0")));
    client.pipeline(&["DLOCK.RELEASE k a", "DLOCK.RELEASE k b", "DLOCK.RELEASE k c"]);
    fourth.granted();
}

#[test]
fn a_demoted_server_sends_everybody_away() {
    let (server, other) = (Server::start(), Server::start());
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.int("DLOCK.ACQUIRE short a PX 800");
    let mut waiters = server.waiters(["k b", "k c", "short b"].map(|words| format!("DLOCK.ACQUIRE {words} BLOCK 0")));
    client.ok(format!("REPLICAOF 127.0.0.1 {}", other.port()));
    for waiter in &mut waiters {
        assert!(waiter.fails().starts_with("UNBLOCKED "));
    }
    server.left_waiting(0);
    assert!(client.error("DLOCK.ACQUIRE k b BLOCK 0").starts_with("READONLY "));
    server.wait_synced(&other);
    server.promote();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    client.int("DLOCK.RELEASE k a");
    waiter.granted();
}

#[test]
fn a_wait_without_a_limit_or_with_a_huge_one_outlasts_the_idle_timeout() {
    let (server, mut client) = Server::conf("timeout 1").with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let mut waiters =
        server.waiters(["0", "4000000000000000"].map(|time| format!("DLOCK.ACQUIRE k b{time} BLOCK {time}")));
    // The server's idle timeout of 1 s does not end a wait.
    let start = Instant::now();
    soon("more than two idle timeouts have passed", || {
        let _ = server.client().ask("PING");
        start.elapsed() > Duration::from_millis(2500)
    });
    waiters.iter_mut().for_each(|waiter| waiter.waits());
    server.client().int("DLOCK.RELEASE k a");
    waiters[0].granted();
}

#[test]
fn replies_that_nobody_wants_are_not_sent() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = server.client();
    waiter.send("CLIENT REPLY OFF");
    server.enters_queue(&mut waiter, "DLOCK.ACQUIRE k b BLOCK 0");
    client.int("DLOCK.RELEASE k a");
    waiter.send("CLIENT REPLY ON");
    assert_eq!(waiter.read(), Ok(Value::Okay));
    assert_eq!(server.holders("k"), ["b"]);
}

/// Since Valkey 9.1, a waiting client that has sent `CLIENT CAPA redirect` is told where the new primary is. Earlier
/// versions redirect new commands only.
#[test]
fn a_client_that_can_be_redirected_is_told_the_new_primary() {
    let (server, mut client) = Server::start().with_client();
    let mut waiter = server.client();
    if waiter.attempt("CLIENT CAPA redirect").is_err() {
        return crate::support::skip::skipped("this server redirects no clients");
    }
    client.int("DLOCK.ACQUIRE k a PX 600000");
    server.enters_queue(&mut waiter, "DLOCK.ACQUIRE k b BLOCK 0");
    client.ok("REPLICAOF 127.0.0.1 1");
    let error = waiter.fails();
    let is_redirected = error == "REDIRECT 127.0.0.1:1";
    assert!(is_redirected || error.starts_with("UNBLOCKED "), "{error}");
    assert!(is_redirected || Version::of(&mut client) < Version::Valkey(9, 1), "{error}");
}
