//! The commands of Redis beside locks, and the errors for all that are not offered.

use dlock_testkit::redis::Value;
use dlock_testkit::{Client, int_of, text_of};

use crate::process::{serve, waiting, with_clients};

#[test]
fn commands_that_are_not_offered_get_an_error_that_says_why() {
    let (_server, [mut client]) = with_clients();
    for (command, why) in [
        ("SET a b", "locks only"),
        ("GET a", "locks only"),
        ("EVAL x 0", "no scripts"),
        ("SAVE", "memory only"),
        ("REPLICAOF NO ONE", "memory only"),
        ("CLUSTER INFO", "no cluster"),
        ("PEXPIRE a 5", "by the commands of dlock"),
        ("CLIENT PAUSE 5", "does not offer"),
        ("ACL LIST", "one user"),
        ("CONFIG REWRITE", "does not offer"),
        ("DLOCK.APPLY a b", "unknown command"),
    ] {
        let error = client.error(command);
        assert!(error.starts_with("ERR ") && error.contains(why), "{command}: {error}");
    }
}

#[test]
fn keyspace_events_are_published() {
    let (server, [mut client, mut other]) = with_clients();
    let mut hears = server.client().resp3();
    hears.send("PSUBSCRIBE __keyspace@0__:*");
    assert!(hears.push(dlock_testkit::wait::PATIENCE).is_some(), "the subscription is confirmed");
    other.int("DLOCK.ACQUIRE job a PX 60000");
    client.send("DLOCK.ACQUIRE job b PX 60000 BLOCK 0");
    waiting(&server, 1);
    other.int("DEL job");
    assert!(matches!(client.read().unwrap(), Value::Int(_)));
    client.int("DLOCK.RELEASE job b");
    let mut heard = Vec::new();
    dlock_testkit::soon("all is heard", || {
        heard.extend(hears.pushes().iter().filter_map(event_of));
        heard.len() >= 5
    });
    assert_eq!(heard, ["dlock.acquire", "dlock.wait", "del", "dlock.acquire", "dlock.release"]);
}

fn event_of(push: &Value) -> Option<String> {
    match push {
        Value::Push { data, .. } => data.last().filter(|last| matches!(last, Value::BulkString(_))).map(text_of),
        _ => None,
    }
}

#[test]
fn a_subscriber_with_resp2_may_send_nothing_else() {
    let (_server, [mut client]) = with_clients();
    client.run("SUBSCRIBE a");
    assert!(client.error("DLOCK.ACQUIRE job a").contains("in this context"));
    client.run("UNSUBSCRIBE a");
    client.int("DLOCK.ACQUIRE job a");
}

#[test]
fn sessions_end_with_their_connections() {
    let (server, [mut client, mut other]) = with_clients();
    client.int("DLOCK.ACQUIRE job a PX 60000 SESSION");
    let id = client.int("CLIENT ID");
    other.send("DLOCK.ACQUIRE job b PX 60000 BLOCK 0");
    waiting(&server, 1);
    assert_eq!(server.client().int(format!("CLIENT KILL ID {id}")), 1);
    assert!(matches!(other.read().unwrap(), Value::Int(_)));
    drop(other);
    let mut last = server.client();
    last.send("DLOCK.ACQUIRE job c PX 60000 SESSION BLOCK 0");
    assert_eq!(server.client().int("DEL job"), 1);
    assert!(matches!(last.read().unwrap(), Value::Int(_)));
    last.hang_up();
    dlock_testkit::soon("the lock is free", || server.client().int("EXISTS job") == 0);
}

#[test]
fn waiters_leave_with_their_connections_and_by_unblock() {
    let (server, [mut client, mut first, mut second]) = with_clients();
    client.int("DLOCK.ACQUIRE job a PX 60000");
    let id = first.int("CLIENT ID");
    first.send("DLOCK.ACQUIRE job b BLOCK 0");
    second.send("DLOCK.ACQUIRE job c BLOCK 0");
    waiting(&server, 2);
    assert_eq!(client.int(format!("CLIENT UNBLOCK {id}")), 1);
    assert_eq!(first.read().unwrap(), Value::Nil);
    second.hang_up();
    waiting(&server, 0);
    first.send("DLOCK.ACQUIRE job b BLOCK 0");
    waiting(&server, 1);
    assert_eq!(client.int(format!("CLIENT UNBLOCK {id} ERROR")), 1);
    assert!(first.read().unwrap_err().starts_with("UNBLOCKED"));
    assert_eq!(first.run("PING"), Value::SimpleString("PONG".to_owned()));
}

