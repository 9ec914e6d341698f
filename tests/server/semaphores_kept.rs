//! Permits in the replication stream and in files, at a failover, in a slot that moves; and a hundred thousand of them.

use std::time::Duration;

use crate::several_kept::writing;
use crate::support::cluster::Cluster;
use crate::support::queue::all_granted;
use crate::support::replica::counter;
use crate::support::state::{assert_same, assert_same_but_for_grace, state};
use crate::support::turn::least_of_three;
use crate::support::{Client, Server, hold, lock_info};

const FOR_EVER: &str = "BLOCK 0 PX 600000";

#[test]
fn permits_are_one_effect_and_so_is_a_grant_from_the_queue() {
    let (server, mut client) = writing();
    let names = server.appended(|| drop(client.run("DLOCK.SACQUIRE k a 9 PERMITS 7 PX 600000")));
    assert_eq!(names, ["DLOCK.APPLY"]);
    let names = server.appended(|| drop(client.run("DLOCK.SACQUIRE k a 9 PX 600000")));
    assert_eq!(names, ["DLOCK.APPLY"]);
    let mut waiters =
        server.waiters(["b", "c"].map(|owner| format!("DLOCK.SACQUIRE k {owner} 9 PERMITS 3 {FOR_EVER}")));
    let names = server.appended(|| {
        client.int("DLOCK.RELEASE k a PERMITS 5");
        all_granted(&mut waiters);
    });
    assert_eq!(names, ["MULTI", "DLOCK.RELEASE", "DLOCK.APPLY", "DLOCK.APPLY", "EXEC"]);
    // A refused or repeated request replicates no change.
    let names = server.appended(|| {
        client.nil("DLOCK.SACQUIRE k d 9 PERMITS 2");
        client.nil("DLOCK.RELEASE k a PERMITS 9");
        client.error("DLOCK.SACQUIRE k a 2 BLOCK 0");
        drop(server.waiter("DLOCK.SACQUIRE k e 9 PERMITS 9 BLOCK 0"));
    });
    assert_eq!(names, [""; 0]);
}

#[test]
fn a_request_that_meets_lapsed_permits_drops_them_by_an_effect() {
    for (limit, is_granted) in [(2, false), (3, true)] {
        let (server, mut client) = writing();
        client.int("DLOCK.RLOCK k a PX 600000");
        client.int("DLOCK.SACQUIRE k a 9 PX 600000");
        client.int("DLOCK.SACQUIRE k b 9 PERMITS 5 PX 20");
        client.pass_ms(25);
        let mut reply = redis::Value::Nil;
        let names = server.appended(|| reply = client.run(format!("DLOCK.SACQUIRE k c {limit} PX 600000")));
        assert_eq!(reply != redis::Value::Nil, is_granted, "limit {limit}");
        assert_eq!(names, ["DLOCK.APPLY"], "limit {limit}");
        assert_eq!(counter(&mut client, "lapses"), 1);
        // The next request finds no lapsed permits.
        let names = server.appended(|| drop(client.run("DLOCK.SACQUIRE k d 2")));
        assert_eq!(names, [""; 0]);
    }
}

/// Takes permits in every way.
#[track_caller]
fn use_permits(server: &Server, client: &mut Client) {
    for n in 0..20 {
        client.int(format!("DLOCK.SACQUIRE many o{n} 100 PERMITS {} PX 600000", n % 5 + 1));
    }
    for n in 0..10 {
        client.int(format!("DLOCK.RELEASE many o{n} PERMITS 1"));
    }
    for n in 10..20 {
        client.int(format!("DLOCK.SACQUIRE many o{n} 100 PERMITS 2 PX 700000 REQUEST r{n}"));
    }
    client.int("DLOCK.SACQUIRE huge a 4294967295 PERMITS 4294967295 PX 600000");
    client.int("DLOCK.RLOCK huge b PX 600000");
    client.int("DLOCK.WLOCK both a PX 600000");
    client.int("DLOCK.SACQUIRE both a 3 PERMITS 3 PX 700000");
    let mut session = server.client();
    session.int("DLOCK.SACQUIRE q s 3 PERMITS 2 PX 600000 SESSION");
    client.int("DLOCK.SACQUIRE q t 3 PX 900");
    let mut waiters = server.waiters(["u", "v", "w"].map(|owner| format!("DLOCK.SACQUIRE q {owner} 3 {FOR_EVER}")));
    drop(session);
    all_granted(&mut waiters);
}

