//! Waiting for permits: strictly first come, first served, for every number of permits.

use std::time::Duration;

use redis::Value;

use crate::support::lock::Queued;
use crate::support::queue::all_granted;
use crate::support::replica::counter;
use crate::support::{Client, Server, Stopwatch, hold, lock_info, soon};

/// Waits without a limit, for a lease that no test outlives.
const FOR_EVER: &str = "BLOCK 0 PX 600000";

/// Starts a server where each of these owners has taken this number of permits of `k`.
fn taken(permits: &[(&str, i64)]) -> (Server, Client) {
    let (server, mut client) = Server::start().with_client();
    for (owner, count) in permits {
        client.int(format!("DLOCK.SACQUIRE k {owner} 1000 PERMITS {count} PX 600000"));
    }
    (server, client)
}

fn request(words: &str) -> String {
    format!("DLOCK.{words} {FOR_EVER}")
}

#[test]
fn permits_go_to_those_who_came_first() {
    let (server, mut client) = taken(&[("h0", 1), ("h1", 1), ("h2", 1)]);
    let mut waiters = server.waiters((0..12).map(|n| request(&format!("SACQUIRE k w{n} 3"))));
    let mut last = 0;
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.waits();
        let gone = if n < 3 { format!("h{n}") } else { format!("w{}", n - 3) };
        assert_eq!(client.int(format!("DLOCK.RELEASE k {gone}")), 1);
        let token = waiter.granted();
        assert!(token > last, "tokens rise in the order of the queue");
        last = token;
        assert_eq!(lock_info(&mut client, "k").unwrap().count, 3);
    }
    assert_eq!(counter(&mut client, "waits"), 12);
}

#[test]
fn one_release_of_several_permits_serves_several_waiters_in_order() {
    let (server, mut client) = taken(&[("h", 4)]);
    let mut waiters =
        server.waiters(["a 4", "b 4 PERMITS 2", "c 4", "d 4"].map(|rest| request(&format!("SACQUIRE k {rest}"))));
    assert_eq!(client.int("DLOCK.RELEASE k h PERMITS 3"), 0);
    let tokens = [waiters[0].granted(), waiters[1].granted()];
    assert!(tokens[0] < tokens[1]);
    waiters[2].waits();
    assert_eq!(server.holders("k"), ["h", "a", "b"]);
    assert_eq!(server.queue("k"), ["c", "d"]);
    assert_eq!(client.int("DLOCK.RELEASE k b ALL"), 1);
    all_granted(&mut waiters[2..]);
}

#[test]
fn a_large_request_holds_back_smaller_ones_and_does_not_starve() {
    let (server, mut client) = taken(&[("h", 3)]);
    let mut large = server.waiter(request("SACQUIRE k large 4 PERMITS 4"));
    let mut small = server.waiter(request("SACQUIRE k small 4"));
    // A permit is left, but the large request comes before the small one that waits and before new ones.
    client.nil("DLOCK.SACQUIRE k new 4");
    client.nil("DLOCK.RLOCK k new");
    for _ in 0..2 {
        assert_eq!(client.int("DLOCK.RELEASE k h"), 0);
        large.waits();
        small.waits();
        client.nil("DLOCK.SACQUIRE k new 4");
    }
    assert_eq!(client.int("DLOCK.RELEASE k h"), 1);
    large.granted();
    small.waits();
    assert_eq!(client.int("DLOCK.RELEASE k large PERMITS 1"), 0);
    small.granted();
}

#[test]
fn a_large_request_that_leaves_lets_the_smaller_ones_in() {
    let (server, mut client) = taken(&[("h", 3)]);
    for way in ["timeout", "unblock", "error", "gone"] {
        let time = if way == "timeout" { 100 } else { 0 };
        let mut large = server.client();
        let id = large.id();
        server.enters_queue(&mut large, format!("DLOCK.SACQUIRE k large 4 PERMITS 2 BLOCK {time}"));
        let mut small = server.waiter(request("SACQUIRE k small 4"));
        match way {
            "timeout" => large.gives_up(),
            "gone" => drop(large),
            "unblock" => {
                assert_eq!(client.int(format!("CLIENT UNBLOCK {id}")), 1);
                large.gives_up();
            }
            _ => {
                assert_eq!(client.int(format!("CLIENT UNBLOCK {id} ERROR")), 1);
                assert!(large.fails().starts_with("UNBLOCKED "));
            }
        }
        small.granted();
        assert_eq!(client.int("DLOCK.RELEASE k small"), 1, "{way}");
    }
}

