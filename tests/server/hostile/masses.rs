//! A hundred thousand commands at once.

use redis::Value;

use crate::support::client::Request;
use crate::support::{Client, Server, int_of, list_of, lock_info};

const PAIRS: usize = 50_000;
const KEYS: usize = 7;

/// Pairs of acquisition and release.
fn pairs() -> Vec<u8> {
    let pair = |n: usize| {
        let key = n % KEYS;
        [format!("DLOCK.ACQUIRE k{key} a{n} PX 60000"), format!("DLOCK.RELEASE k{key} a{n}")]
            .map(|words| words.packed())
    };
    (0..PAIRS).flat_map(pair).flatten().collect()
}

#[track_caller]
fn are_answers_to_pairs(mut next: impl FnMut() -> Value) {
    let mut last = 0;
    for _ in 0..PAIRS {
        let token = int_of(&next());
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(next(), Value::Int(1));
    }
}

#[test]
fn a_hundred_thousand_commands_in_a_pipeline_are_answered_in_order() {
    let (_server, mut client) = Server::start().with_client();
    client.send_raw(&pairs());
    are_answers_to_pairs(|| client.read().expect("no error"));
    assert_eq!(client.int("DBSIZE"), 0);
}

#[test]
fn a_hundred_thousand_commands_in_a_transaction_are_answered_in_order() {
    let (_server, mut client) = Server::conf("appendonly yes\nappendfsync no").with_client();
    client.send_raw(&["MULTI".packed(), pairs(), "EXEC".packed()].concat());
    client.read().expect("OK");
    (0..2 * PAIRS).for_each(|_| drop(client.read().expect("QUEUED")));
    let mut answers = list_of(&client.read().expect("an array")).into_iter();
    are_answers_to_pairs(|| answers.next().expect("an answer to each"));
    assert_eq!(client.int("DBSIZE"), 0);
}

/// Sends a command that waits, and pairs behind it.
fn waits_with_a_pipeline(server: &Server) -> Client {
    let mut client = server.waiter("DLOCK.ACQUIRE k b PX 600000 BLOCK 0");
    client.send_raw(&pairs());
    client.send("SET after it");
    client
}

#[test]
fn a_hundred_thousand_commands_behind_one_that_waits_wait_too() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let mut waiter = waits_with_a_pipeline(&server);
    let gone = waits_with_a_pipeline(&server);
    assert_eq!(lock_info(&mut client, "k").unwrap().waiters, 2);
    drop(gone);
    server.left_waiting(1);
    assert_eq!(client.int("EXISTS after"), 0);
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    waiter.granted();
    are_answers_to_pairs(|| waiter.read().expect("no error"));
    assert_eq!(waiter.read(), Ok(Value::Okay));
    assert_eq!(client.int("DLOCK.RELEASE k b"), 1);
}
