//! A wait that the server ends in the same turn as the module grants it: one reply, the grant or the server's error.

use std::time::{Duration, Instant};

use redis::Value;

use crate::support::cluster::Cluster;
use crate::support::replica::info_field;
use crate::support::{Client, Server, soon};

/// Sends these requests at once, so that the server runs them in one turn, in a transaction or not.
#[track_caller]
fn in_one_turn(client: &mut Client, is_transaction: bool, requests: &[String]) {
    let mut all = requests.to_vec();
    if is_transaction {
        all.insert(0, "MULTI".to_owned());
        all.push("EXEC".to_owned());
    }
    let replies = client.pipeline(&all);
    assert!(replies.iter().all(Result::is_ok), "{all:?}: {replies:?}");
}

/// Reads the reply to a request that waits. Returns the code of an error; fails if the reply is neither an error nor a
/// token.
#[track_caller]
fn outcome(waiter: &mut Client) -> Result<(), String> {
    match waiter.read() {
        Ok(Value::Int(2..)) => Ok(()),
        Ok(other) => panic!("neither a token nor an error: {other:?}"),
        Err(error) => Err(error.split(' ').next().unwrap_or_default().to_owned()),
    }
}

#[test]
fn client_unblock_in_the_turn_of_the_grant_gives_one_reply() {
    let (server, mut client) = Server::start().with_client();
    for how in ["ERROR", "TIMEOUT"] {
        for is_transaction in [false, true] {
            client.int("DLOCK.ACQUIRE k a");
            let mut waiter = server.client();
            let id = waiter.id();
            server.enters_queue(&mut waiter, "DLOCK.ACQUIRE k b BLOCK 0 PX 600000");
            let unblock = format!("CLIENT UNBLOCK {id} {how}");
            in_one_turn(&mut client, is_transaction, &["DLOCK.RELEASE k a".to_owned(), unblock]);
            let outcome = outcome(&mut waiter);
            let said = if how == "TIMEOUT" { Ok(()) } else { Err("UNBLOCKED".to_owned()) };
            assert_eq!(outcome, said, "{how}, in a transaction: {is_transaction}");
            assert_eq!(waiter.text("PING"), "PONG", "{how}, in a transaction: {is_transaction}: one reply");
            // The request was granted, even if the reply is an error.
            assert_eq!(server.holders("k"), ["b"]);
            assert_eq!(waiter.int("DLOCK.RELEASE k b"), 1);
        }
    }
}

#[test]
fn client_kill_in_the_turn_of_the_grant_ends_the_hold_with_its_session() {
    let (server, mut client) = Server::start().with_client();
    for is_transaction in [false, true] {
        client.int("DLOCK.ACQUIRE k a");
        let mut waiter = server.client();
        let id = waiter.id();
        server.enters_queue(&mut waiter, "DLOCK.ACQUIRE k b BLOCK 0 PX 600000 SESSION");
        let mut next = server.waiter("DLOCK.ACQUIRE k c BLOCK 0");
        let kill = format!("CLIENT KILL ID {id}");
        in_one_turn(&mut client, is_transaction, &["DLOCK.RELEASE k a".to_owned(), kill]);
        // The killed waiter was granted, and its hold has ended with its session.
        next.granted();
        assert!(waiter.outcome("PING").is_err(), "the connection is closed, and nothing was sent");
        assert_eq!(client.int("DLOCK.RELEASE k c"), 1);
    }
}

#[test]
fn a_demotion_in_the_turn_of_the_grant_gives_one_reply() {
    for is_transaction in [false, true] {
        let (server, mut client) = Server::start().with_client();
        client.int("DLOCK.ACQUIRE k a");
        let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 600000");
        let demote = "REPLICAOF 127.0.0.1 1".to_owned();
        in_one_turn(&mut client, is_transaction, &["DLOCK.RELEASE k a".to_owned(), demote]);
        assert_eq!(outcome(&mut waiter), Err("UNBLOCKED".to_owned()));
        assert!(waiter.outcome("PING").is_err(), "the server closes the connection after one reply");
        client.ok("REPLICAOF NO ONE");
        assert_eq!(server.holders("k"), ["b"]);
    }
}

#[test]
fn a_slot_that_goes_in_the_turn_of_the_grant_gives_one_reply() {
    let (cluster, from, to) = Cluster::of_two("k");
    let (server, id) = (&cluster.nodes[from], cluster.id(to));
    let mut client = cluster.client(from);
    let slot = client.int("CLUSTER KEYSLOT k");
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 600000");
    // After the sleep, the server looks for waiters whose slot has gone.
    let requests = ["DLOCK.RELEASE k a", "DEL k", &format!("CLUSTER SETSLOT {slot} NODE {id}"), "DEBUG SLEEP 0.3"];
    in_one_turn(&mut client, false, &requests.map(str::to_owned));
    if let Err(code) = outcome(&mut waiter) {
        assert_eq!(code, "MOVED");
    }
    assert_eq!(waiter.text("PING"), "PONG", "one reply");
}

#[test]
fn a_wait_whose_time_ends_in_the_turn_of_its_grant_gets_one_reply() {
    let (server, mut client) = Server::start().with_client();
    for _ in 0..20 {
        client.int("DLOCK.ACQUIRE k a");
        let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 40");
        in_one_turn(&mut client, false, &["DEBUG SLEEP 0.06", "DLOCK.RELEASE k a"].map(str::to_owned));
        // The sleep is longer than the wait. The end of the time or the grant may come first, but there is one reply.
        let is_granted = waiter.read() != Ok(Value::Nil);
        assert_eq!(waiter.text("PING"), "PONG", "one reply");
        if is_granted {
            assert_eq!(waiter.int("DLOCK.RELEASE k b"), 1);
        }
    }
}

#[test]
fn a_grant_while_the_server_is_about_to_sleep_wakes_it_up() {
    // The server wakes up by itself once a second.
    let (server, mut client) = Server::conf("hz 1").with_client();
    let mut taken = Duration::ZERO;
    for _ in 0..6 {
        client.int("DLOCK.ACQUIRE k a");
        let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
        // The release, which has 38 bytes in RESP, is sent behind a BLPOP. The server runs it when RPUSH has ended the
        // BLPOP, as its last work before it sleeps.
        let mut blocked = server.client();
        blocked.send("BLPOP list 0");
        soon("both are blocked", || info_field(&mut client, "clients", "blocked_clients").as_deref() == Some("2"));
        blocked.send("DLOCK.RELEASE k a");
        soon("the release has arrived", || client.text("CLIENT LIST").contains(" qbuf=38 "));
        let begin = Instant::now();
        client.int("RPUSH list x");
        waiter.granted();
        taken += begin.elapsed();
        assert_eq!(waiter.int("DLOCK.RELEASE k b"), 1);
    }
    assert!(taken < Duration::from_secs(1), "six grants took {taken:?}");
}
