//! `MULTI`, scripts and functions: they hand over at once, and never wait.

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Client, Server, bytes_of, list_of, req};

#[track_caller]
fn transaction(client: &mut Client, requests: &[&str]) -> Vec<Value> {
    client.ok("MULTI");
    for request in requests {
        assert_eq!(client.text(*request), "QUEUED");
    }
    list_of(&client.run("EXEC"))
}

#[test]
fn a_release_in_a_transaction_hands_over_at_once() {
    let (server, mut client) = Server::start().with_client();
    for free in ["DLOCK.RELEASE k a", "DEL k", "UNLINK k", "RENAME k l", "PEXPIRE k -1", "FLUSHALL"] {
        client.int("DLOCK.ACQUIRE k a");
        let mut waiters = server.waiters(["DLOCK.ACQUIRE k b BLOCK 0", "DLOCK.ACQUIRE k c BLOCK 0"]);
        let replies = transaction(&mut client, &["SET before 1", free, "DLOCK.ACQUIRE k a", "DLOCK.INFO k FULL"]);
        assert_eq!(replies[2], Value::Nil, "{free}");
        assert!(format!("{:?}", replies[3]).contains("waiters"), "{free}: held again: {:?}", replies[3]);
        waiters[0].granted();
        waiters[1].waits();
        assert_eq!(server.holders("k"), ["b"], "{free}");
        // Two hand-overs in one transaction.
        let replies = transaction(&mut client, &["DLOCK.RELEASE k b", "DLOCK.RELEASE k c", "DLOCK.ACQUIRE k a"]);
        assert_eq!(replies[..2], [Value::Int(1), Value::Int(1)], "{free}");
        waiters[1].granted();
        assert_eq!(server.holders("k"), ["a"], "{free}");
        client.ok("FLUSHALL");
    }
}

#[test]
fn a_release_in_a_script_or_function_hands_over_at_once() {
    let (server, mut client) = Server::start().with_client();
    let body = "redis.call('DLOCK.RELEASE', keys[1], 'a')
        return {redis.call('DLOCK.ACQUIRE', keys[1], 'a'), redis.call('DLOCK.RLOCK', keys[1], 'a', 'BLOCK', 0)}";
    let library = format!("#!lua name=lib\nredis.register_function('pass', function(keys, args) {body} end)");
    client.run(req!["FUNCTION", "LOAD", library]);
    let script = body.replace("keys", "KEYS");
    for call in [req!["EVAL", script, 1, "k"], req!["FCALL", "pass", 1, "k"]] {
        client.int("DLOCK.ACQUIRE k a");
        let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
        let reply = client.run(&call);
        assert_eq!(list_of(&reply), [Value::Nil, Value::Nil]);
        waiter.granted();
        assert_eq!(server.holders("k"), ["b"]);
        client.int("DLOCK.RELEASE k b");
    }
}

#[test]
fn the_reply_to_the_waiter_goes_out_when_the_transaction_is_done() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    // The transaction's commands after the hand-over are done when the waiter is told.
    transaction(&mut client, &["DLOCK.RELEASE k a", "SET x done"]);
    waiter.granted();
    assert_eq!(waiter.text("GET x"), "done");
}

#[test]
fn block_in_a_transaction_or_script_only_tries() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE held a");
    let replies = transaction(
        &mut client,
        &[
            "DLOCK.ACQUIRE free b BLOCK 0",
            "DLOCK.ACQUIRE held b BLOCK 0",
            "DLOCK.RLOCK held b BLOCK 100",
            "DLOCK.ACQUIRE held a BLOCK 0",
            "DLOCK.ACQUIRE star * BLOCK 0",
            "DLOCK.ACQUIRE held * BLOCK 0",
        ],
    );
    assert!(matches!(replies[0], Value::Int(_)), "{replies:?}");
    assert_eq!(replies[1..4], [Value::Nil, Value::Nil, Value::Nil]);
    let star = list_of(&replies[4]);
    assert!(star.len() == 2 && bytes_of(&star[0]).len() == 36, "{star:?}");
    assert_eq!(replies[5], Value::Nil);
    let script = "return redis.call('DLOCK.ACQUIRE', KEYS[1], ARGV[1], 'BLOCK', 0)";
    assert_eq!(client.run(req!["EVAL", script, 1, "held", "b"]), Value::Nil);
    assert_eq!(client.run(req!["EVAL", script, 1, "held", "a"]), Value::Nil);
    client.int(req!["EVAL", script, 1, "by-script", "b"]);
    assert_eq!(["waits", "deadlocks"].map(|name| counter(&mut client, name)), [0, 0]);
    assert_eq!(counter(&mut client, "refusals"), 6);
}

#[test]
fn a_transaction_is_refused_rather_than_pass_a_waiter() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a");
    let mut waiter = server.waiter("DLOCK.WLOCK k w BLOCK 0");
    let replies = transaction(&mut client, &["DLOCK.RLOCK k b", "DLOCK.RLOCK k a", "DLOCK.WLOCK k b"]);
    assert!(matches!(replies[..], [Value::Nil, Value::Int(_), Value::Nil]), "{replies:?}");
    client.int("DLOCK.RELEASE k a ALL");
    waiter.granted();
}
