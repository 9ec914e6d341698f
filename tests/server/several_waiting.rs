//! Waiting for several locks: a place in every queue, nothing held until the turn has come in all of them.

use std::time::Duration;

use crate::several::owners;
use crate::support::queue::all_granted;
use crate::support::replica::counter;
use crate::support::{Client, Server, Stopwatch, lock_info, soon};

const FOR_EVER: &str = "BLOCK 0 PX 600000";

fn request(words: &str) -> String {
    format!("DLOCK.{words} {FOR_EVER}")
}

/// A server on which the owner `h` holds these keys.
fn held(keys: &str) -> (Server, Client) {
    let (server, mut client) = Server::start().with_client();
    for key in keys.split(' ') {
        client.int(format!("DLOCK.ACQUIRE {key} h PX 600000"));
    }
    (server, client)
}

/// The queues of these keys: `x: a b, y: a`.
#[track_caller]
fn queues(server: &Server, keys: &str) -> String {
    keys.split(' ').map(|key| format!("{key}: {}", server.queue(key).join(" "))).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_request_waits_in_every_queue_and_holds_nothing() {
    let (server, mut client) = held("y");
    let mut waiter = server.waiter(request("MACQUIRE 3 x y z a"));
    assert_eq!(queues(&server, "x y z"), "x: a, y: a, z: a");
    for key in ["x", "z"] {
        let info = lock_info(&mut client, &format!("{key} FULL")).unwrap();
        assert_eq!((info.mode.as_str(), info.holders, info.count, info.waiters), ("free", 0, 0, 1));
        assert_eq!(info.queue.unwrap()[0].keys, 3);
    }
    assert_eq!(client.int("DBSIZE"), 1, "no key is created");
    // A free lock with the request at its head counts as held for everyone else.
    for other in ["ACQUIRE x b", "RLOCK z b", "SACQUIRE x b 9", "MACQUIRE 2 x w b"] {
        client.nil(format!("DLOCK.{other}"));
    }
    assert_eq!(counter(&mut client, "waiters"), 1, "it is one request");
    assert_eq!(counter(&mut client, "queues"), 3);
    assert_eq!(client.int("DLOCK.RELEASE y h"), 1);
    let token = waiter.granted();
    assert_eq!(owners(&server, "x y z"), "a a a");
    for key in ["x", "y", "z"] {
        assert_eq!(lock_info(&mut client, key).unwrap().token, token);
    }
    assert_eq!(["waiters", "queues", "waits"].map(|name| counter(&mut client, name)), [0, 0, 1]);
}

#[test]
fn a_request_is_granted_when_the_last_lock_is_free() {
    let (server, mut client) = held("x y z");
    let mut waiter = server.waiter(request("MACQUIRE 3 x y z a"));
    for key in ["z", "x"] {
        assert_eq!(client.int(format!("DLOCK.RELEASE {key} h")), 1);
        waiter.waits();
        assert_eq!(client.int(format!("EXISTS {key}")), 0);
    }
    assert_eq!(client.int("DLOCK.RELEASE y h"), 1);
    waiter.granted();
}

#[test]
fn opposite_orders_never_deadlock() {
    let (server, mut client) = held("x");
    let mut waiters =
        server.waiters(["2 x y a", "2 y x b", "3 z y x c"].map(|set| request(&format!("MACQUIRE {set}"))));
    assert_eq!(queues(&server, "x y z"), "x: a b c, y: a b c, z: c", "the same order in every queue");
    client.int("DLOCK.RELEASE x h");
    for (at, owner) in ["a", "b", "c"].iter().enumerate() {
        waiters[at].granted();
        waiters[at + 1..].iter_mut().for_each(Client::waits);
        for key in ["y", "x"] {
            client.int(format!("DLOCK.RELEASE {key} {owner}"));
        }
    }
    assert_eq!(counter(&mut client, "deadlocks"), 0);
}

#[test]
fn requests_behind_one_for_several_locks_wait_and_are_served_in_order() {
    let (server, mut client) = held("x");
    let mut several = server.waiter(request("MACQUIRE 2 x y a"));
    let mut behind = server.waiters(["RLOCK y b", "SACQUIRE y c 2", "WLOCK y d", "MACQUIRE 2 y z e"].map(request));
    client.int("DLOCK.RELEASE x h");
    several.granted();
    behind.iter_mut().for_each(Client::waits);
    client.int("DLOCK.RELEASE y a");
    all_granted(&mut behind[..2]);
    behind[2].waits();
    client.pipeline(&["DLOCK.RELEASE y b", "DLOCK.RELEASE y c"]);
    behind[2].granted();
    behind[3].waits();
    client.int("DLOCK.RELEASE y d");
    behind[3].granted();
    assert_eq!(owners(&server, "x y z"), "a e e");
}

#[test]
fn a_chain_of_requests_is_served_one_by_one() {
    let (server, mut client) = held("m");
    let mut waiters = server.waiters(
        ["MACQUIRE 2 m a first", "MACQUIRE 2 a b second", "MACQUIRE 2 c b third", "RLOCK c fourth"].map(request),
    );
    assert!(client.int("DLOCK.RELEASE m h") == 1);
    waiters[0].granted();
    waiters[1..].iter_mut().for_each(Client::waits);
    // Each release makes the next request the head of all its queues.
    assert_eq!(client.int("DLOCK.RELEASE a first"), 1);
    waiters[1].granted();
    client.int("DLOCK.RELEASE b second");
    waiters[2].granted();
    client.int("DLOCK.RELEASE c third");
    waiters[3].granted();
}

/// Ends the wait of a client in a way, and checks what it is told.
#[track_caller]
fn end_wait(client: &mut Client, mut waiter: Client, id: i64, way: &str) {
    match way {
        "timeout" => waiter.gives_up(),
        "gone" => drop(waiter),
        "killed" => {
            assert_eq!(client.int(format!("CLIENT KILL ID {id}")), 1);
        }
        "unblock" => {
            assert_eq!(client.int(format!("CLIENT UNBLOCK {id} TIMEOUT")), 1);
            waiter.gives_up();
        }
        "error" => {
            assert_eq!(client.int(format!("CLIENT UNBLOCK {id} ERROR")), 1);
            assert!(waiter.fails().starts_with("UNBLOCKED "));
        }
        _ => {
            client.ok("SET x v");
            assert!(waiter.fails().starts_with("WRONGTYPE "), "{way}");
        }
    }
}

#[test]
fn a_request_leaves_all_queues_at_once_whatever_ends_its_wait() {
    for way in ["timeout", "gone", "killed", "unblock", "error", "wrongtype"] {
        let (server, mut client) = held("x");
        let time = if way == "timeout" { 150 } else { 0 };
        let mut waiter = server.client();
        let id = waiter.id();
        server.enters_queue(&mut waiter, format!("DLOCK.MACQUIRE 3 x y z a BLOCK {time}"));
        let mut behind = server.waiters(["ACQUIRE y b", "RLOCK z c", "RLOCK z d", "MACQUIRE 2 z w e"].map(request));
        end_wait(&mut client, waiter, id, way);
        all_granted(&mut behind[..3]);
        behind[3].waits();
        soon("it is in no queue", || counter(&mut client, "waiters") == 1);
        assert_eq!(owners(&server, "y z"), "b c+d", "{way}");
        client.pipeline(&["DLOCK.RELEASE z c", "DLOCK.RELEASE z d"]);
        behind[3].granted();
        // The lock that was in the way is as it was.
        if way != "wrongtype" {
            assert_eq!(queues(&server, "x y z w"), "x: , y: , z: , w: ", "{way}");
            assert_eq!(owners(&server, "x"), "h", "{way}");
        }
        assert_eq!(counter(&mut client, "queues"), 0, "{way}");
    }
}

#[test]
fn another_type_under_any_of_the_keys_ends_the_wait() {
    // The wait ends at once if the key existed before, else when the queue is served next.
    let (server, mut client) = held("x y");
    let mut waiter = server.waiter(request("MACQUIRE 3 w x y a"));
    client.ok("SET y v");
    assert!(waiter.fails().starts_with("WRONGTYPE "));
    assert_eq!((server.waiting(), counter(&mut client, "queues")), (0, 0));
    assert_eq!(client.text("GET y"), "v");
    let (server, mut client) = held("x");
    let mut waiter = server.waiter(request("MACQUIRE 3 w x y a"));
    client.ok("SET y v");
    client.int("DLOCK.RELEASE x h");
    assert!(waiter.fails().starts_with("WRONGTYPE "));
    assert_eq!((client.int("DBSIZE"), server.waiting()), (1, 0), "nothing is taken");
}

#[test]
fn a_request_is_granted_whatever_frees_the_last_lock() {
    for act in
        ["DEL x", "UNLINK x", "RENAME x renamed", "MOVE x 1", "PEXPIRE x -1", "FLUSHDB", "FLUSHALL ASYNC", "SWAPDB 0 1"]
    {
        let (server, mut client) = held("x");
        let mut waiter = server.waiter(request("MACQUIRE 2 x y a"));
        let mut behind = server.waiter(request("ACQUIRE y b"));
        client.run(act);
        waiter.granted();
        assert_eq!(owners(&server, "x y"), "a a", "{act}");
        behind.waits();
    }
}

#[test]
fn a_request_is_granted_when_a_lease_or_session_ends() {
    let (server, mut client) = Server::start().with_client();
    let mut session = server.client();
    session.int("DLOCK.ACQUIRE x s PX 600000 SESSION");
    let (lease, took) = (Duration::from_millis(1200), Stopwatch::start());
    client.int("DLOCK.ACQUIRE y t PX 1200");
    let mut waiter = server.waiter(request("MACQUIRE 3 x y z a"));
    drop(session);
    waiter.granted();
    // The server rounds times to milliseconds: a tolerance of 2 ms.
    took.is_between(lease - Duration::from_millis(2), lease + Duration::from_millis(250), "the lease");
    assert_eq!(owners(&server, "x y z"), "a a a");
}

#[test]
fn a_request_is_granted_when_the_last_of_several_leases_ends() {
    let (server, mut client) = Server::start().with_client();
    for (key, lease) in [("x", 900), ("y", 300), ("z", 600)] {
        client.int(format!("DLOCK.ACQUIRE {key} h PX {lease}"));
    }
    let end = client.end_of("x");
    let mut waiter = server.waiter(request("MACQUIRE 3 x y z a"));
    waiter.granted();
    assert!(client.now() >= end - 2);
    // The same if the lease of one was extended meanwhile.
    client.int("DLOCK.ACQUIRE v h PX 1000");
    let mut waiter = server.waiter(request("MACQUIRE 2 v w b"));
    let end = client.now() + 1500;
    client.int("DLOCK.RENEW v h PX 1500");
    waiter.granted();
    assert!(client.now() >= end - 4);
}

#[test]
fn a_lock_that_its_owner_took_meanwhile_counts_as_held() {
    let (server, mut client) = held("x");
    let mut waiter = server.waiter(request("MACQUIRE 2 x y a"));
    // Nobody overtakes the request and gets the free lock y, not even its owner `a`. A request of `a` that is ahead in
    // the queue of y may get it, as in the second half of the test.
    client.nil("DLOCK.ACQUIRE y a");
    client.int("DLOCK.RELEASE x h");
    waiter.granted();
    client.pipeline(&["DLOCK.RELEASE x a", "DLOCK.RELEASE y a"]);
    let (server, mut client) = held("x y");
    let mut first = server.waiter(request("RACQUIRE y a"));
    let mut both = server.waiter(request("MACQUIRE 2 x y a"));
    client.int("DLOCK.RELEASE y h");
    first.granted();
    client.int("DLOCK.RELEASE x h");
    both.waits();
    assert_eq!(queues(&server, "x y"), "x: a, y: a");
    assert_eq!(client.int("DLOCK.RELEASE y a"), 1);
    both.granted();
}

#[test]
fn an_upgrade_overtakes_a_request_in_one_queue() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK x r PX 600000");
    client.int("DLOCK.RLOCK x s PX 600000");
    let mut several = server.waiter(request("MACQUIRE 2 x y a"));
    let mut upgrade = server.waiter(request("WLOCK x r"));
    assert_eq!(queues(&server, "x y"), "x: r a, y: a");
    client.int("DLOCK.RELEASE x s");
    upgrade.granted();
    several.waits();
    client.int("DLOCK.RELEASE x r ALL");
    several.granted();
    // The only holder upgrades at once, past everybody.
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK x r PX 600000");
    let mut several = server.waiter(request("MACQUIRE 2 x y a"));
    client.int("DLOCK.WLOCK x r");
    client.int("DLOCK.RELEASE x r ALL");
    several.granted();
}

