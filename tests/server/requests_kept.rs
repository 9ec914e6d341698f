//! The answer to a request is kept with the hold: over restarts, by replicas, and in dumps.

use crate::support::replica::counter;
use crate::support::story::story;
use crate::support::{Client, Server, Setup, lock_info, req};

const ACQUISITIONS: [&str; 4] = [
    "ACQUIRE one a PX 600000 REQUEST id-1",
    "RACQUIRE two a PX 600000 REQUEST id-2",
    "WLOCK three a PX 600000 REQUEST id-3",
    "RLOCK four a PX 600000 REQUEST id-4",
];
const RELEASE: &str = "RELEASE five a REQUEST id-5";

/// Sends every kind of request once. Returns the tokens.
#[track_caller]
fn send(client: &mut Client) -> Vec<i64> {
    let tokens = ACQUISITIONS.iter().map(|request| client.int(format!("DLOCK.{request}"))).collect();
    for _ in 0..3 {
        client.int("DLOCK.RACQUIRE five a PX 600000");
    }
    assert_eq!(client.int(format!("DLOCK.{RELEASE}")), 0);
    tokens
}

/// Sends the requests again, and checks that nothing is executed.
#[track_caller]
fn send_again(client: &mut Client, tokens: &[i64], what: &str) {
    let before = counter(client, "replays");
    for (request, token) in ACQUISITIONS.iter().zip(tokens) {
        assert_eq!(client.int(format!("DLOCK.{request}")), *token, "{what}: {request}");
        let key = request.split(' ').nth(1).expect("a key");
        assert_eq!(lock_info(client, key).unwrap().count, 1, "{what}: {request}");
    }
    assert_eq!(client.int(format!("DLOCK.{RELEASE}")), 0, "{what}");
    assert_eq!(lock_info(client, "five").unwrap().count, 2, "{what}");
    assert_eq!(counter(client, "replays"), before + 5, "{what}");
}

/// A way to keep data over a restart: its name, the configuration, and what to do before the crash.
type Way = (&'static str, Setup, fn(&Server));

#[test]
fn a_restart_keeps_what_was_answered() {
    let aof = |preamble: &str| Setup::new().conf("appendonly yes\nappendfsync always").conf(preamble);
    let rewrite: fn(&Server) = |server| {
        server.client().run("BGREWRITEAOF");
        server.wait_saved();
    };
    let ways: [Way; 4] = [
        ("RDB", Setup::new(), |server| server.client().ok("SAVE")),
        ("AOF", aof("aof-use-rdb-preamble yes"), |_| ()),
        ("AOF rewritten with an RDB preamble", aof("aof-use-rdb-preamble yes"), rewrite),
        ("AOF rewritten as commands", aof("aof-use-rdb-preamble no"), rewrite),
    ];
    for (way, setup, keep) in ways {
        let mut server = setup.start();
        let tokens = send(&mut server.client());
        keep(&server);
        server.crash();
        send_again(&mut server.client(), &tokens, way);
    }
}

#[test]
fn a_promoted_replica_gives_the_same_answers() {
    let (primary, replica) = Server::start().with_replica();
    let tokens = send(&mut primary.client());
    let late = primary.replica();
    replica.wait_synced(&primary);
    late.wait_synced(&primary);
    drop(primary);
    for (what, server) in [("replica", replica), ("replica by a full copy", late)] {
        server.promote();
        send_again(&mut server.client(), &tokens, what);
    }
}

#[test]
fn a_repeat_with_session_after_a_failover_binds_the_hold_to_its_connection() {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    let request = "DLOCK.ACQUIRE k a PX 600000 SESSION REQUEST id";
    let token = client.int(request);
    replica.wait_synced(&primary);
    drop(primary);
    replica.promote();
    let mut session = replica.client();
    assert_eq!(session.int(request), token);
    let (id, mut client) = (session.id(), replica.client());
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(id));
    client.watch_close(session);
    assert!(lock_info(&mut client, "k").is_none());
}

#[test]
fn a_replica_keeps_the_request_of_a_waiter_that_was_granted() {
    let (primary, replica) = Server::start().with_replica();
    let (mut client, mut waiter) = (primary.client(), primary.client());
    client.int("DLOCK.ACQUIRE k x PX 100");
    waiter.send("DLOCK.RACQUIRE k a PX 600000 BLOCK 0 REQUEST id");
    let redis::Value::Int(token) = waiter.read().unwrap() else { panic!("a token") };
    replica.wait_synced(&primary);
    drop(primary);
    replica.promote();
    let mut client = replica.client();
    assert_eq!(client.int("DLOCK.RACQUIRE k a BLOCK 0 REQUEST id"), token);
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 1);
}

#[test]
fn dumps_and_renames_carry_the_answer() {
    let (_server, mut client) = Server::start().with_client();
    let token = client.int("DLOCK.RACQUIRE k a PX 600000 REQUEST id");
    let (dump, end) = (client.bytes("DUMP k"), client.end_of("k"));
    client.int("DEL k");
    client.ok(req!["RESTORE", "k", end, &dump, "ABSTTL"]);
    client.ok("RENAME k l");
    client.int("MOVE l 1");
    client.ok("SWAPDB 0 1");
    assert_eq!(client.int("DLOCK.RACQUIRE l a REQUEST id"), token);
    assert_eq!(lock_info(&mut client, "l").unwrap().count, 1);
}

#[test]
fn repeats_are_not_replicated() {
    let (server, mut client) = Server::conf("appendonly yes\nappendfsync always").with_client();
    let tokens = send(&mut client);
    let appended = server.appended(|| send_again(&mut client, &tokens, "again"));
    assert_eq!(appended, Vec::<String>::new());
}

#[test]
fn transactions_and_scripts_repeat_too() {
    let (_server, mut client) = Server::start().with_client();
    let script = "return redis.call('DLOCK.RACQUIRE', KEYS[1], 'a', 'PX', '600000', 'REQUEST', ARGV[1])";
    let token = client.int(req!["EVAL", script, 1, "k", "id"]);
    assert_eq!(client.int(req!["EVAL", script, 1, "k", "id"]), token);
    client.ok("MULTI");
    client.text("DLOCK.RACQUIRE k a REQUEST id");
    client.text("DLOCK.RACQUIRE k a REQUEST id");
    assert_eq!(client.run("EXEC"), redis::Value::Array(vec![redis::Value::Int(token); 2]));
    story(&mut client, "INFO k -> count=1");
}
