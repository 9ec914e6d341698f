//! While the server pauses writes, the module grants nothing by itself; it does so afterwards.

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Server, Setup, int_of, lock_info, soon};

#[test]
fn nothing_is_granted_while_writes_are_paused() {
    let (server, mut client) = Server::conf("appendonly yes\nappendfsync no").with_client();
    let exclusive = client.int("DLOCK.ACQUIRE k a PX 800");
    client.int("DLOCK.RLOCK r a PX 800");
    client.int("DLOCK.RLOCK r b PX 600000");
    let mut waiters = server.waiters(["k w", "r w"].map(|words| format!("DLOCK.WLOCK {words} BLOCK 0 PX 600000")));
    let end = client.end_of("k");
    client.ok("CLIENT PAUSE 100000 WRITE");
    let before = server.aof().len();
    client.pass(end + 150);
    // Reading lapsed locks grants nothing.
    for _ in 0..20 {
        client.nil(format!("DLOCK.CHECK k {exclusive}"));
        let info = lock_info(&mut client, "k FULL").unwrap();
        assert_eq!((info.mode.as_str(), info.holders, info.ttl, info.waiters), ("free", 0, 0, 1));
        let info = lock_info(&mut client, "r FULL").unwrap();
        assert_eq!((info.holders, info.waiters, info.queue.unwrap().len()), (1, 1, 1));
        client.text("PING");
    }
    waiters.iter_mut().for_each(|waiter| waiter.waits());
    assert_eq!(counter(&mut client, "waiters"), 2);
    assert_eq!(server.aof().len(), before, "nothing was written");
    client.ok("CLIENT UNPAUSE");
    assert!(waiters[0].granted() > exclusive);
    waiters[1].waits();
    assert_eq!(client.int("DLOCK.RELEASE r b"), 1);
    waiters[1].granted();
}

#[test]
fn a_pause_of_everything_is_outlived() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 1000");
    let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0 PX 100", "DLOCK.ACQUIRE k c BLOCK 0"]);
    let from = client.now();
    client.ok("CLIENT PAUSE 1500 ALL");
    // INFO is postponed with everything else.
    let mut late = server.client();
    late.send("DLOCK.INFO k FULL");
    let token = waiters[0].granted();
    assert!(token / 1000 >= from + 1490, "granted {} ms after the pause began", token / 1000 - from);
    waiters[1].granted();
    late.read().expect("an answer after the pause");
    late.nil("DLOCK.ACQUIRE k d");
}

#[test]
fn waiters_leave_the_queue_during_a_pause() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 800");
    let end = client.end_of("k");
    let head = server.waiter("DLOCK.ACQUIRE k gone BLOCK 0");
    let mut second = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    let mut third = server.client();
    let id = third.id();
    server.enters_queue(&mut third, "DLOCK.ACQUIRE k c BLOCK 0");
    client.ok("CLIENT PAUSE 100000 WRITE");
    client.pass(end + 50);
    drop(head);
    server.left_waiting(2);
    assert_eq!(client.int(format!("CLIENT UNBLOCK {id} ERROR")), 1);
    assert!(third.fails().starts_with("UNBLOCKED "));
    second.waits();
    client.ok("CLIENT UNPAUSE");
    second.granted();
    assert_eq!(server.holders("k"), ["b"]);
}

#[test]
fn commands_that_come_during_a_pause_stand_behind_the_queue() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 1000");
    let end = client.end_of("k");
    let mut first = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    client.ok("CLIENT PAUSE 100000 WRITE");
    let mut newcomers: Vec<_> = (0..5).map(|_| server.client()).collect();
    newcomers.iter_mut().for_each(|newcomer| newcomer.send("DLOCK.ACQUIRE k late"));
    client.pass(end + 50);
    client.ok("CLIENT UNPAUSE");
    newcomers.iter_mut().for_each(|newcomer| assert_eq!(newcomer.read(), Ok(Value::Nil)));
    first.granted();
}

#[test]
fn a_failover_grants_nothing_and_sends_everybody_away() {
    let (server, replica) = Server::start().with_replica();
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 1000");
    client.int("DLOCK.ACQUIRE l a PX 600000");
    let end = client.end_of("k");
    let mut waiters = server.waiters(["k", "l"].map(|key| format!("DLOCK.ACQUIRE {key} b BLOCK 0 PX 600000")));
    // The primary waits for its replica to catch up.
    replica.freeze();
    client.ok("FAILOVER");
    client.pass(end + 100);
    assert_eq!(lock_info(&mut client, "k").map(|info| (info.holders, info.waiters)), Some((0, 1)));
    waiters.iter_mut().for_each(|waiter| waiter.waits());
    replica.thaw();
    for waiter in &mut waiters {
        assert!(waiter.fails().starts_with("UNBLOCKED "));
    }
    soon("the replica is the primary", || replica.client().attempt("DLOCK.ACQUIRE k b").is_ok());
    assert_eq!((replica.holders("l"), server.waiting()), (vec!["a".to_owned()], 0));
}