#[test]
fn replica_file_and_snapshot_are_equal_to_the_primary() {
    let (mut server, mut client) = writing();
    let replica = server.replica();
    use_permits(&server, &mut client);
    replica.wait_synced(&server);
    let expected = state(&mut replica.client());
    assert_eq!(server.holders("q"), ["u", "v", "w"]);
    assert_same_but_for_grace("replica", &state(&mut client), &expected);
    for way in ["append-only file", "rewritten file", "file without a preamble", "snapshot"] {
        match way {
            "append-only file" => {
                server.crash();
                assert_same(way, &expected, &state(&mut server.client()));
            }
            "snapshot" => server.client().ok("DEBUG RELOAD"),
            _ => {
                let preamble = if way == "rewritten file" { "yes" } else { "no" };
                server.client().ok(format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
                server.client().run("BGREWRITEAOF");
                server.wait_saved();
                server.client().ok("DEBUG LOADAOF");
            }
        }
        assert_same(way, &expected, &state(&mut server.client()));
    }
    // The limit is judged as before.
    let mut client = server.client();
    client.nil("DLOCK.SACQUIRE q x 3");
    assert_eq!(lock_info(&mut client, "many").unwrap().count, 70);
    client.nil("DLOCK.SACQUIRE many x 70");
    client.int("DLOCK.SACQUIRE many x 71");
}

#[test]
fn a_failover_lets_in_no_permit_too_many() {
    let (server, replica) = Server::start().with_replica();
    let mut client = server.client();
    client.int("DLOCK.SACQUIRE k a 3 PERMITS 2 PX 600000");
    client.int("DLOCK.SACQUIRE k b 3 PX 600000");
    let mut waiters =
        server.waiters(["c", "d"].map(|owner| format!("DLOCK.SACQUIRE k {owner} 3 REQUEST r {FOR_EVER}")));
    client.int("DLOCK.RELEASE k a PERMITS 1");
    let token = waiters[0].granted();
    replica.wait_synced(&server);
    drop(server);
    replica.promote();
    let mut client = replica.client();
    assert_eq!(replica.holders("k"), ["a", "b", "c"]);
    // A repeat of the request that was granted gets its answer. The request that waited begins again.
    assert_eq!(client.int("DLOCK.SACQUIRE k c 3 REQUEST r"), token);
    client.nil("DLOCK.SACQUIRE k d 3 REQUEST r");
    let mut waiter = replica.waiter(format!("DLOCK.SACQUIRE k d 3 REQUEST r {FOR_EVER}"));
    assert_eq!(client.int(format!("DLOCK.RELEASE k c TOKEN {token}")), 1);
    assert!(waiter.granted() > token);
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 3);
}

#[test]
fn a_slot_that_moves_takes_permits_along_and_sends_waiters_after_them() {
    let (cluster, from, to) = Cluster::of_two("k");
    let (mut here, mut there) = (cluster.client(from), cluster.client(to));
    assert!(there.error("DLOCK.SACQUIRE k a 2").starts_with("MOVED "));
    here.int("DLOCK.SACQUIRE k a 3 PERMITS 2 PX 600000");
    here.int("DLOCK.SACQUIRE k b 3 PX 600000");
    let requests = ["c", "d"].map(|owner| format!("DLOCK.SACQUIRE k {owner} 3 {FOR_EVER}"));
    let mut waiters = cluster.nodes[from].waiters(requests);
    cluster.begin_move("k", from, to);
    // Still here: granted in place.
    assert_eq!(here.int("DLOCK.RELEASE k a PERMITS 1"), 0);
    waiters[0].granted();
    waiters[1].waits();
    cluster.migrate("k", from, to);
    assert!(waiters[1].fails().starts_with("TRYAGAIN "));
    cluster.end_move("k", to);
    assert_eq!(here.int("DBSIZE"), 0);
    there.nil("DLOCK.SACQUIRE k d 3");
    let mut waiter = cluster.nodes[to].waiter(format!("DLOCK.SACQUIRE k d 3 {FOR_EVER}"));
    assert_eq!(there.int("DLOCK.RELEASE k a"), 1);
    waiter.granted();
    assert_eq!(hold(&mut there, "k", "c", "shared").unwrap().count, 1);
}

