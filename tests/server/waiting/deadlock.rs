//! Owners that would wait for each other: the request that closes the cycle is refused.

use crate::support::replica::counter;
use crate::support::{Server, req};

#[test]
fn a_cycle_over_two_locks_is_refused_with_its_chain() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE L1 b");
    client.int("DLOCK.ACQUIRE L2 a");
    let mut b = server.waiter("DLOCK.ACQUIRE L2 b BLOCK 0");
    let error = client.error("DLOCK.ACQUIRE L1 a BLOCK 0");
    assert_eq!(error, "DEADLOCK a waits for L1 held by b, b waits for L2 held by a");
    assert_eq!(["waits", "deadlocks", "waiters"].map(|name| counter(&mut client, name)), [1, 1, 1]);
    // The refusal has changed nothing: a may try without waiting, and the others go on once a releases L2.
    client.nil("DLOCK.ACQUIRE L1 a");
    assert_eq!(server.queue("L1"), [""; 0]);
    client.int("DLOCK.RELEASE L2 a");
    b.granted();
    let mut a = server.waiter("DLOCK.ACQUIRE L1 a BLOCK 0");
    client.int("DLOCK.RELEASE L1 b");
    a.granted();
}

#[test]
fn a_cycle_over_three_locks_is_refused_with_its_chain() {
    let (server, mut client) = Server::start().with_client();
    for (lock, owner) in [("L1", "b"), ("L2", "c"), ("L3", "a")] {
        client.int(format!("DLOCK.WLOCK {lock} {owner}"));
    }
    let mut waiters = server.waiters(["DLOCK.WLOCK L2 b BLOCK 0", "DLOCK.RLOCK L3 c BLOCK 0"]);
    let error = client.error("DLOCK.RLOCK L1 a BLOCK 50000");
    assert_eq!(error, "DEADLOCK a waits for L1 held by b, b waits for L2 held by c, c waits for L3 held by a");
    // The owner d may wait for L1: nobody waits for d.
    let mut d = server.waiter("DLOCK.WLOCK L1 d BLOCK 0");
    client.int("DLOCK.RELEASE L3 a");
    waiters[1].granted();
    client.int("DLOCK.RELEASE L2 c");
    waiters[0].granted();
    client.int("DLOCK.RELEASE L1 b");
    d.granted();
}

#[test]
fn a_cycle_through_one_of_several_readers_is_found() {
    let (server, mut client) = Server::start().with_client();
    for n in 0..20 {
        client.int(format!("DLOCK.RLOCK L1 r{n}"));
    }
    client.int("DLOCK.ACQUIRE L2 b");
    let mut reader = server.waiter("DLOCK.RLOCK L2 r13 BLOCK 0");
    let error = client.error("DLOCK.WLOCK L1 b BLOCK 0");
    assert_eq!(error, "DEADLOCK b waits for L1 held by r13, r13 waits for L2 held by b");
    // As a reader, b gets L1 at once, and so closes no cycle.
    client.int("DLOCK.RLOCK L1 b BLOCK 0");
    reader.waits();
}

#[test]
fn a_cycle_through_a_waiter_ahead_in_the_queue_is_found() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK L1 h");
    client.int("DLOCK.ACQUIRE L2 r");
    let mut writer = server.waiter("DLOCK.WLOCK L1 w BLOCK 0");
    let mut holder = server.waiter("DLOCK.ACQUIRE L2 h BLOCK 0");
    // As a reader, r could share the lock with h, but it queues behind w, which waits for h, which waits for r.
    assert!(client.error("DLOCK.RLOCK L1 r BLOCK 0").starts_with("DEADLOCK "));
    client.int("DLOCK.RELEASE L2 r");
    holder.granted();
    client.int("DLOCK.RELEASE L1 h");
    writer.granted();
}

#[test]
fn an_owner_that_waits_on_two_connections_is_left_out() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE L1 a");
    client.int("DLOCK.ACQUIRE L2 b");
    client.int("DLOCK.ACQUIRE L3 c");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE L2 a BLOCK 0", "DLOCK.ACQUIRE L3 a BLOCK 0"]);
    // The owner a waits on two connections, so that one of its threads may go on and release L1.
    let mut b = server.waiter("DLOCK.ACQUIRE L1 b BLOCK 0");
    client.int("DLOCK.RELEASE L3 c");
    waiters[1].granted();
    client.int("DLOCK.RELEASE L1 a");
    b.granted();
    client.int("DLOCK.RELEASE L2 b");
    waiters[0].granted();
}

