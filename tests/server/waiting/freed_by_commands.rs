//! Every command that frees a lock serves its queue, in the same turn and before any later request.

use redis::{Cmd, Value};

use crate::support::queue::all_granted;
use crate::support::replica::counter;
use crate::support::state::{assert_same_but_for_grace, state};
use crate::support::{Client, Server, req};

/// Returns the ways to free the lock `k` of `a`: a command to run before, or none, and those that free it.
fn ways(client: &mut Client) -> Vec<(&'static str, Vec<Cmd>)> {
    let way = |before: &'static str, act: &str| {
        let words: Vec<_> = act.split(' ').collect();
        let mut cmd = Cmd::new();
        words.iter().for_each(|word| {
            cmd.arg(*word);
        });
        (before, vec![cmd])
    };
    let mut ways = vec![
        way("", "DLOCK.RELEASE k a"),
        way("DLOCK.RACQUIRE k a", "DLOCK.RELEASE k a ALL"),
        way("DLOCK.RLOCK k a", "DLOCK.RELEASE k a ALL"),
        way("", "DEL k"),
        way("", "UNLINK k"),
        way("SET x 1", "DEL x k"),
        way("", "RENAME k moved"),
        way("", "RENAMENX k moved"),
        way("", "MOVE k 1"),
        way("", "EXPIRE k -1"),
        way("", "PEXPIRE k 0"),
        way("", "EXPIREAT k 1"),
        way("", "PEXPIREAT k 1000"),
        way("", "FLUSHDB"),
        way("", "FLUSHDB ASYNC"),
        way("", "FLUSHALL"),
        way("", "FLUSHALL SYNC"),
        way("", "FLUSHALL ASYNC"),
        way("", "SWAPDB 0 1"),
        way("", "SWAPDB 2 0"),
    ];
    let gone_by_script = req!["EVAL", "return redis.call('DEL', KEYS[1])", 1, "k"];
    let released_by_script = req!["EVAL", "return redis.call('DLOCK.RELEASE', KEYS[1], 'a')", 1, "k"];
    let renamed_twice = ["RENAME k moved", "RENAME moved k2"].map(|act| way("", act).1.remove(0));
    let in_a_transaction = ["MULTI", "DEL k", "EXEC"].map(|act| way("", act).1.remove(0));
    ways.extend([("", vec![gone_by_script]), ("", vec![released_by_script]), ("", renamed_twice.to_vec())]);
    ways.push(("", in_a_transaction.to_vec()));
    // A lock is restored with an expiry in the past.
    client.int("DLOCK.ACQUIRE dumped x PX 600000");
    let dump = client.bytes("DUMP dumped");
    client.ok("FLUSHALL");
    ways.push(("", vec![req!["RESTORE", "k", 1, dump, "REPLACE", "ABSTTL"]]));
    ways
}

#[test]
fn whatever_frees_a_lock_serves_its_queue_before_any_later_request() {
    let (server, replica) = Server::conf("appendonly yes\nappendfsync no").with_replica();
    let mut client = server.client();
    for (before, acts) in ways(&mut client) {
        let what = acts.iter().map(|act| String::from_utf8_lossy(&act.get_packed_command()).replace("\r\n", " "));
        let what = what.collect::<Vec<_>>().join("; ");
        client.ok("FLUSHALL");
        let first = client.int("DLOCK.WLOCK k a PX 600000");
        if !before.is_empty() {
            client.run(before);
        }
        let requests = ["WLOCK k b", "RLOCK k r1", "RLOCK k r2", "WLOCK k c"];
        let mut waiters = server.waiters(requests.map(|request| format!("DLOCK.{request} PX 600000 BLOCK 0")));
        // A later request comes in the same packet, and must find the lock handed over.
        let mut requests = acts.clone();
        requests.push(req!["DLOCK.ACQUIRE", "k", "late"]);
        let replies = client.pipeline(&requests);
        assert_eq!(replies.last(), Some(&Ok(Value::Nil)), "{what}: {replies:?}");
        let token = waiters[0].granted();
        assert!(token > first, "{what}");
        assert_eq!(server.holders("k"), ["b"], "{what}");
        assert_eq!(server.queue("k"), ["r1", "r2", "c"], "{what}");
        client.int("DLOCK.RELEASE k b");
        all_granted(&mut waiters[1..3]);
        waiters[3].waits();
        client.pipeline(&["DLOCK.RELEASE k r1", "DLOCK.RELEASE k r2"]);
        waiters[3].granted();
        // No request waits any more, so the key has the same TTL on both servers.
        replica.wait_synced(&server);
        let expected = state(&mut client);
        assert_same_but_for_grace(&what, &expected, &state(&mut replica.client()));
        assert_eq!(counter(&mut client, "waiters"), 0, "{what}");
    }
}

