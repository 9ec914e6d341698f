//! Several locks at once in the replication stream and in files: one transaction for each grant, whatever led to it.

use std::time::Duration;

use crate::several::owners;
use crate::support::state::{assert_same, assert_same_but_for_grace, state};
use crate::support::{Client, Server, hold, lock_info, soon};

const FOR_EVER: &str = "BLOCK 0 PX 600000";

/// Runs an act, and returns the transactions and single commands that it appended: `["MULTI A B EXEC", "C"]`.
#[track_caller]
fn appended(server: &Server, act: impl FnOnce()) -> Vec<String> {
    let (mut units, mut is_open) = (Vec::<String>::new(), false);
    for name in server.appended(act) {
        match units.last_mut().filter(|_| is_open) {
            Some(unit) => *unit += &format!(" {name}"),
            None => units.push(name.clone()),
        }
        is_open = name == "MULTI" || (is_open && name != "EXEC");
    }
    units
}

pub fn writing() -> (Server, Client) {
    Server::conf("appendonly yes\nappendfsync no").with_client()
}

#[test]
fn a_grant_is_one_transaction_with_an_effect_per_key() {
    let (server, mut client) = writing();
    let units = appended(&server, || drop(client.run("DLOCK.MACQUIRE 3 x y z a PX 600000")));
    assert_eq!(units, ["MULTI DLOCK.APPLY DLOCK.APPLY DLOCK.APPLY EXEC"]);
    // A request that is refused, waits, or gives up appends nothing.
    let units = appended(&server, || {
        client.nil("DLOCK.MACQUIRE 2 w x b");
        client.error("DLOCK.MACQUIRE 2 w x a BLOCK 0");
        client.nil("DLOCK.MACQUIRE 2 w x b BLOCK 5");
        drop(server.waiter("DLOCK.MACQUIRE 2 w x b BLOCK 0"));
        server.left_waiting(0);
    });
    assert_eq!(units, [""; 0]);
}

#[test]
fn a_grant_by_a_release_is_in_the_transaction_of_the_release() {
    let (server, mut client) = writing();
    client.int("DLOCK.ACQUIRE x h PX 600000");
    let mut waiter = server.waiter(format!("DLOCK.MACQUIRE 3 x y z a {FOR_EVER}"));
    let units = appended(&server, || {
        client.int("DLOCK.RELEASE x h");
        waiter.granted();
    });
    assert_eq!(units, ["MULTI DLOCK.RELEASE DLOCK.APPLY DLOCK.APPLY DLOCK.APPLY EXEC"]);
}

#[test]
fn a_grant_by_the_timer_is_one_transaction() {
    let (server, mut client) = writing();
    // The timer serves the end of a session, of a lease, and of a wait; and a key that was removed.
    let mut session = server.client();
    session.int("DLOCK.ACQUIRE x s PX 600000 SESSION");
    let mut waiter = server.waiter(format!("DLOCK.MACQUIRE 2 x y a {FOR_EVER}"));
    let units = appended(&server, || {
        drop(session);
        waiter.granted();
    });
    assert_eq!(units.len(), 1, "{units:?}");
    assert!(units[0].ends_with("DLOCK.APPLY DLOCK.APPLY EXEC"), "{units:?}");
    let mut waiter = server.waiter(format!("DLOCK.MACQUIRE 2 x w b {FOR_EVER}"));
    let units = appended(&server, || {
        client.run("DEL x");
        waiter.granted();
    });
    assert_eq!(units, ["DEL", "MULTI DLOCK.APPLY DLOCK.APPLY EXEC"]);
    // A request ahead leaves: the next is granted by the timer as well.
    client.int("DLOCK.ACQUIRE held h PX 600000");
    let mut ahead = server.waiter("DLOCK.MACQUIRE 2 held p c BLOCK 300");
    let mut behind = server.waiter(format!("DLOCK.MACQUIRE 2 p q d {FOR_EVER}"));
    let units = appended(&server, || {
        ahead.gives_up();
        behind.granted();
    });
    assert_eq!(units, ["MULTI DLOCK.APPLY DLOCK.APPLY EXEC"]);
    // A server that gets no processor for 50 ms finds the key expired, and appends a deletion, too.
    let in_one = (0..10).any(|n| {
        client.int(format!("DLOCK.ACQUIRE l{n} h PX 500"));
        let mut waiter = server.waiter(format!("DLOCK.MACQUIRE 2 l{n} m{n} a {FOR_EVER}"));
        let units = appended(&server, || {
            waiter.granted();
        });
        let effects = units.last().expect("a grant");
        assert!(effects.ends_with("DLOCK.APPLY DLOCK.APPLY EXEC"), "{units:?}");
        units.len() == 1
    });
    assert!(in_one, "a lease end is handed over in place");
}

