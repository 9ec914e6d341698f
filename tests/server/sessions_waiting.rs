//! Sessions and the queue: a request with `SESSION` is bound when granted, and leaves the queue with its connection.

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Client, Server, hold, lock_info, soon};

const LEASE: i64 = 600_000;

/// Sends a request that must wait, and waits until `waiters` do. Returns its connection's id.
#[track_caller]
fn wait(client: &mut Client, waiter: &mut Client, request: &str, waiters: i64) -> i64 {
    let id = waiter.id();
    waiter.send(request);
    soon("it waits", || lock_info(client, "k").is_some_and(|info| info.waiters == waiters));
    id
}

#[test]
fn a_waiter_is_bound_when_granted() {
    let (_server, [mut client, mut waiter]) = Server::start().with_clients();
    client.int(format!("DLOCK.ACQUIRE k a PX {LEASE}"));
    let id = wait(&mut client, &mut waiter, "DLOCK.ACQUIRE k b PX 1200 SESSION BLOCK 0", 1);
    assert_eq!(counter(&mut client, "sessions"), 0, "nothing is bound yet");
    client.int("DLOCK.RELEASE k a");
    assert!(matches!(waiter.read(), Ok(Value::Int(_))));
    assert_eq!(client.session_of("k", "b", "exclusive"), Some(id));
    let end = client.now() + 4000;
    while client.now() < end {
        assert_eq!(client.session_of("k", "b", "exclusive"), Some(id), "it is kept alive");
    }
    client.watch_close(waiter);
    assert!(lock_info(&mut client, "k").is_none());
}

#[test]
fn a_waiter_without_session_is_not_bound() {
    let (_server, [mut client, mut waiter]) = Server::start().with_clients();
    client.int(format!("DLOCK.ACQUIRE k a PX {LEASE} SESSION"));
    wait(&mut client, &mut waiter, &format!("DLOCK.ACQUIRE k b PX {LEASE} BLOCK 0"), 1);
    client.int("DLOCK.RELEASE k a");
    waiter.read().unwrap();
    assert_eq!(client.session_of("k", "b", "exclusive"), None);
    client.watch_close(waiter);
    assert!(lock_info(&mut client, "k").is_some());
}

#[test]
fn a_lease_that_is_too_short_when_its_turn_comes_is_refused() {
    let (_server, [mut client, mut waiter, mut next]) = Server::start().with_clients();
    client.int(format!("DLOCK.ACQUIRE k a PX {LEASE}"));
    // The default lease, which is shorter by then.
    wait(&mut client, &mut waiter, "DLOCK.ACQUIRE k b SESSION BLOCK 0", 1);
    client.ok("CONFIG SET dlock.default-lease 299");
    wait(&mut client, &mut next, "DLOCK.ACQUIRE k c PX 600000 BLOCK 0", 2);
    client.int("DLOCK.RELEASE k a");
    assert_eq!(waiter.fails(), "ERR SESSION needs a lease of at least 300 ms");
    assert!(next.granted() > 0, "the queue goes on");
    client.int("DLOCK.RELEASE k c");
    // The lease of a hold that the owner got through another connection meanwhile.
    client.ok("CONFIG SET dlock.default-lease 30000");
    client.int(format!("DLOCK.WLOCK k a PX {LEASE}"));
    wait(&mut client, &mut next, "DLOCK.WLOCK k b PX 299 BLOCK 0", 1);
    wait(&mut client, &mut waiter, "DLOCK.WLOCK k b SESSION BLOCK 0", 2);
    client.int("DLOCK.RELEASE k a");
    assert!(next.granted() > 0);
    assert_eq!(waiter.fails(), "ERR SESSION needs a lease of at least 300 ms");
    assert_eq!(counter(&mut client, "sessions"), 0);
}

#[test]
fn a_client_that_dies_while_it_waits_leaves_the_queue() {
    let (_server, [mut client, mut dead, mut next]) = Server::start().with_clients();
    client.int(format!("DLOCK.ACQUIRE k a PX {LEASE}"));
    wait(&mut client, &mut dead, "DLOCK.ACQUIRE k b SESSION BLOCK 0", 1);
    wait(&mut client, &mut next, "DLOCK.ACQUIRE k c SESSION BLOCK 0", 2);
    drop(dead);
    soon("it left", || lock_info(&mut client, "k").unwrap().waiters == 1);
    client.int("DLOCK.RELEASE k a");
    assert!(matches!(next.read(), Ok(Value::Int(_))));
    assert_eq!(counter(&mut client, "grants"), 2, "nobody was granted in between");
    assert_eq!((counter(&mut client, "sessions"), counter(&mut client, "session_ends")), (1, 0));
}

#[test]
fn a_client_that_dies_in_the_turn_of_its_grant_does_not_keep_the_lock() {
    let kill = |id: i64| format!("CLIENT KILL ID {id}");
    let release = "DLOCK.RELEASE k a".to_owned();
    for transaction in [false, true] {
        for kill_first in [false, true] {
            let what = format!("transaction {transaction}, kill first {kill_first}");
            let (_server, [mut client, mut dead, mut next]) = Server::start().with_clients();
            client.int(format!("DLOCK.ACQUIRE k a PX {LEASE}"));
            let request = format!("DLOCK.ACQUIRE k b PX {LEASE} SESSION BLOCK 0");
            let id = wait(&mut client, &mut dead, &request, 1);
            wait(&mut client, &mut next, "DLOCK.ACQUIRE k c BLOCK 0", 2);
            let mut requests =
                if kill_first { vec![kill(id), release.clone()] } else { vec![release.clone(), kill(id)] };
            if transaction {
                requests = [vec!["MULTI".to_owned()], requests, vec!["EXEC".to_owned()]].concat();
            }
            let replies = client.pipeline(&requests);
            assert!(replies.iter().all(Result::is_ok), "{what}: {replies:?}");
            assert!(matches!(next.read(), Ok(Value::Int(_))), "{what}");
            assert!(hold(&mut client, "k", "b", "exclusive").is_none(), "{what}");
            assert_eq!((lock_info(&mut client, "k").unwrap().waiters, counter(&mut client, "sessions")), (0, 0));
        }
    }
}