#[test]
fn a_lock_that_is_moved_takes_no_queue_along() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0", "DLOCK.ACQUIRE k c BLOCK 0"]);
    client.ok("RENAME k moved");
    waiters[0].granted();
    assert_eq!((server.holders("moved"), server.holders("k")), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!((server.queue("moved"), server.queue("k")), (vec![], vec!["c".to_owned()]));
    client.int("DLOCK.RELEASE moved a");
    waiters[1].waits();
}

#[test]
fn a_lock_that_gets_the_name_of_a_queue_is_waited_for() {
    let (server, mut client) = Server::start().with_client();
    let mut elsewhere = server.client();
    elsewhere.ok("SELECT 1");
    for act in ["RENAME other k", "SWAPDB 0 1", "RESTORE"] {
        client.ok("FLUSHALL");
        client.int("DLOCK.ACQUIRE k a");
        let there = if act == "SWAPDB 0 1" { &mut elsewhere } else { &mut client };
        let key = if act == "SWAPDB 0 1" { "k" } else { "other" };
        there.int(format!("DLOCK.ACQUIRE {key} x"));
        let dump = there.bytes(format!("DUMP {key}"));
        let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
        match act {
            "RESTORE" => client.ok(req!["RESTORE", "k", 600_000, dump, "REPLACE"]),
            _ => client.ok(act),
        }
        assert_eq!(server.holders("k"), ["x"], "{act}");
        assert_eq!(server.queue("k"), ["b"], "{act}");
        waiter.waits();
        assert_eq!(client.int("DLOCK.RELEASE k x"), 1, "{act}");
        waiter.granted();
    }
}

#[test]
fn swapped_databases_serve_the_queues_of_both() {
    let (server, [mut zero, mut one]) = Server::start().with_clients();
    one.ok("SELECT 1");
    zero.int("DLOCK.ACQUIRE k a");
    one.int("DLOCK.ACQUIRE l a");
    let mut on_k = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    let mut on_l = server.client();
    on_l.ok("SELECT 1");
    server.enters_queue(&mut on_l, "DLOCK.ACQUIRE l b BLOCK 0");
    zero.ok("SWAPDB 0 1");
    on_k.granted();
    on_l.granted();
    assert_eq!(zero.int("DLOCK.RELEASE k b"), 1);
    assert_eq!(one.int("DLOCK.RELEASE l b"), 1);
    assert_eq!(zero.int("DLOCK.RELEASE l a"), 1);
    assert_eq!(one.int("DLOCK.RELEASE k a"), 1);
}

#[test]
fn emptying_one_database_serves_its_queues_only() {
    let server = Server::start();
    let mut clients = [0, 1].map(|db| {
        let mut client = server.client();
        client.ok(format!("SELECT {db}"));
        client
    });
    let mut waiters = Vec::new();
    for (db, client) in clients.iter_mut().enumerate() {
        for n in 0..5 {
            client.int(format!("DLOCK.ACQUIRE k{n} a"));
            let mut waiter = server.client();
            waiter.ok(format!("SELECT {db}"));
            server.enters_queue(&mut waiter, format!("DLOCK.ACQUIRE k{n} b BLOCK 0"));
            waiters.push(waiter);
        }
    }
    clients[1].ok("FLUSHDB");
    all_granted(&mut waiters[5..]);
    waiters[..5].iter_mut().for_each(|waiter| waiter.waits());
    clients[1].ok("FLUSHALL");
    all_granted(&mut waiters[..5]);
    assert_eq!(counter(&mut clients[0], "queues"), 0);
}

#[test]
fn a_reload_keeps_the_lock_and_its_queue() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0", "DLOCK.ACQUIRE k c BLOCK 0"]);
    client.ok("DEBUG RELOAD");
    assert_eq!(server.queue("k"), ["b", "c"]);
    waiters[0].waits();
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    waiters[0].granted();
    assert_eq!(client.int("DLOCK.RELEASE k b"), 1);
    waiters[1].granted();
}