#[test]
fn different_limits_share_one_queue() {
    let (server, mut client) = taken(&[("h", 2)]);
    let mut low = server.waiter(request("SACQUIRE k low 1"));
    let mut high = server.waiter(request("SACQUIRE k high 9"));
    high.waits();
    assert_eq!(client.int("DLOCK.RELEASE k h"), 0);
    low.waits();
    assert_eq!(client.int("DLOCK.RELEASE k h"), 1);
    low.granted();
    high.granted();
    // Two entries are live. A request with a limit of 2 does not fit before one of them is back.
    client.nil("DLOCK.SACQUIRE k new 2");
    let mut lowered = server.waiter(request("SACQUIRE k new 2"));
    lowered.waits();
    client.int("DLOCK.RELEASE k high");
    lowered.granted();
}

#[test]
fn a_writer_stands_between_readers_and_permits() {
    let (server, mut client) = taken(&[]);
    client.int("DLOCK.RLOCK k reader PX 600000");
    let requests = ["WLOCK k writer", "SACQUIRE k permit 2", "RLOCK k late", "SACQUIRE k more 2"];
    let mut waiters = server.waiters(requests.map(request));
    assert_eq!(client.int("DLOCK.RELEASE k reader"), 1);
    waiters[0].granted();
    waiters[1].waits();
    assert_eq!(server.holders("k"), ["writer"]);
    assert_eq!(client.int("DLOCK.RELEASE k writer"), 1);
    all_granted(&mut waiters[1..3]);
    // The reader ahead of it counts as one of the two permits.
    waiters[3].waits();
    assert_eq!(client.int("DLOCK.RELEASE k late"), 1);
    waiters[3].granted();
}

#[test]
fn a_writer_drains_a_semaphore() {
    for command in ["ACQUIRE", "RACQUIRE", "WLOCK"] {
        let (server, mut client) = taken(&[("a", 2), ("b", 1)]);
        let mut operator = server.waiter(request(&format!("{command} k operator")));
        let mut job = server.waiter(request("SACQUIRE k job 9"));
        client.int("DLOCK.RELEASE k a ALL");
        operator.waits();
        client.nil("DLOCK.SACQUIRE k new 9");
        client.int("DLOCK.RELEASE k b");
        operator.granted();
        job.waits();
        client.int("DLOCK.RELEASE k operator");
        job.granted();
    }
}

#[test]
fn more_permits_wait_their_turn_and_keep_what_the_owner_has() {
    let (server, mut client) = taken(&[("a", 1), ("b", 3)]);
    let mut ahead = server.waiter(request("SACQUIRE k ahead 4 PERMITS 2"));
    // A limit of 9 would leave room, but a waiter is ahead. Without BLOCK, the reply is nil.
    client.nil("DLOCK.SACQUIRE k a 9");
    let mut more = server.waiter(request("SACQUIRE k a 5"));
    more.waits();
    assert_eq!(server.queue("k"), ["ahead", "a"]);
    assert_eq!(hold(&mut client, "k", "a", "shared").unwrap().count, 1, "the owner keeps what it has");
    // RLOCK has no limit and re-enters at once.
    client.int("DLOCK.RLOCK k a");
    client.int("DLOCK.RELEASE k a");
    let token = hold(&mut client, "k", "a", "shared").unwrap().token;
    assert_eq!(client.int("DLOCK.RELEASE k b PERMITS 2"), 0);
    ahead.granted();
    assert_eq!(more.granted(), token, "the hold's own token");
    assert_eq!(hold(&mut client, "k", "a", "shared").unwrap().count, 2);
}