/// How many owners take a permit each.
const MANY: usize = 100_000;
/// How long one turn may take. The aim is 5 ms; the rest is for a machine that is busy with other tests.
const TURN: Duration = Duration::from_millis(10);

#[test]
fn a_hundred_thousand_permits_are_counted_as_quickly_as_one() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.SACQUIRE few a 1 PX 600000");
    client.pour((0..MANY).map(|n| format!("DLOCK.SACQUIRE k owner-{n} {MANY} PX 600000")));
    assert_eq!(lock_info(&mut client, "k").unwrap().count, MANY as i64);
    let refused = |client: &mut Client, key: &str, limit: usize| {
        let requests = vec![format!("DLOCK.SACQUIRE {key} new {limit}"); 2000];
        least_of_three(|| {
            server.takes(|| assert!(client.pipeline(&requests).iter().all(|r| *r == Ok(redis::Value::Nil))))
        })
    };
    let (one, many) = (refused(&mut client, "few", 1), refused(&mut client, "k", MANY));
    eprintln!("2,000 refusals: {one:?} beside one permit, {many:?} beside {MANY}");
    // The aim is 1.5 times as long. The rest is for a busy machine.
    assert!(many <= one * 3 + TURN / 10, "{many:?} beside {MANY} permits, {one:?} beside one");
    let mut waiter = server.waiter(format!("DLOCK.SACQUIRE k new {MANY} PX 600000 BLOCK 0"));
    let turn = server.longest_turn(|| {
        client.int("DLOCK.RELEASE k owner-77777");
        waiter.granted();
    });
    assert!(turn <= TURN, "{turn:?}");
    assert_eq!(lock_info(&mut client, "k").unwrap().count, MANY as i64);
}

#[test]
fn a_refused_request_costs_no_more_beside_a_hundred_thousand_lapsed_permits() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.SACQUIRE few a 1 PX 600000");
    let mut end = 0;
    let is_full = [4, 8, 16, 32].into_iter().any(|seconds| {
        client.int("DEL k");
        end = client.now() + seconds * 1000;
        client.pour((0..MANY).map(|n| format!("DLOCK.SACQUIRE k owner-{n} 1000000 PXAT {end}")));
        client.int("DLOCK.SACQUIRE k live 1000000 PX 600000");
        lock_info(&mut client, "k").unwrap().holders == MANY as i64 + 1
    });
    assert!(is_full, "100,000 commands take longer than half a minute");
    client.pass(end);
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 1);
    let first = server.longest_turn(|| client.nil("DLOCK.SACQUIRE k new 1"));
    assert!(first <= TURN, "the first to meet them: {first:?}");
    let refused = |client: &mut Client, key: &str| {
        let requests = vec![format!("DLOCK.SACQUIRE {key} new 1"); 2000];
        least_of_three(|| {
            server.takes(|| assert!(client.pipeline(&requests).iter().all(|r| *r == Ok(redis::Value::Nil))))
        })
    };
    let (none, lapsed) = (refused(&mut client, "few"), refused(&mut client, "k"));
    eprintln!("2,000 refusals: {none:?} without lapsed permits, {lapsed:?} beside {MANY}; the first {first:?}");
    assert!(lapsed <= none * 3 + TURN / 10, "{lapsed:?} beside lapsed permits, {none:?} without");
}
