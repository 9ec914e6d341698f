//! The requests that wait, as an operator and a watching client see them.

use std::collections::BTreeMap;

use redis::Value;

use crate::observe::events;
use crate::support::lock::{Info, fields_of};
use crate::support::queue::all_granted;
use crate::support::replica::counter;
use crate::support::{Client, Server, list_of, lock_info, soon, text_of};

#[test]
fn info_full_shows_the_queue() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a");
    client.int("DLOCK.RLOCK k b");
    let mut waiters: Vec<_> = (0..4).map(|_| server.client()).collect();
    let ids: Vec<_> = waiters.iter_mut().map(|waiter| waiter.id()).collect();
    let requests = ["ACQUIRE k w", "RLOCK k r", "RACQUIRE k a", "WLOCK k w"];
    for (waiter, request) in waiters.iter_mut().zip(requests) {
        server.enters_queue(waiter, format!("DLOCK.{request} BLOCK 0"));
    }
    client.pass_ms(60);
    for mut client in [server.client(), server.client().resp3()] {
        let value = client.run("DLOCK.INFO k FULL");
        let info = Info::of(&value);
        let queue = info.queue.clone().unwrap();
        let shown: Vec<_> = queue.iter().map(|q| (q.owner.as_slice(), q.mode.as_str(), q.client)).collect();
        let expected = [
            (b"a".as_slice(), "exclusive", ids[2]),
            (b"w", "exclusive", ids[0]),
            (b"r", "shared", ids[1]),
            (b"w", "exclusive", ids[3]),
        ];
        assert_eq!(shown, expected);
        assert!(queue.iter().all(|queued| (60..60_000).contains(&queued.waiting)), "{queue:?}");
        assert_eq!((info.waiters, info.holders), (4, 2));
        assert_eq!(Info::of(&client.run("DLOCK.INFO k")).waiters, 4);
        let owner = Info::of(&client.run("DLOCK.INFO k OWNER a"));
        assert_eq!((owner.waiters, owner.queue), (4, None));
        if let Value::Map(_) = value {
            let (_, queue) = fields_of(&value).into_iter().find(|(name, _)| name == "queue").unwrap();
            let queue = list_of(&queue);
            assert!(queue.iter().all(|waiter| matches!(waiter, Value::Map(_))), "{queue:?}");
        }
    }
}

#[test]
fn ten_waiters_of_a_queue_are_shown_by_default() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let _waiters = server.waiters((0..15).map(|n| format!("DLOCK.ACQUIRE k w{n} BLOCK 0")));
    for (count, shown) in [("", 10), ("COUNT 1", 1), ("COUNT 12", 12), ("COUNT 0", 15), ("COUNT 100", 15)] {
        let info = lock_info(&mut client, &format!("k FULL {count}")).unwrap();
        let queue = info.queue.unwrap();
        assert_eq!((info.waiters, queue.len()), (15, shown), "{count}");
        assert_eq!(queue[0].owner, b"w0");
    }
}

const COUNTERS: [&str; 10] = [
    "grants",
    "reentries",
    "refusals",
    "releases",
    "lapses",
    "waits",
    "wait_timeouts",
    "deadlocks",
    "waiters",
    "queues",
];

#[track_caller]
fn counters(client: &mut Client) -> BTreeMap<&'static str, i64> {
    COUNTERS.iter().map(|name| (*name, counter(client, name))).collect()
}

#[test]
fn the_counters_add_up() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.RACQUIRE l a");
    let mut waiters = server.waiters(["k b", "k c", "l b"].map(|words| format!("DLOCK.RACQUIRE {words} BLOCK 0")));
    let expected = |changes: &[(&'static str, i64)]| {
        let mut expected: BTreeMap<_, _> = COUNTERS.iter().map(|name| (*name, 0)).collect();
        expected.extend(changes.iter().copied());
        expected
    };
    let waiting = [("grants", 2), ("waits", 3), ("waiters", 3), ("queues", 2)];
    assert_eq!(counters(&mut client), expected(&waiting));
    assert_eq!(counter(&mut client, "wait_usec_total"), 0);
    client.pass_ms(40);
    client.int("DLOCK.RELEASE k a");
    client.int("DLOCK.RELEASE l a");
    waiters[0].granted();
    waiters[2].granted();
    let (total, most) = (counter(&mut client, "wait_usec_total"), counter(&mut client, "wait_usec_max"));
    assert!(most >= 40_000 && total >= 80_000 && total <= 2 * most, "{total} in total, {most} at most");
    client.nil("DLOCK.ACQUIRE k d BLOCK 20");
    drop(waiters.remove(1));
    server.left_waiting(0);
    assert_eq!(counters(&mut client), expected(&[("grants", 4), ("waits", 4), ("wait_timeouts", 1), ("releases", 2)]));
    client.error("DLOCK.ACQUIRE k b BLOCK 0");
    client.nil("DLOCK.ACQUIRE k d");
    assert_eq!(
        counters(&mut client),
        expected(&[
            ("grants", 4),
            ("waits", 4),
            ("wait_timeouts", 1),
            ("releases", 2),
            ("deadlocks", 1),
            ("refusals", 1)
        ])
    );
}