#[test]
fn an_owner_that_closes_the_cycle_on_a_second_connection_is_left_out_too() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE L1 b");
    client.int("DLOCK.ACQUIRE L2 a");
    client.int("DLOCK.ACQUIRE L3 c");
    let _elsewhere = server.waiter("DLOCK.ACQUIRE L3 a BLOCK 0");
    let _b = server.waiter("DLOCK.ACQUIRE L2 b BLOCK 0");
    let mut a = server.waiter("DLOCK.ACQUIRE L1 a BLOCK 0");
    a.waits();
}

/// The owner `a` waits only behind the writer `b`, which waits on two connections: one of its threads may end the wait.
#[test]
fn a_writer_ahead_that_waits_on_two_connections_is_left_out() {
    let (server, mut client) = Server::start().with_client();
    for (lock, owner) in [("k2", "a"), ("k2", "e"), ("k1", "z")] {
        client.int(format!("DLOCK.RLOCK {lock} {owner} PX 600000"));
    }
    let mut b = server.waiters(["DLOCK.WLOCK k2 b BLOCK 0", "DLOCK.WLOCK k1 b BLOCK 0"]);
    let mut a = server.waiter("DLOCK.SACQUIRE k2 a 5 BLOCK 600000");
    assert_eq!(server.queue("k2"), ["b", "a"]);
    a.waits();
    drop(a);
    server.left_waiting(2);
    // The writer counts when it waits on one connection only.
    client.int("DLOCK.RELEASE k1 z");
    b[1].granted();
    let error = client.error("DLOCK.SACQUIRE k2 a 5 BLOCK 600000");
    assert_eq!(error, "DEADLOCK a waits for k2 behind b, b waits for k2 held by a");
}

#[test]
fn a_chain_is_no_deadlock_until_it_is_closed() {
    let (server, mut client) = Server::start().with_client();
    for n in 0..10 {
        client.int(format!("DLOCK.ACQUIRE L{n} o{n}"));
    }
    let mut waiters = server.waiters((0..9).map(|n| format!("DLOCK.ACQUIRE L{} o{n} BLOCK 0", n + 1)));
    // Waiters that are in no cycle do not hide the cycle, which the last request closes.
    let _others = server.waiters((0..9).map(|n| format!("DLOCK.ACQUIRE L{n} x{n} BLOCK 0")));
    let error = client.error("DLOCK.ACQUIRE L0 o9 BLOCK 0");
    assert!(error.starts_with("DEADLOCK o9 waits for L0 held by o0, o0 waits for L1 held by o1, "), "{error}");
    assert_eq!(counter(&mut client, "deadlocks"), 1);
    client.int("DLOCK.RELEASE L9 o9");
    waiters[8].granted();
}

#[test]
fn a_cycle_that_a_lapse_has_opened_is_no_deadlock() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK L1 b PX 300");
    client.int("DLOCK.RLOCK L1 c");
    client.int("DLOCK.ACQUIRE L2 a");
    let _b = server.waiter("DLOCK.ACQUIRE L2 b BLOCK 0");
    let end = client.now() + 300;
    client.pass(end);
    let mut a = server.waiter("DLOCK.WLOCK L1 a BLOCK 0");
    client.int("DLOCK.RELEASE L1 c");
    a.granted();
}

#[test]
fn names_of_any_bytes_make_a_readable_error() {
    let (server, mut client) = Server::start().with_client();
    let (a, b, k) = (b"a\r\n\0\xff".as_slice(), b"b\n".as_slice(), b"k\r\n+OK\r\n".as_slice());
    client.int(req!["DLOCK.ACQUIRE", k, b]);
    client.int(req!["DLOCK.ACQUIRE", "l", a]);
    let _b = server.waiter(req!["DLOCK.ACQUIRE", "l", b, "BLOCK", 0]);
    let error = client.error(req!["DLOCK.ACQUIRE", k, a, "BLOCK", 0]);
    assert!(error.starts_with("DEADLOCK ") && error.is_ascii(), "{error}");
    assert_eq!(client.text("PING"), "PONG", "the error is one line, and the next reply follows it");
}