#[test]
fn requests_behind_a_wait_are_answered_after_it() {
    let (server, [mut client, mut other]) = with_clients();
    client.int("DLOCK.ACQUIRE job a PX 60000");
    other.send_all(&["DLOCK.ACQUIRE job b BLOCK 0", "PING"]);
    waiting(&server, 1);
    client.int("DLOCK.RELEASE job a");
    assert!(matches!(other.read().unwrap(), Value::Int(_)));
    assert_eq!(other.read().unwrap(), Value::SimpleString("PONG".to_owned()));
}

#[test]
fn expired_locks_are_removed_by_themselves_and_logged() {
    let (_server, [mut client]) = with_clients();
    client.int("DLOCK.ACQUIRE job a PX 10");
    dlock_testkit::soon("it is gone", || int_of(&client.run("DBSIZE")) == 0);
    let lapses = |client: &mut Client| client.text("INFO dlock").contains("dlock_lapses:1\r\n");
    assert!(lapses(&mut client) && client.int("DLOCK.LOG LEN") == 1);
}

#[test]
fn scan_finds_all_locks() {
    let (_server, [mut client]) = with_clients();
    for number in 0..1000 {
        client.int(format!("DLOCK.ACQUIRE lock:{number} a PX 60000"));
    }
    client.ok("SELECT 1");
    client.int("DLOCK.ACQUIRE other a PX 60000");
    client.ok("SELECT 0");
    let (mut cursor, mut found) = ("0".to_owned(), std::collections::BTreeSet::new());
    loop {
        let reply = client.run(format!("SCAN {cursor} MATCH lock:* COUNT 7"));
        let Value::Array(parts) = reply else { panic!("{reply:?}") };
        cursor = text_of(&parts[0]);
        found.extend(dlock_testkit::list_of(&parts[1]).iter().map(text_of));
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 1000);
}

#[test]
fn a_password_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let server = serve(&["--user", "me", "--password-file", file.to_str().unwrap()]);
    let mut client = server.client();
    for command in ["PING", "DLOCK.ACQUIRE job a", "HELLO 3"] {
        assert!(client.error(command).starts_with("NOAUTH"), "{command}");
    }
    assert!(client.error("AUTH me wrong").starts_with("WRONGPASS"));
    assert!(client.error("AUTH secret").starts_with("WRONGPASS"));
    client.ok("AUTH me secret");
    client.int("DLOCK.ACQUIRE job a");
    assert_eq!(client.text("ACL WHOAMI"), "me");
}

#[test]
fn what_client_and_command_do_not_know_is_an_error() {
    let (_server, [mut client]) = with_clients();
    for (command, error) in [
        ("CLIENT HELLO", "ERR unknown subcommand 'HELLO'"),
        ("COMMAND HELLO", "ERR unknown subcommand 'HELLO'"),
        ("CLIENT LIST TYPE wrong", "ERR Unknown client type 'wrong'"),
        ("CLIENT KILL TYPE wrong", "ERR Unknown client type 'wrong'"),
        ("CLIENT KILL ID 1000 SKIPME perhaps", "ERR syntax error"),
        ("CLIENT NO-EVICT perhaps", "ERR syntax error"),
        ("CLIENT UNBLOCK 7 perhaps", "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
    ] {
        assert_eq!(client.error(command), error, "{command}");
    }
    assert_eq!(client.text("CLIENT LIST TYPE replica"), "");
    assert_eq!(client.int("CLIENT KILL ID 1000 SKIPME no"), 0);
    assert_eq!(client.int("CLIENT UNBLOCK -1"), 0);
    assert_eq!(client.error(["CLIENT", "UNBLOCK", "7", ""]), "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    let long = "x".repeat(257);
    assert_eq!(client.error(["CLIENT", "SETINFO", "LIB-NAME", &long]), "ERR lib-name must have 256 bytes at most");
}

#[test]
fn tools_find_commands_docs_and_clients() {
    let (_server, [mut client]) = with_clients();
    let count = client.int("COMMAND COUNT");
    let Value::Array(all) = client.run("COMMAND") else { panic!("no list") };
    assert_eq!(all.len() as i64, count);
    let Value::Array(docs) = client.run("COMMAND DOCS dlock.acquire nothing") else { panic!("no list") };
    assert_eq!(docs.len(), 2);
    let line = client.text("CLIENT LIST");
    for field in ["id=", "addr=127.0.0.1:", "name=", "user=default", "resp=2", "flags=N"] {
        assert!(line.contains(field), "{field} in {line}");
    }
}