#[test]
fn nothing_is_left_after_many_pauses_with_many_queues() {
    let (server, mut client) = Server::start().with_client();
    for round in 0..5 {
        client.pipeline(&(0..40).map(|n| format!("DLOCK.ACQUIRE k{n} a{round} PX {}", 50 + n)).collect::<Vec<_>>());
        let mut waiters: Vec<_> = (0..40).map(|_| server.client()).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            waiter.send(format!("DLOCK.ACQUIRE k{n} b{round} BLOCK 0 PX 600000"));
        }
        client.ok("CLIENT PAUSE 100 WRITE");
        let asked = client.pipeline(&(0..40).map(|n| format!("DLOCK.INFO k{n} FULL")).collect::<Vec<_>>());
        assert!(asked.iter().all(Result::is_ok), "{asked:?}");
        for waiter in &mut waiters {
            waiter.granted();
        }
        client.pipeline(&(0..40).map(|n| format!("DLOCK.RELEASE k{n} b{round}")).collect::<Vec<_>>());
    }
    assert_eq!(client.int("DBSIZE"), 0);
    assert_eq!(counter(&mut client, "waiters"), 0);
}

/// The commands that write, on the key `k`.
const WRITES: [&str; 8] = [
    "DLOCK.ACQUIRE k b",
    "DLOCK.RACQUIRE k b",
    "DLOCK.RLOCK k b",
    "DLOCK.WLOCK k b",
    "DLOCK.SACQUIRE k b 2",
    "DLOCK.MACQUIRE 2 l k b",
    "DLOCK.RELEASE k a",
    "DLOCK.RENEW k a",
];

#[test]
fn a_pause_that_begins_in_the_same_transaction_refuses_what_writes() {
    let (mut server, mut client) = Setup::new().hooks().start().with_client();
    server.tolerate("DEBUG");
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let ways = ["plain", "script", "module"].map(|way| {
        move |words: &str| match way {
            "script" => format!("EVAL return(redis.pcall('{}')) 0", words.replace(' ', "','")),
            "module" => format!("DLOCK.CALL {words}"),
            _ => words.to_owned(),
        }
    });
    for lease in [5, 600_000] {
        for write in WRITES {
            for request in ways.map(|way| way(write)) {
                let token = client.int(format!("DLOCK.ACQUIRE k a PX {lease}"));
                if lease == 5 {
                    client.pass(token / 1000 + 10);
                }
                client.ok("MULTI");
                client.queued("CLIENT PAUSE 100000 WRITE");
                client.queued(&request);
                client.queued(&request);
                client.queued("DLOCK.INFO k");
                let replies = client.pipeline(&["EXEC", "CLIENT UNPAUSE"]);
                let Ok(Value::Array(replies)) = &replies[0] else { panic!("{request}: {replies:?}") };
                for reply in &replies[1..3] {
                    assert!(format!("{reply:?}").contains("TRYAGAIN"), "{request}: {replies:?}");
                }
                assert_eq!(replies[3] == Value::Nil, lease == 5, "{request}: {replies:?}");
                // The refusals have changed nothing.
                let owners: &[&str] = if lease == 5 { &[] } else { &["a"] };
                assert_eq!(server.holders("k"), owners, "{request}");
                client.int("DEL k l");
            }
        }
    }
}

#[test]
fn a_transaction_before_the_pause_and_one_after_it_write() {
    let (server, mut client) = Server::start().with_client();
    client.ok("MULTI");
    client.queued("DLOCK.ACQUIRE k a");
    client.queued("CLIENT PAUSE 100000 WRITE");
    let Value::Array(replies) = client.run("EXEC") else { panic!("an array") };
    assert!(int_of(&replies[0]) > 1);
    let mut late = server.client();
    late.send_all(&["MULTI", "DLOCK.RELEASE k a", "EXEC"]);
    client.ok("CLIENT UNPAUSE");
    assert_eq!((late.read().is_ok(), late.read().is_ok()), (true, true));
    assert_eq!(late.read(), Ok(Value::Array(vec![Value::Int(1)])));
}
