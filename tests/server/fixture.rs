//! The fixture itself, on a server without the module.

use std::time::Duration;

use crate::support::client::Client;
use crate::support::{Setup, req, text_of};
use redis::Value;

fn plain() -> Setup {
    Setup::plain()
}

#[test]
fn a_server_starts_answers_restarts_and_dies() {
    let (mut server, mut client) = plain().conf("appendonly yes\nappendfsync always").start().with_client();
    client.ok("SET k v");
    server.crash();
    assert_eq!(server.client().text("GET k"), "v");
    server.restart();
    let mut client = server.client();
    assert_eq!(client.text("GET k"), "v");
    server.logged("Ready to accept connections");
    let port = server.port();
    drop(server);
    assert!(Client::connect(port).is_err());
}

#[test]
fn a_server_that_cannot_start_gives_its_log() {
    let log = plain().conf("no-such-setting 1").try_start().err().expect("refused");
    assert!(log.contains("no-such-setting"), "{log}");
}

#[test]
fn a_client_reads_values_errors_exact_bytes_and_pushes() {
    let (server, mut client) = plain().start().with_client();
    assert_eq!(client.exact("GET none"), b"$-1\r\n");
    assert_eq!(client.error("INCRBY k"), "ERR wrong number of arguments for 'incrby' command");
    client.ok(req!["SET", b"a\0\r\n\xff", 5]);
    assert_eq!(client.int([b"INCR".as_slice(), b"a\0\r\n\xff"]), 6);
    assert_eq!(client.run("MGET none").clone(), Value::Array(vec![Value::Nil]));
    let mut three = server.client().resp3();
    assert_eq!(three.exact("GET none"), b"_\r\n");
    three.ok("CLIENT TRACKING ON");
    three.nil("GET x");
    client.ok("SET x 1");
    let push = three.push(Duration::from_secs(5)).expect("an invalidation");
    assert!(format!("{push:?}").contains("Invalidate"), "{push:?}");
    assert_eq!(three.pushes(), []);
}

#[test]
fn a_client_waits_for_a_later_reply() {
    let (_server, [mut waiter, mut other]) = plain().start().with_clients();
    waiter.send("BLPOP list 0");
    assert_eq!(waiter.poll(Duration::from_millis(30)), None);
    other.run("RPUSH list x");
    assert!(waiter.read().is_ok());
    let t = other.now();
    other.pass(t + 20);
    assert!(other.now() > t + 20);
}

#[test]
fn replicas_follow() {
    let (primary, mut client) = plain().start().with_client();
    client.ok("SET k v");
    let replica = plain().replica_of(&primary);
    let last = plain().replica_of(&replica);
    client.ok("SET k w");
    replica.wait_synced(&primary);
    last.wait_synced(&replica);
    assert_eq!(last.client().text("GET k"), "w");
    replica.promote();
    assert_eq!(text_of(&replica.client().run("SET k x")), "OK");
}