#[test]
fn more_permits_behind_one_who_waits_for_the_same_owner_are_a_deadlock() {
    let (server, mut client) = taken(&[("a", 2)]);
    let mut writer = server.waiter(request("WLOCK k writer"));
    client.nil("DLOCK.SACQUIRE k a 9");
    let before = counter(&mut client, "deadlocks");
    assert!(client.error("DLOCK.SACQUIRE k a 9 BLOCK 0").starts_with("DEADLOCK "));
    assert_eq!(counter(&mut client, "deadlocks"), before + 1);
    assert_eq!(hold(&mut client, "k", "a", "shared").unwrap().count, 2, "nothing has changed");
    assert_eq!(client.int("DLOCK.RELEASE k a ALL"), 1);
    writer.granted();
}

#[test]
fn more_permits_behind_a_writer_that_waits_for_the_owner_close_a_cycle() {
    let (server, mut client) = taken(&[("a", 1), ("b", 1)]);
    let mut writer = server.waiter(request("WLOCK k writer"));
    client.nil("DLOCK.SACQUIRE k a 9");
    let error = client.error("DLOCK.SACQUIRE k a 9 BLOCK 0");
    assert!(error.starts_with("DEADLOCK a waits for k "), "{error}");
    assert_eq!(server.queue("k"), ["writer"]);
    client.pipeline(&["DLOCK.RELEASE k a", "DLOCK.RELEASE k b"]);
    writer.granted();
}

#[test]
fn the_exclusive_owner_overtakes_waiters_for_permits() {
    let (server, mut client) = taken(&[]);
    client.int("DLOCK.WLOCK k a PX 600000");
    let mut waiters = server.waiters(["SACQUIRE k b 3", "SACQUIRE k c 3"].map(request));
    client.int("DLOCK.SACQUIRE k a 2 PX 600000");
    client.int("DLOCK.SACQUIRE k a 2");
    client.nil("DLOCK.SACQUIRE k a 2");
    assert!(client.error("DLOCK.SACQUIRE k a 2 BLOCK 0").starts_with("DEADLOCK "));
    waiters[0].waits();
    // The downgrade lets in the waiters that fit beside the two permits of `a`.
    assert_eq!(client.int("DLOCK.RELEASE k a WRITE"), 1);
    waiters[0].granted();
    waiters[1].waits();
    client.int("DLOCK.RELEASE k a PERMITS 1");
    waiters[1].granted();
}

#[test]
fn a_request_that_can_no_longer_fit_waits_until_its_owner_gives_back() {
    let (server, mut client) = taken(&[("a", 1), ("b", 1)]);
    let mut more = server.waiter(request("SACQUIRE k a 2"));
    // The owner re-enters past its own request, and now has two entries. One more would exceed the limit.
    client.int("DLOCK.RLOCK k a");
    client.int("DLOCK.RELEASE k b");
    more.waits();
    assert_eq!(server.queue("k"), ["a"]);
    let mut behind = server.waiter(request("SACQUIRE k c 9"));
    behind.waits();
    assert_eq!(client.int("DLOCK.RELEASE k a"), 0);
    more.granted();
    behind.granted();
    assert_eq!(hold(&mut client, "k", "a", "shared").unwrap().count, 2);
}

#[test]
fn a_repeat_takes_over_the_place_unless_it_can_never_fit() {
    let (server, mut client) = taken(&[("a", 1), ("b", 1)]);
    let mut ahead = server.waiter(request("SACQUIRE k ahead 3 PERMITS 3"));
    let mut first = server.waiter(request("SACQUIRE k a 3 REQUEST r"));
    // The waiter ahead now waits for `a` alone. So a new request of `a` behind it is a deadlock, but a repeat is not
    // new.
    client.int("DLOCK.RELEASE k b");
    assert!(client.error(request("SACQUIRE k a 3 REQUEST other")).starts_with("DEADLOCK "));
    let mut second = server.client();
    second.send(request("SACQUIRE k a 3 REQUEST r"));
    first.gives_up();
    assert_eq!(server.queue("k"), ["ahead", "a"]);
    // A request that can never fit is an error.
    assert!(client.error(request("SACQUIRE k a 3 PERMITS 3 REQUEST r")).starts_with("DEADLOCK "));
    assert_eq!(server.queue("k"), ["ahead", "a"]);
    // Without BLOCK the queue is unchanged.
    client.nil("DLOCK.SACQUIRE k a 3 REQUEST r");
    client.int("DLOCK.RELEASE k a");
    ahead.granted();
    second.waits();
    client.int("DLOCK.RELEASE k ahead");
    let token = second.granted();
    assert_eq!(client.int("DLOCK.SACQUIRE k a 3 REQUEST r"), token, "the hold records the request");
    assert_eq!(hold(&mut client, "k", "a", "shared").unwrap().count, 1);
}