/// Grants of every kind, some of the locks held at the end.
#[track_caller]
fn take_and_hand_over(server: &Server, client: &mut Client) {
    client.int("DLOCK.MACQUIRE 3 a1 a2 a3 a PX 600000 REQUEST r");
    client.int("DLOCK.RACQUIRE a2 a PX 700000");
    client.int("DLOCK.MACQUIRE 3 b1 b2 b3 b PX 600000");
    client.int("DLOCK.RELEASE b2 b");
    client.int("DLOCK.RENEW b3 b PX 900000");
    let mut session = server.client();
    session.int("DLOCK.MACQUIRE 2 c1 c2 c PX 600000 SESSION");
    client.int("DLOCK.ACQUIRE d1 d PX 700");
    client.int("DLOCK.ACQUIRE e1 e PX 600000");
    client.int("DLOCK.SACQUIRE f1 f 5 PERMITS 4 PX 600000");
    let mut waiters = server.waiters(
        ["2 c2 c1 w1", "3 d1 d2 d3 w2", "2 e2 e1 w3", "2 f1 f2 w4"]
            .map(|set| format!("DLOCK.MACQUIRE {set} {FOR_EVER}")),
    );
    drop(session);
    client.run("DEL e1");
    client.int("DLOCK.RELEASE f1 f ALL");
    crate::support::queue::all_granted(&mut waiters);
    client.int("DLOCK.SACQUIRE s p 9 PERMITS 5 PX 600000");
    client.int("DLOCK.SACQUIRE s q 9 PERMITS 2 PX 300");
    client.int("DLOCK.RELEASE s p PERMITS 2");
    let mut permits = server.waiter(format!("DLOCK.SACQUIRE s t 7 PERMITS 3 REQUEST r {FOR_EVER}"));
    permits.granted();
}