#[test]
fn a_cycle_through_any_of_its_keys_is_a_deadlock() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE mine a PX 600000");
    client.int("DLOCK.ACQUIRE y b PX 600000");
    let mut b = server.waiter(request("ACQUIRE mine b"));
    let error = client.error("DLOCK.MACQUIRE 3 x y z a BLOCK 0");
    assert_eq!(error, "DEADLOCK a waits for y held by b, b waits for mine held by a");
    assert_eq!(queues(&server, "x y z mine"), "x: , y: , z: , mine: b", "nothing has changed");
    assert_eq!(counter(&mut client, "deadlocks"), 1);
    client.int("DLOCK.RELEASE mine a");
    b.granted();
    // The same with a cycle that another request closes.
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE mine a PX 600000");
    client.int("DLOCK.ACQUIRE z b PX 600000");
    let mut a = server.waiter(request("MACQUIRE 3 x y z a"));
    assert!(client.error("DLOCK.RLOCK mine b BLOCK 0").starts_with("DEADLOCK "));
    client.int("DLOCK.RELEASE z b");
    a.granted();
}

#[test]
fn a_cycle_through_those_ahead_in_one_of_the_queues_is_a_deadlock() {
    let (server, mut client) = held("x");
    client.int("DLOCK.ACQUIRE mine c PX 600000");
    // `a` is ahead in the queue of y, and waits for h, which waits for c.
    let mut a = server.waiter(request("MACQUIRE 2 x y a"));
    let mut h = server.waiter(request("ACQUIRE mine h"));
    assert!(client.error("DLOCK.MACQUIRE 2 y z c BLOCK 0").starts_with("DEADLOCK "));
    assert_eq!(queues(&server, "x y z"), "x: a, y: a, z: ");
    client.int("DLOCK.RELEASE mine c");
    h.granted();
    client.int("DLOCK.RELEASE x h");
    a.granted();
}