#[test]
fn a_repeat_that_is_granted_at_once_also_answers_the_request_that_waits() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.SACQUIRE k a 2");
    client.int("DLOCK.SACQUIRE k b 2");
    let mut first = server.client();
    first.send("DLOCK.SACQUIRE k a 2 BLOCK 0 REQUEST id");
    soon("the request waits", || lock_info(&mut client, "k").is_some_and(|info| info.waiters == 1));
    // The request still waits when `b` is gone: the two entries of `a` and one more exceed its limit of 2.
    let token = client.int("DLOCK.RLOCK k a");
    client.int("DLOCK.RELEASE k b");
    client.int("DLOCK.WLOCK k a");
    assert_eq!(client.int("DLOCK.SACQUIRE k a 9 REQUEST id"), token);
    assert_eq!(first.read(), Ok(Value::Int(token)), "the repeat alone answers the request");
    let info = lock_info(&mut client, "k FULL").unwrap();
    assert_eq!((info.waiters, info.count), (0, 4), "three permits and the exclusive hold");
}

#[test]
fn a_permit_comes_back_when_its_session_or_its_lease_ends() {
    let (server, mut client) = Server::start().with_client();
    let mut session = server.client();
    session.int("DLOCK.SACQUIRE k a 3 PERMITS 2 SESSION");
    let (lease, took) = (Duration::from_millis(1500), Stopwatch::start());
    client.int("DLOCK.SACQUIRE k b 3 PX 1500");
    let mut waiters = server.waiters(["c", "d", "e"].map(|owner| request(&format!("SACQUIRE k {owner} 3"))));
    drop(session);
    all_granted(&mut waiters[..2]);
    waiters[2].waits();
    // The lease of `b` ends, and the timer serves the queue.
    waiters[2].granted();
    // The server rounds times to milliseconds: a tolerance of 2 ms.
    took.is_between(lease - Duration::from_millis(2), lease + Duration::from_millis(250), "the lease");
    assert_eq!(server.holders("k"), ["c", "d", "e"]);
}

#[test]
fn a_permit_holder_that_upgrades_waits_in_front() {
    let (server, mut client) = taken(&[("a", 1), ("b", 2)]);
    let mut permit = server.waiter(request("SACQUIRE k c 3"));
    let mut upgrade = server.waiter(request("WLOCK k a"));
    assert_eq!(server.queue("k"), ["a", "c"]);
    assert!(client.error("DLOCK.WLOCK k b BLOCK 0").starts_with("DEADLOCK "));
    // The upgrade needs both permits of `b` back. The waiter behind it needs one, and has to wait all the same.
    client.int("DLOCK.RELEASE k b");
    upgrade.waits();
    permit.waits();
    client.int("DLOCK.RELEASE k b");
    upgrade.granted();
    permit.waits();
    client.int("DLOCK.RELEASE k a WRITE");
    permit.granted();
}

#[test]
fn two_owners_that_want_more_wait_for_each_other() {
    let (server, mut client) = taken(&[("a", 2), ("b", 2)]);
    // No reply tells the owners that they wait for each other: the documentation warns of it.
    let mut a = server.waiter("DLOCK.SACQUIRE k a 4 BLOCK 300");
    let mut b = server.waiter(request("SACQUIRE k b 4"));
    assert_eq!(counter(&mut client, "deadlocks"), 0);
    a.gives_up();
    b.waits();
    client.int("DLOCK.RELEASE k a");
    b.granted();
}