#[test]
fn replica_file_and_snapshot_are_equal_to_the_primary() {
    let (mut server, mut client) = writing();
    let replica = server.replica();
    let second = replica.replica();
    take_and_hand_over(&server, &mut client);
    replica.wait_synced(&server);
    second.wait_synced(&replica);
    let expected = state(&mut client);
    assert_eq!(
        owners(&server, "a1 a2 a3 b1 b2 b3 c1 c2 d1 d2 d3 e1 e2 f1 f2 s"),
        "a a a b - b w1 w1 w2 w2 w2 w3 w3 w4 w4 p+t"
    );
    assert_same_but_for_grace("replica", &expected, &state(&mut replica.client()));
    assert_same_but_for_grace("its replica", &expected, &state(&mut second.client()));
    let expected = state(&mut replica.client());
    server.crash();
    assert_same_but_for_grace("append-only file", &state(&mut server.client()), &expected);
    let mut client = server.client();
    for preamble in ["yes", "no"] {
        client.ok(format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
        client.run("BGREWRITEAOF");
        server.wait_saved();
        let before = state(&mut client);
        client.ok("DEBUG LOADAOF");
        assert_same("rewritten file", &before, &state(&mut client));
    }
    let before = state(&mut client);
    client.ok("DEBUG RELOAD");
    assert_same("snapshot", &before, &state(&mut client));
    // The requests are known, too.
    let token = lock_info(&mut client, "a1").unwrap().token;
    assert_eq!(client.int("DLOCK.MACQUIRE 3 a1 a2 a3 a REQUEST r"), token);
    assert_eq!(hold(&mut client, "s", "t", "shared").unwrap().count, 3);
    assert_eq!(client.int("DLOCK.SACQUIRE s t 7 PERMITS 3 REQUEST r"), lock_info(&mut client, "s").unwrap().token);
}

#[test]
fn a_promoted_replica_has_all_of_a_grant() {
    let (server, replica) = Server::start().with_replica();
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE x h PX 600000");
    let mut waiter = server.waiter(format!("DLOCK.MACQUIRE 3 x y z a {FOR_EVER} REQUEST r"));
    let _behind = server.waiter(format!("DLOCK.MACQUIRE 2 z y b {FOR_EVER}"));
    client.int("DLOCK.RELEASE x h");
    let token = waiter.granted();
    replica.wait_synced(&server);
    assert_eq!(lock_info(&mut replica.client(), "y").unwrap().waiters, 0);
    drop(server);
    replica.promote();
    let mut client = replica.client();
    assert_eq!(owners(&replica, "x y z"), "a a a");
    assert_eq!(client.int("DLOCK.MACQUIRE 3 x y z a REQUEST r"), token);
    let mut waiter = replica.waiter(format!("DLOCK.MACQUIRE 2 z y b {FOR_EVER}"));
    for key in ["x", "y", "z"] {
        assert_eq!(client.int(format!("DLOCK.RELEASE {key} a TOKEN {token}")), 1);
    }
    assert!(waiter.granted() > token);
}

#[test]
fn a_grant_that_was_not_replicated_is_lost_as_a_whole() {
    let (mut server, replica) = Server::start().with_replica();
    let mut client = server.client();
    let kept = client.int("DLOCK.MACQUIRE 2 v w a PX 600000");
    replica.wait_synced(&server);
    // The replica is cut off: nobody listens on that port.
    replica.client().ok("REPLICAOF 127.0.0.1 1");
    let lost = client.int("DLOCK.MACQUIRE 3 x y z a PX 600000 REQUEST r");
    server.kill9();
    replica.promote();
    let mut client = replica.client();
    assert_eq!(owners(&replica, "v w x y z"), "a a - - -");
    assert!(client.int(format!("DLOCK.CHECK w {kept}")) > 0);
    client.nil(format!("DLOCK.CHECK x {lost}"));
    // To the promoted replica, the repeat is a new request.
    assert!(client.int("DLOCK.MACQUIRE 3 x y z a REQUEST r") > kept);
}

#[test]
fn a_demotion_sends_waiters_away_from_all_queues() {
    let server = Server::start();
    let other = Server::start();
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE x h PX 600000");
    client.int("DLOCK.SACQUIRE s h 1 PX 600000");
    let mut waiters = server.waiters(
        ["MACQUIRE 3 x y z a", "ACQUIRE y b", "SACQUIRE s a 1", "MACQUIRE 2 s z c"]
            .map(|words| format!("DLOCK.{words} BLOCK 0")),
    );
    client.ok(format!("REPLICAOF 127.0.0.1 {}", other.port()));
    for waiter in &mut waiters {
        assert!(waiter.fails().starts_with("UNBLOCKED "));
    }
    let mut client = server.client();
    let mut counters = || ["waiters", "queues"].map(|name| crate::support::replica::counter(&mut client, name));
    soon("nobody waits", || counters() == [0, 0]);
    server.promote();
    assert!(server.client().int("DLOCK.MACQUIRE 3 x2 y z a") > 0);
}

#[test]
fn watchers_and_trackers_see_every_key() {
    let (server, mut client) = Server::start().with_client();
    for key in ["x", "y"] {
        let mut other = server.client();
        other.ok(format!("WATCH {key}"));
        client.int("DLOCK.MACQUIRE 2 x y a");
        assert!(other.watched_key_changed(), "{key} has changed");
        client.ok("FLUSHALL");
    }
    let mut tracker = server.client().resp3();
    tracker.ok("CLIENT TRACKING ON");
    client.int("DLOCK.ACQUIRE x h");
    let mut waiter = server.waiter("DLOCK.MACQUIRE 2 x y a BLOCK 0");
    tracker.run("DLOCK.INFO y");
    tracker.pushes();
    tracker.run("DLOCK.INFO y");
    client.int("DLOCK.RELEASE x h");
    waiter.granted();
    let push = tracker.push(Duration::from_secs(10)).expect("an invalidation");
    assert!(format!("{push:?}").contains('y') || format!("{push:?}").contains("121"), "{push:?}");
}