#[test]
fn a_request_counts_once_per_key_for_the_limit_of_waiters() {
    let (server, mut client) = held("x");
    client.ok("CONFIG SET dlock.max-waiters 4");
    let mut first = server.waiter(request("MACQUIRE 3 x y z a"));
    assert_eq!(client.error(request("MACQUIRE 2 x y b")), "ERR max number of waiters reached: dlock.max-waiters");
    assert_eq!(queues(&server, "x y z"), "x: a, y: a, z: a");
    let mut second = server.waiter(request("ACQUIRE x b"));
    assert_eq!(client.error(request("ACQUIRE x c")), "ERR max number of waiters reached: dlock.max-waiters");
    assert_eq!(["waiters", "waits"].map(|name| counter(&mut client, name)), [2, 2]);
    client.int("DLOCK.RELEASE x h");
    first.granted();
    client.int("DLOCK.RELEASE x a");
    second.granted();
}

#[test]
fn an_absolute_lease_that_passes_while_it_waits_ends_in_nil() {
    let (server, mut client) = held("x");
    let end = client.now() + 200;
    let mut waiter = server.waiter(format!("DLOCK.MACQUIRE 2 x y a PXAT {end} BLOCK 0"));
    let mut behind = server.waiter(request("ACQUIRE y b"));
    client.pass(end);
    client.int("DLOCK.RELEASE x h");
    waiter.gives_up();
    behind.granted();
    assert_eq!(owners(&server, "x y"), "- b");
}

