//! A key of another type in the place of a lock: those who wait are told, and it is left as it is.

use crate::support::replica::counter;
use crate::support::{Server, req};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn another_type_over_the_key_sends_everybody_away() {
    let (server, mut client) = Server::start().with_client();
    client.run("RPUSH list 2 1");
    client.run("SADD set m");
    client.ok("SET string v");
    let dump = client.bytes("DUMP string");
    for act in [
        req!["SET", "k", "v"],
        req!["SETEX", "k", 1000, "v"],
        req!["MSET", "x", "1", "k", "v"],
        req!["RENAME", "string", "k"],
        req!["COPY", "set", "k", "REPLACE"],
        req!["RESTORE", "k", 0, &dump, "REPLACE"],
        req!["SORT", "list", "STORE", "k"],
        req!["SUNIONSTORE", "k", "set"],
        req!["EVAL", "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'v')", 1, "k"],
    ] {
        let what = String::from_utf8_lossy(&act.get_packed_command()).replace("\r\n", " ");
        client.int("DLOCK.ACQUIRE k a");
        let requests = ["ACQUIRE k b BLOCK 0", "RLOCK k c BLOCK 100000", "WLOCK k * BLOCK 0"];
        let mut waiters = server.waiters(requests.map(|request| format!("DLOCK.{request}")));
        client.run(&act);
        for waiter in &mut waiters {
            assert_eq!(waiter.fails(), WRONG_TYPE, "{what}");
        }
        assert_eq!(counter(&mut client, "waiters"), 0, "{what}");
        assert_eq!(client.int("EXISTS k"), 1, "{what}");
        assert_ne!(client.text("TYPE k"), "distrlock", "{what}");
        // The clients can wait again, for a lock.
        client.int("DEL k");
        client.int("DLOCK.ACQUIRE k a");
        let again = waiters.last_mut().unwrap();
        server.enters_queue(again, "DLOCK.ACQUIRE k c BLOCK 0");
        client.int("DLOCK.RELEASE k a");
        again.granted();
        client.int("DEL k");
        client.ok("SET string v");
    }
}

#[test]
fn a_key_overwritten_and_deleted_in_one_transaction_is_a_free_lock() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    // The queue sees only the result of the transaction.
    for request in ["MULTI", "SET k v", "DEL k", "EXEC"] {
        client.send(request);
    }
    waiter.granted();
    assert_eq!(server.holders("k"), ["b"]);
}
