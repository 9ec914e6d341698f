//! Leases that end, expiry and eviction serve the queue, in time.

use std::time::Duration;

use crate::support::replica::counter;
use crate::support::{Server, eventually, soon};

/// How much later than the deadline the queue is served on a machine that is busy with tests.
const LATE_MS: i64 = 50;

/// Returns when a token was granted: it is the time in µs, while the clock is ahead of all earlier tokens.
fn granted_ms(token: i64) -> i64 {
    token / 1000
}

#[test]
fn a_lease_end_is_served_in_time_and_never_early() {
    // The machine may let the server sleep in all of one run.
    let is_late = |late: &Vec<i64>| late[30] > LATE_MS || late[54] > 4 * LATE_MS;
    let late: Vec<_> = (0..3).map(|_| lateness_of_60()).take_while(is_late).collect();
    assert!(late.len() < 3, "at the median or p90, too late in each run: {late:?}");
}

/// Returns how many ms after the end of its lease each of 60 locks is granted to its waiter, in order. Fails if one is
/// granted early.
fn lateness_of_60() -> Vec<i64> {
    let (server, mut client) = Server::start().with_client();
    let mut waiting = Vec::new();
    for n in 0..60 {
        client.int(format!("DLOCK.ACQUIRE k{n} a PX {}", 600 + 10 * n));
        let deadline = client.end_of(&format!("k{n}"));
        let waiter = server.waiter(format!("DLOCK.ACQUIRE k{n} b BLOCK 0 PX 600000"));
        waiting.push((deadline, waiter));
    }
    let mut late = Vec::new();
    for (deadline, mut waiter) in waiting {
        late.push(granted_ms(waiter.granted()) - deadline);
    }
    late.sort_unstable();
    assert!(late[0] >= 0, "{} ms early", -late[0]);
    late
}

#[test]
fn many_leases_that_end_at_once_are_all_served() {
    let (server, mut client) = Server::start().with_client();
    let end = client.now() + 1000;
    client.pipeline(&(0..100).map(|n| format!("DLOCK.ACQUIRE k{n} a PXAT {end}")).collect::<Vec<_>>());
    let waiters: Vec<_> = (0..100)
        .map(|n| {
            let mut waiter = server.client();
            waiter.send(format!("DLOCK.ACQUIRE k{n} b BLOCK 0 PX 600000"));
            waiter
        })
        .collect();
    for mut waiter in waiters {
        assert!(granted_ms(waiter.granted()) >= end);
    }
    assert_eq!(counter(&mut client, "queues"), 0);
}

#[test]
fn the_end_of_a_readers_lease_is_noticed_while_another_reader_holds() {
    let (server, mut client) = Server::start().with_client();
    for (owner, lease) in [("a", 600_000), ("b", 600), ("c", 900)] {
        client.int(format!("DLOCK.RLOCK k {owner} PX {lease}"));
    }
    let mut writer = server.waiter("DLOCK.WLOCK k w BLOCK 0");
    soon("b is gone", || server.holders("k") == ["a", "c"]);
    soon("c is gone", || server.holders("k") == ["a"]);
    writer.waits();
    // The key lives on for the longest lease, and what has lapsed has left it.
    assert!(client.end_of("k") > client.now() + 500_000);
    soon("counted", || counter(&mut client, "lapses") == 2);
    client.int("DLOCK.RELEASE k a");
    writer.granted();
}

#[test]
fn a_renewal_moves_the_end_that_is_waited_for() {
    let (server, mut client) = Server::start().with_client();
    // Later: the waiter goes on waiting.
    client.int("DLOCK.ACQUIRE k a PX 800");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    let old_end = client.now() + 850;
    client.int("DLOCK.RENEW k a PX 600000");
    client.pass(old_end);
    waiter.waits();
    // Earlier: it is served then.
    let end = client.now() + 50 - 2;
    client.int("DLOCK.RENEW k a PX 50");
    assert!(granted_ms(waiter.granted()) >= end);
}

#[test]
fn a_re_entry_moves_the_end_that_is_waited_for() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RACQUIRE k a PX 800");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    let old_end = client.now() + 850;
    client.int("DLOCK.RACQUIRE k a PX 600000");
    client.pass(old_end);
    waiter.waits();
    client.int("DLOCK.RELEASE k a ALL");
    waiter.granted();
}

#[test]
fn a_key_that_is_made_to_end_early_frees_the_lock() {
    let (server, mut client) = Server::start().with_client();
    for way in ["PEXPIRE k 60", "PEXPIREAT"] {
        client.int("DLOCK.ACQUIRE k a PX 600000");
        let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0 PX 600000", "DLOCK.ACQUIRE k c BLOCK 0"]);
        let end = client.now() + 60 - 2;
        let way = if way == "PEXPIREAT" { format!("PEXPIREAT k {end}") } else { way.to_owned() };
        client.int(&way);
        assert!(granted_ms(waiters[0].granted()) >= end, "{way}");
        assert_eq!(server.queue("k"), ["c"], "{way}");
        assert!(client.int("PTTL k") > 500_000, "{way}");
        client.int("DLOCK.RELEASE k b");
        waiters[1].granted();
        client.int("DLOCK.RELEASE k c");
    }
}

#[test]
fn an_early_end_stands_when_somebody_joins_the_queue() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.int("PEXPIRE k 800");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    assert!(client.int("PTTL k") <= 800);
    waiter.granted();
}

#[test]
fn a_later_end_or_none_does_not_hold_up_the_queue() {
    let (server, mut client) = Server::start().with_client();
    for way in ["PERSIST k", "PEXPIRE k 900000"] {
        client.int("DLOCK.ACQUIRE k a PX 800");
        let end = client.end_of("k");
        let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 600000");
        assert_eq!(client.int(way), 1);
        assert!(granted_ms(waiter.granted()) >= end, "{way}");
        assert!(client.now() < end + 5000, "{way}");
        client.int("DLOCK.RELEASE k b");
    }
}

#[test]
fn the_key_outlives_its_lock_by_fifty_ms_at_most_while_somebody_waits() {
    let (server, mut client) = Server::start().with_client();
    let before = client.now();
    client.int("DLOCK.ACQUIRE k a PX 60000");
    let after = client.now();
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 70000");
    // Two ms for the clock that commands work with, which may be a little older.
    assert!((before + 59_998..=after + 60_052).contains(&client.end_of("k")));
    client.int("DLOCK.RENEW k a PX 50000");
    assert!(client.end_of("k") <= client.now() + 50_050);
    client.int("DLOCK.RELEASE k a");
    waiter.granted();
    assert!(client.end_of("k") <= client.now() + 70_000, "nobody waits any more");
}

#[test]
fn an_evicted_lock_is_handed_over() {
    let (server, mut client) = Server::conf("maxmemory-policy allkeys-random").with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 600000");
    client.ok("CONFIG SET maxmemory 1");
    let _ = client.attempt("SET x y");
    eventually(Duration::from_secs(5), "evicted", || {
        let _ = client.attempt("SET x y");
        counter(&mut client, "waiters") == 0
    });
    client.ok("CONFIG SET maxmemory 0");
    waiter.granted();
}

#[test]
fn a_server_without_pexpireat_serves_its_queues() {
    let (server, mut client) = Server::conf("rename-command PEXPIREAT \"\"").with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b PX 300 BLOCK 60000");
    let mut next = server.waiter("DLOCK.ACQUIRE k c BLOCK 60000");
    client.int("DEL k");
    waiter.granted();
    next.granted();
}