#[test]
fn the_holds_are_bound_to_the_connection_that_waited() {
    let (server, mut client) = held("x");
    let mut waiter = server.client();
    let id = waiter.id();
    server.enters_queue(&mut waiter, "DLOCK.MACQUIRE 2 x y a BLOCK 0 SESSION");
    client.int("DLOCK.RELEASE x h");
    waiter.granted();
    for key in ["x", "y"] {
        assert_eq!(client.session_of(key, "a", "exclusive"), Some(id));
    }
    let mut behind = server.waiter(request("MACQUIRE 2 y x b"));
    drop(waiter);
    behind.granted();
}

#[test]
fn an_owner_that_the_server_makes_up_is_told_at_the_grant() {
    let (server, mut client) = held("x");
    let mut waiter = server.waiter(request("MACQUIRE 2 x y *"));
    client.int("DLOCK.RELEASE x h");
    let reply = crate::support::list_of(&waiter.read().unwrap());
    let owner = crate::support::text_of(&reply[0]);
    assert_eq!(owners(&server, "x y"), format!("{owner} {owner}"));
}

#[test]
fn databases_have_queues_of_their_own() {
    let (server, mut client) = held("x");
    let mut elsewhere = server.client();
    elsewhere.ok("SELECT 1");
    elsewhere.int("DLOCK.MACQUIRE 2 x y other");
    let mut waiter = server.waiter(request("MACQUIRE 2 x y a"));
    elsewhere.int("DLOCK.RELEASE x other");
    waiter.waits();
    client.int("DLOCK.RELEASE x h");
    waiter.granted();
    assert_eq!(elsewhere.int("DBSIZE"), 1);
}

#[test]
fn nothing_is_granted_while_writes_are_refused_or_paused() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE x h PX 1000");
    let end = client.end_of("x");
    let mut waiter = server.waiter(request("MACQUIRE 2 x y a"));
    client.ok("CONFIG SET min-replicas-to-write 1");
    client.pass(end + 200);
    waiter.waits();
    client.ok("CONFIG SET min-replicas-to-write 0");
    waiter.granted();
    let mut session = server.client();
    session.int("DLOCK.ACQUIRE v s SESSION");
    let mut waiter = server.waiter(request("MACQUIRE 2 v w b"));
    client.ok("CLIENT PAUSE 60000 WRITE");
    client.watch_close(session);
    waiter.waits();
    client.ok("CLIENT UNPAUSE");
    waiter.granted();
}

#[test]
fn an_early_expiry_of_one_key_frees_that_lock() {
    let (server, mut client) = held("x");
    let mut waiter = server.waiter(request("MACQUIRE 2 x y a"));
    client.int("PEXPIRE x 200");
    waiter.granted();
    // The other lock of the same owner stays held.
    client.int("PEXPIRE y 50");
    let mut next = server.waiter(request("MACQUIRE 2 y z b"));
    next.granted();
    assert_eq!(owners(&server, "x y z"), "a b b");
}
