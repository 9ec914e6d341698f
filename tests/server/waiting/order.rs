//! A lock is granted in the order of its queue: first come, first served.

use redis::Value;

use crate::support::{Server, hold, lock_info};

/// Waits without a limit, for a lease that no test outlives.
const FOR_EVER: &str = "BLOCK 0 PX 600000";

#[test]
fn fifty_waiters_are_served_in_order() {
    let (server, mut client) = Server::start().with_client();
    let mut last = client.int("DLOCK.ACQUIRE k first");
    let commands = ["ACQUIRE", "RACQUIRE", "WLOCK"];
    let mut waiters = server.waiters((0..50).map(|n| format!("DLOCK.{} k w{n} {FOR_EVER}", commands[n % 3])));
    let names: Vec<_> = (0..50).map(|n| format!("w{n}")).collect();
    assert_eq!(server.queue("k"), names);
    let mut holder = "first".to_owned();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.waits();
        assert_eq!(client.int(format!("DLOCK.RELEASE k {holder}")), 1);
        let token = waiter.granted();
        assert!(token > last, "w{n} got {token} after {last}");
        last = token;
        holder = format!("w{n}");
        assert_eq!(server.holders("k"), [holder.as_str()]);
        assert_eq!(server.queue("k"), names[n + 1..]);
    }
    assert_eq!(client.int("DLOCK.RELEASE k w49"), 1);
    assert_eq!(client.int("EXISTS k"), 0);
}

#[test]
fn readers_next_to_each_other_enter_together() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.WLOCK k a");
    let requests = ["RLOCK k r1", "RLOCK k r2", "WLOCK k w1", "RLOCK k r3", "RLOCK k r4", "RLOCK k r5", "ACQUIRE k w2"];
    let mut waiters = server.waiters(requests.map(|request| format!("DLOCK.{request} {FOR_EVER}")));
    for (release, entered, left) in [
        ("a", vec!["r1", "r2"], 5),
        ("r1", vec!["r2"], 5),
        ("r2", vec!["w1"], 4),
        ("w1", vec!["r3", "r4", "r5"], 1),
        ("r4", vec!["r3", "r5"], 1),
        ("r3", vec!["r5"], 1),
        ("r5", vec!["w2"], 0),
    ] {
        assert_eq!(client.int(format!("DLOCK.RELEASE k {release}")), 1);
        assert_eq!(server.holders("k"), entered, "after {release}");
        assert_eq!(server.waiting(), left, "after {release}");
    }
    let tokens: Vec<_> = waiters.iter_mut().map(|waiter| waiter.granted()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn each_lock_of_each_database_has_a_queue_of_its_own() {
    let (server, [mut client, mut other]) = Server::start().with_clients();
    other.ok("SELECT 1");
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.ACQUIRE l a");
    other.int("DLOCK.ACQUIRE k a");
    let mut on_k = server.waiter(format!("DLOCK.ACQUIRE k b {FOR_EVER}"));
    let mut on_l = server.waiter(format!("DLOCK.ACQUIRE l b {FOR_EVER}"));
    let mut in_database_1 = server.client();
    in_database_1.ok("SELECT 1");
    server.enters_queue(&mut in_database_1, format!("DLOCK.ACQUIRE k b {FOR_EVER}"));
    assert_eq!(client.int("DLOCK.RELEASE l a"), 1);
    on_l.granted();
    on_k.waits();
    assert_eq!(other.int("DLOCK.RELEASE k a"), 1);
    in_database_1.granted();
    on_k.waits();
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    on_k.granted();
}

#[test]
fn every_command_on_one_lock_without_a_limit_waits_and_gets_its_mode() {
    let (server, mut client) = Server::start().with_client();
    for (command, mode) in
        [("ACQUIRE", "exclusive"), ("RACQUIRE", "exclusive"), ("WLOCK", "exclusive"), ("RLOCK", "shared")]
    {
        client.int("DLOCK.ACQUIRE k a");
        let mut waiter = server.waiter(format!("DLOCK.{command} k b {FOR_EVER}"));
        client.int("DLOCK.RELEASE k a");
        let token = waiter.granted();
        let hold = hold(&mut client, "k", "b", mode).expect("a hold");
        assert_eq!((hold.token, hold.count), (token, 1));
        assert_eq!(client.int(format!("DLOCK.RELEASE k b TOKEN {token}")), 1);
    }
}

#[test]
fn a_relative_lease_starts_when_granted() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut given = server.waiter("DLOCK.RLOCK k b BLOCK 0 PX 90000");
    let mut by_default = server.waiter("DLOCK.RLOCK k c BLOCK 0");
    client.pass_ms(150);
    // The default at the time of the grant counts, not the default at the time of the request.
    client.ok("CONFIG SET dlock.default-lease 70000");
    let from = client.now();
    client.int("DLOCK.RELEASE k a");
    given.granted();
    by_default.granted();
    let to = client.now();
    for (owner, lease) in [("b", 90_000), ("c", 70_000)] {
        let ttl = hold(&mut client, "k", owner, "shared").unwrap().ttl;
        let spent = client.now() - from;
        // The times are rounded to milliseconds: a tolerance of 2 ms.
        assert!((lease - spent - 2..=lease).contains(&ttl), "{owner}: {ttl} of {lease}, {spent} spent");
    }
    assert!(client.end_of("k") <= to + 90_002);
}

#[test]
fn every_waiting_request_of_an_owner_has_a_place_of_its_own() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let requests = ["b", "c", "b", "b"].map(|owner| format!("DLOCK.RACQUIRE k {owner} {FOR_EVER}"));
    let mut waiters = server.waiters(requests);
    assert_eq!(server.queue("k"), ["b", "c", "b", "b"]);
    client.int("DLOCK.RELEASE k a");
    waiters[0].granted();
    assert_eq!(server.queue("k"), ["c", "b", "b"]);
    client.int("DLOCK.RELEASE k b");
    waiters[1].granted();
    client.int("DLOCK.RELEASE k c");
    // The last two requests are neighbors in the queue: one is granted, and the other re-enters at once.
    let tokens = [waiters[2].granted(), waiters[3].granted()];
    assert_eq!(tokens[0], tokens[1]);
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 2);
    assert_eq!(client.int("DLOCK.RELEASE k b"), 0);
    assert_eq!(client.int("DLOCK.RELEASE k b"), 1);
}

#[test]
fn requests_of_one_connection_follow_each_other() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = server.waiter(format!("DLOCK.ACQUIRE k b {FOR_EVER}"));
    // Requests behind the one that waits are carried out, and answered, after it.
    for request in ["DLOCK.RLOCK other b", "DLOCK.RELEASE k b", "PING"] {
        waiter.send(request);
    }
    waiter.waits();
    assert_eq!(client.int("EXISTS other"), 0);
    client.int("DLOCK.RELEASE k a");
    waiter.granted();
    waiter.granted();
    assert_eq!(waiter.read(), Ok(Value::Int(1)));
    assert_eq!(waiter.read(), Ok(Value::SimpleString("PONG".to_owned())));
}

#[test]
fn a_waiting_owner_may_release_what_it_holds_elsewhere() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.ACQUIRE l b");
    let mut first = server.waiter(format!("DLOCK.ACQUIRE k b {FOR_EVER}"));
    let mut second = server.waiter(format!("DLOCK.ACQUIRE l c {FOR_EVER}"));
    assert_eq!(client.int("DLOCK.RELEASE l b"), 1);
    second.granted();
    first.waits();
    client.nil("DLOCK.RELEASE k b");
    client.nil("DLOCK.RENEW k b");
    assert_eq!(server.queue("k"), ["b"]);
}