#[test]
fn events_tell_of_waiting_grants_and_lapses() {
    let server = Server::conf("notify-keyspace-events Egxd");
    let mut waiters = Vec::new();
    let seen = events(&server, "__keyevent@0__:*", |client| {
        client.int("DLOCK.ACQUIRE k a PX 600000");
        waiters.push(server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 300"));
        waiters.push(server.waiter("DLOCK.RLOCK k c BLOCK 0 PX 600000"));
        client.int("DLOCK.RELEASE k a");
        all_granted(&mut waiters);
    });
    let expected = [
        "dlock.acquire k",
        "dlock.wait k",
        "dlock.wait k",
        "dlock.release k",
        "dlock.acquire k",
        "dlock.lapse k",
        "dlock.acquire k",
    ];
    // On a busy machine, the server may expire the key before the timer of the module ends the lease.
    let seen: Vec<_> = seen.iter().map(|event| event.replace("expired", "dlock.lapse")).collect();
    assert_eq!(seen, expected);
    // A request that is refused at once has no event. A grant after a deletion has the event of any grant.
    let seen = events(&server, "__keyevent@0__:*", |client| {
        client.nil("DLOCK.ACQUIRE k d");
        client.error("DLOCK.ACQUIRE k c BLOCK 0");
        let mut waiter = server.waiter("DLOCK.ACQUIRE k d BLOCK 0");
        client.int("DEL k");
        waiter.granted();
        client.nil("DLOCK.ACQUIRE k e BLOCK 10");
    });
    assert_eq!(seen, ["dlock.wait k", "del k", "dlock.acquire k", "dlock.wait k"]);
}

#[test]
fn watch_and_tracking_see_a_hand_over() {
    let server = Server::start();
    for free in ["DLOCK.RELEASE k a", "DEL k", "a lease end"] {
        let (mut watcher, mut tracker, mut client) = (server.client(), server.client().resp3(), server.client());
        client.ok("FLUSHALL");
        let lease = if free == "a lease end" { 800 } else { 600_000 };
        client.int(format!("DLOCK.ACQUIRE k a PX {lease}"));
        let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 600000");
        watcher.ok("WATCH k");
        tracker.ok("CLIENT TRACKING ON");
        tracker.run("DLOCK.INFO k");
        if free != "a lease end" {
            client.int(free);
        }
        waiter.granted();
        assert!(watcher.watched_key_changed(), "{free}");
        assert_eq!(tracker.pushes().len(), 1, "{free}");
    }
}

#[test]
fn watch_and_tracking_do_not_see_waiters_come_and_go() {
    let server = Server::start();
    let (mut watcher, mut tracker, mut client) = (server.client(), server.client().resp3(), server.client());
    client.int("DLOCK.ACQUIRE k a");
    watcher.ok("WATCH k");
    tracker.ok("CLIENT TRACKING ON");
    tracker.run("DLOCK.INFO k");
    let _stays = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    server.waiter("DLOCK.ACQUIRE k c BLOCK 20").gives_up();
    drop(server.waiter("DLOCK.ACQUIRE k d BLOCK 0"));
    server.left_waiting(1);
    assert!(!watcher.watched_key_changed());
    assert_eq!(tracker.pushes(), []);
}

#[test]
fn watch_and_tracking_see_a_lapse_while_somebody_waits() {
    let server = Server::start();
    let (mut watcher, mut tracker, mut client) = (server.client(), server.client().resp3(), server.client());
    client.int("DLOCK.RLOCK k a PX 600000");
    client.int("DLOCK.RLOCK k b PX 800");
    let mut waiter = server.waiter("DLOCK.WLOCK k w BLOCK 0");
    watcher.ok("WATCH k");
    tracker.ok("CLIENT TRACKING ON");
    tracker.run("DLOCK.INFO k");
    tracker.push(crate::support::wait::PATIENCE).expect("an invalidation");
    assert_eq!(server.holders("k"), ["a"]);
    waiter.waits();
    assert!(watcher.watched_key_changed());
}

#[test]
fn watch_and_tracking_see_the_last_waiter_of_a_free_lock_leave() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 1000");
    let end = client.end_of("k");
    let (first, last) = (server.waiter("DLOCK.ACQUIRE k b BLOCK 0"), server.waiter("DLOCK.ACQUIRE k c BLOCK 0"));
    // Without a replica, the server writes nothing now: the lock that becomes free is granted to nobody.
    client.ok("CONFIG SET min-replicas-to-write 1");
    client.pass(end);
    soon("the key is gone", || client.int("EXISTS k") == 0);
    drop(first);
    server.left_waiting(1);
    let (mut watcher, mut tracker) = (server.client(), server.client().resp3());
    tracker.ok("CLIENT TRACKING ON");
    watcher.ok("WATCH k");
    assert_eq!(text_of(&fields_of(&tracker.run("DLOCK.INFO k"))[0].1), "free");
    drop(last);
    assert!(tracker.push(crate::support::wait::PATIENCE).is_some());
    tracker.nil("DLOCK.INFO k");
    assert!(watcher.watched_key_changed());
}