#[test]
fn a_lack_of_permits_is_no_part_of_a_cycle() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.SACQUIRE pool a 1");
    client.int("DLOCK.ACQUIRE lock b");
    let mut a = server.waiter("DLOCK.ACQUIRE lock a BLOCK 0");
    let mut b = server.waiter("DLOCK.SACQUIRE pool b 1 BLOCK 50");
    b.gives_up();
    assert_eq!(counter(&mut client, "deadlocks"), 0);
    // Any of several holders may give a permit back; an exclusive hold has one owner, who can be part of a cycle.
    client.int("DLOCK.WLOCK strict a");
    assert!(client.error("DLOCK.SACQUIRE strict b 1 BLOCK 0").starts_with("DEADLOCK "));
    client.int("DLOCK.RELEASE lock b");
    a.granted();
}

#[test]
fn info_shows_what_each_waiter_asks_for() {
    let (server, mut client) = taken(&[("h", 5)]);
    let requests =
        ["SACQUIRE k a 5 PERMITS 3", "SACQUIRE k b 4294967295", "RLOCK k c", "WLOCK k d", "MACQUIRE 2 k l e"];
    let _waiters = server.waiters(requests.map(request));
    for mut client in [server.client(), server.client().resp3()] {
        let info = lock_info(&mut client, "k FULL").unwrap();
        let shown = |queued: &Queued| {
            let Queued { owner, mode, permits, limit, keys, .. } = queued.clone();
            (String::from_utf8(owner).unwrap(), mode, permits, limit, keys)
        };
        let shown: Vec<_> = info.queue.unwrap().iter().map(shown).collect();
        let entry = |owner: &str, mode: &str, permits, limit, keys| (owner.into(), mode.into(), permits, limit, keys);
        assert_eq!(
            shown,
            [
                entry("a", "shared", 3, Some(5), 1),
                entry("b", "shared", 1, Some(4_294_967_295), 1),
                entry("c", "shared", 1, None, 1),
                entry("d", "exclusive", 1, None, 1),
                entry("e", "exclusive", 1, None, 2),
            ]
        );
    }
    assert_eq!(lock_info(&mut client, "k FULL COUNT 2").unwrap().queue.unwrap().len(), 2);
}

#[test]
fn a_key_that_another_type_overwrites_sends_all_away() {
    let (server, mut client) = taken(&[("h", 2)]);
    let mut waiters = server.waiters(["a", "b"].map(|owner| request(&format!("SACQUIRE k {owner} 2"))));
    client.ok("SET k v");
    for waiter in &mut waiters {
        assert!(waiter.fails().starts_with("WRONGTYPE "));
    }
    assert_eq!((client.text("GET k"), server.waiting()), ("v".to_owned(), 0));
}

#[test]
fn one_waiter_more_than_allowed_is_refused() {
    let (server, mut client) = taken(&[("h", 1)]);
    client.ok("CONFIG SET dlock.max-waiters 1");
    let mut waiter = server.waiter(request("SACQUIRE k a 1"));
    assert_eq!(client.error(request("SACQUIRE k b 1")), "ERR max number of waiters reached: dlock.max-waiters");
    client.int("DLOCK.RELEASE k h");
    waiter.granted();
}

#[test]
fn whatever_removes_the_key_lets_in_as_many_as_fit() {
    for act in ["DEL k", "UNLINK k", "RENAME k l", "MOVE k 1", "PEXPIRE k -1", "FLUSHALL", "SWAPDB 0 1"] {
        let (server, mut client) = taken(&[("h", 3)]);
        let mut waiters = server.waiters(["a", "b", "c"].map(|owner| request(&format!("SACQUIRE k {owner} 2"))));
        client.run(act);
        all_granted(&mut waiters[..2]);
        waiters[2].waits();
        assert_eq!(
            (server.holders("k"), server.queue("k")),
            (vec!["a".into(), "b".into()], vec!["c".to_owned()]),
            "{act}"
        );
    }
}