#[test]
fn a_client_that_hangs_up_in_the_turn_of_its_grant_does_not_keep_the_lock() {
    let server = Server::start();
    for round in 0..10 {
        let (mut client, mut dead, mut next) = (server.client(), server.client(), server.client());
        client.int(format!("DLOCK.ACQUIRE k a PX {LEASE}"));
        wait(&mut client, &mut dead, &format!("DLOCK.ACQUIRE k b PX {LEASE} SESSION BLOCK 0"), 1);
        wait(&mut client, &mut next, "DLOCK.ACQUIRE k c BLOCK 0", 2);
        server.freeze();
        client.send("DLOCK.RELEASE k a");
        drop(dead);
        server.thaw();
        client.read().unwrap();
        assert!(matches!(next.read(), Ok(Value::Int(_))), "round {round}");
        assert_eq!(client.int("DLOCK.RELEASE k c"), 1, "round {round}");
    }
}

#[test]
fn the_queue_is_served_when_a_session_ends() {
    let (server, [mut client, mut session]) = Server::start().with_clients();
    session.int(format!("DLOCK.RACQUIRE k a PX {LEASE} SESSION"));
    session.int("DLOCK.RACQUIRE k a");
    let mut waiters: Vec<_> = (0..4).map(|_| server.client()).collect();
    for (n, request) in ["RLOCK k b", "RLOCK k c", "WLOCK k d", "RLOCK k e"].iter().enumerate() {
        wait(&mut client, &mut waiters[n], &format!("DLOCK.{request} PX {LEASE} BLOCK 0 SESSION"), n as i64 + 1);
    }
    drop(session);
    // The readers at the head get in together, then the writer, then the last.
    let mut readers = waiters.drain(..2).collect::<Vec<_>>();
    assert!(readers.iter_mut().all(|reader| matches!(reader.read(), Ok(Value::Int(_)))));
    drop(readers);
    assert!(matches!(waiters[0].read(), Ok(Value::Int(_))));
    drop(waiters.remove(0));
    assert!(matches!(waiters[0].read(), Ok(Value::Int(_))));
    assert_eq!((counter(&mut client, "session_ends"), counter(&mut client, "sessions")), (4, 1));
}

#[test]
fn the_queue_is_served_when_the_grace_of_an_ended_session_is_over() {
    let (_server, [mut client, mut session, mut waiter]) = Server::conf("dlock.session-grace 500").with_clients();
    session.int(format!("DLOCK.ACQUIRE k a PX {LEASE} SESSION"));
    wait(&mut client, &mut waiter, "DLOCK.ACQUIRE k b BLOCK 0", 1);
    let start = client.now();
    drop(session);
    assert!(matches!(waiter.read(), Ok(Value::Int(_))));
    let took = client.now() - start;
    assert!((495..5000).contains(&took), "{took} ms");
}

#[test]
fn a_dead_client_frees_what_it_holds_and_leaves_where_it_waits() {
    let server = Server::start();
    let (mut client, mut dead, mut next, mut other) =
        (server.client(), server.client(), server.client(), server.client());
    dead.int(format!("DLOCK.RLOCK k a PX {LEASE} SESSION"));
    dead.int(format!("DLOCK.ACQUIRE mine a PX {LEASE} SESSION"));
    client.int(format!("DLOCK.RLOCK k b PX {LEASE}"));
    // The session waits to upgrade what it holds, with one behind it.
    wait(&mut client, &mut dead, "DLOCK.WLOCK k a SESSION BLOCK 0", 1);
    wait(&mut client, &mut next, "DLOCK.RLOCK k c BLOCK 0", 2);
    other.send("DLOCK.ACQUIRE mine d BLOCK 0");
    soon("it waits", || lock_info(&mut client, "mine").unwrap().waiters == 1);
    drop(dead);
    assert!(matches!(next.read(), Ok(Value::Int(_))));
    assert!(matches!(other.read(), Ok(Value::Int(_))));
    assert_eq!(lock_info(&mut client, "k OWNER a").unwrap().holds(), []);
    assert_eq!((lock_info(&mut client, "k").unwrap().holders, counter(&mut client, "waiters")), (2, 0));
}

#[test]
fn an_upgrade_is_bound_when_granted() {
    let (_server, [mut client, mut session]) = Server::start().with_clients();
    session.int(format!("DLOCK.RLOCK k a PX {LEASE}"));
    client.int(format!("DLOCK.RLOCK k b PX {LEASE}"));
    let id = wait(&mut client, &mut session, &format!("DLOCK.WLOCK k a PX {LEASE} SESSION BLOCK 0"), 1);
    client.int("DLOCK.RELEASE k b");
    session.read().unwrap();
    let both = ["exclusive", "shared"].map(|mode| client.session_of("k", "a", mode));
    assert_eq!(both, [Some(id), None]);
    client.watch_close(session);
    assert_eq!(lock_info(&mut client, "k").unwrap().mode, "shared");
}
