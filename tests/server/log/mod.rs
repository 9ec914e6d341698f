//! `DLOCK.LOG`: what is logged, when, and how it is shown.

mod breaks;
pub mod shown;

use redis::Value;

use crate::support::{Client, Server, req, soon};
use shown::{Entry, events, last, log};

/// A server that logs every wait and every hold, and a client.
fn talkative() -> (Server, Client) {
    Server::conf("dlock.log-wait 0\ndlock.log-hold 0").with_client()
}

#[test]
fn a_long_wait_is_logged_with_its_client() {
    let (server, mut client) = Server::conf("dlock.log-wait 50").with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = server.client();
    waiter.ok("CLIENT SETNAME worker");
    let id = waiter.id();
    let begin = client.now();
    server.enters_queue(&mut waiter, "DLOCK.WLOCK k b BLOCK 0");
    client.pass_ms(80);
    client.int("DLOCK.RELEASE k a");
    let token = waiter.granted();
    let entry = last(&mut client, "wait");
    let spent = client.now() - begin;
    assert_eq!(entry.texts(["key", "owner", "mode", "name"]), ["k", "b", "exclusive", "worker"]);
    assert_eq!([entry.int("db"), entry.int("token"), entry.int("client")], [0, token, id]);
    assert!((50..=spent).contains(&entry.int("waited")), "{entry:?}");
    assert!((begin..=begin + spent).contains(&entry.int("time")), "{entry:?}");
    assert_eq!(entry.field("held"), &Value::Nil);
    let listed = client.text(format!("CLIENT LIST ID {id}"));
    assert!(listed.contains(&format!(" addr={} ", entry.text("addr"))), "{entry:?}: {listed}");
    assert_eq!(log(&mut client).len(), 1);
}

#[test]
fn a_short_wait_and_a_grant_at_once_are_not_logged() {
    let (server, mut client) = Server::conf("dlock.log-wait 3600000").with_client();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    client.int("DLOCK.RELEASE k a");
    waiter.granted();
    client.int("DLOCK.RELEASE k b");
    client.ok("CONFIG SET dlock.log-wait 0");
    client.int("DLOCK.ACQUIRE k a");
    assert_eq!(log(&mut client), []);
}

#[test]
fn a_wait_that_ends_with_nil_is_a_timeout() {
    let (server, mut client) = Server::conf("dlock.log-wait 3600000").with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let mut short = server.waiter("DLOCK.ACQUIRE k b BLOCK 10");
    short.gives_up();
    assert_eq!(log(&mut client), []);
    client.ok("CONFIG SET dlock.log-wait 40");
    let mut waiter = server.client();
    let id = waiter.id();
    server.enters_queue(&mut waiter, "DLOCK.RLOCK k b BLOCK 40");
    waiter.gives_up();
    let entry = last(&mut client, "timeout");
    assert_eq!(entry.texts(["key", "owner", "mode"]), ["k", "b", "shared"]);
    assert!(entry.int("waited") >= 40, "{entry:?}");
    assert_eq!((entry.int("client"), entry.field("token"), entry.field("held")), (id, &Value::Nil, &Value::Nil));
    server.enters_queue(&mut waiter, "DLOCK.RLOCK k c BLOCK 0");
    client.pass_ms(60);
    assert_eq!(client.int(format!("CLIENT UNBLOCK {id}")), 1);
    waiter.gives_up();
    assert_eq!(last(&mut client, "timeout").text("owner"), "c");
    // An error is no nil, and a client that is gone got nothing.
    for end in [format!("CLIENT UNBLOCK {id} ERROR"), format!("CLIENT KILL ID {id}")] {
        server.enters_queue(&mut waiter, "DLOCK.RLOCK k d BLOCK 0");
        client.pass_ms(60);
        client.int(&end);
        server.left_waiting(0);
        if end.ends_with("ERROR") {
            assert!(waiter.fails().starts_with("UNBLOCKED "));
        }
    }
    assert_eq!(events(&mut client), ["timeout", "timeout"]);
}

#[test]
fn an_absolute_lease_that_passes_while_one_waits_is_a_timeout() {
    let (server, mut client) = talkative();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let end = client.now() + 500;
    let mut waiter = server.waiter(format!("DLOCK.ACQUIRE k b PXAT {end} BLOCK 0"));
    client.pass(end);
    client.int("DLOCK.RELEASE k a");
    waiter.gives_up();
    assert_eq!(last(&mut client, "timeout").text("owner"), "b");
}

#[test]
fn waits_are_not_logged_with_minus_one() {
    let (server, mut client) = Server::conf("dlock.log-wait -1").with_client();
    client.int("DLOCK.ACQUIRE k a");
    server.waiter("DLOCK.ACQUIRE k b BLOCK 10").gives_up();
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    client.int("DLOCK.RELEASE k a");
    waiter.granted();
    assert_eq!(log(&mut client), []);
}

#[test]
fn a_long_hold_is_logged_when_it_is_released_in_full() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.RELEASE k a");
    assert_eq!(log(&mut client), [], "off at first");
    client.ok("CONFIG SET dlock.log-hold 600000");
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.RELEASE k a");
    assert_eq!(log(&mut client), [], "it was short");
    client.ok("CONFIG SET dlock.log-hold 30");
    let begin = client.now();
    let token = client.int("DLOCK.RACQUIRE k a");
    client.int("DLOCK.RACQUIRE k a");
    client.pass(token / 1000 + 50);
    assert_eq!(client.int("DLOCK.RELEASE k a"), 0);
    assert_eq!(log(&mut client), [], "it is still held");
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    let entry = last(&mut client, "hold");
    assert_eq!(entry.texts(["key", "owner", "mode"]), ["k", "a", "exclusive"]);
    assert_eq!([entry.int("token"), entry.int("client")], [token, client.id()]);
    assert!((50..=client.now() - begin).contains(&entry.int("held")), "{entry:?}");
    assert_eq!(entry.field("waited"), &Value::Nil);
    client.ok("CONFIG SET dlock.log-hold 0");
    client.int("DLOCK.WLOCK k a");
    client.int("DLOCK.RLOCK k a");
    assert_eq!(client.int("DLOCK.RELEASE k a ALL"), 1);
    assert_eq!(log(&mut client).len(), 3, "one for each mode");
}

#[test]
fn a_release_in_a_script_or_a_transaction_is_logged_without_a_client() {
    let (_server, mut client) = talkative();
    let script = "redis.call('DLOCK.ACQUIRE', KEYS[1], 'o'); return redis.call('DLOCK.RELEASE', KEYS[1], 'o')";
    let library = "#!lua name=locks\nredis.register_function('once', function(keys) \
        redis.call('DLOCK.ACQUIRE', keys[1], 'o'); return redis.call('DLOCK.RELEASE', keys[1], 'o') end)";
    client.text(req!["FUNCTION", "LOAD", library]);
    assert_eq!(client.int(req!["EVAL", script, 1, "eval"]), 1);
    assert_eq!(client.int(req!["FCALL", "once", 1, "fcall"]), 1);
    client.ok("MULTI");
    client.run(req!["EVAL", script, 1, "exec-eval"]);
    client.run(req!["FCALL", "once", 1, "exec-fcall"]);
    client.run("DLOCK.ACQUIRE exec o");
    client.run("DLOCK.RELEASE exec o");
    client.run("EXEC");
    let logged = log(&mut client);
    let keys: Vec<String> = logged.iter().map(|entry| entry.text("key")).collect();
    assert_eq!(keys, ["exec", "exec-fcall", "exec-eval", "fcall", "eval"]);
    for entry in &logged {
        assert_eq!(["client", "addr", "name"].map(|field| entry.field(field)), [&Value::Nil; 3], "{entry:?}");
    }
}

#[test]
fn held_is_never_below_zero() {
    let (_server, mut client) = talkative();
    let ahead = client.now_us() + 9_000_000;
    client.int("DLOCK.ACQUIRE k a");
    client.int(format!("DLOCK.RENEW k a MINTOKEN {ahead}"));
    client.int("DLOCK.RELEASE k a");
    let entry = last(&mut client, "hold");
    assert_eq!([entry.int("token"), entry.int("held")], [ahead, 0]);
}

#[test]
fn a_lease_that_ran_out_is_logged_whoever_notices() {
    let (server, mut client) = Server::start().with_client();
    // The server notices, and removes the key.
    let token = client.int("DLOCK.RLOCK idle a PX 60");
    soon("the key is gone", || client.int("DBSIZE") == 0);
    let entry = last(&mut client, "lapse");
    assert_eq!(entry.texts(["key", "owner", "mode"]), ["idle", "a", "shared"]);
    assert_eq!([entry.int("token"), entry.int("held")], [token, 60]);
    assert_eq!((entry.field("waited"), entry.field("client")), (&Value::Nil, &Value::Nil));
    assert_eq!((entry.field("addr"), entry.field("name")), (&Value::Nil, &Value::Nil));
    // A waiter's timer notices. The wait itself is too short to be logged.
    client.int("DLOCK.ACQUIRE waited b PX 700");
    server.waiter("DLOCK.ACQUIRE waited c BLOCK 0 PX 600000").granted();
    assert_eq!(last(&mut client, "lapse").text("owner"), "b");
    // The next command on a lock that others hold notices.
    client.int("DLOCK.RLOCK k d PX 600000");
    client.int("DLOCK.RLOCK k e PX 20");
    client.pass_ms(20);
    client.int("DLOCK.RLOCK k f PX 600000");
    assert_eq!(last(&mut client, "lapse").text("owner"), "e");
    // The next command on a key that had expired notices.
    client.int("DLOCK.ACQUIRE short g PX 5");
    client.outlive("short");
    client.int("DLOCK.ACQUIRE short h PX 600000");
    assert_eq!(last(&mut client, "lapse").text("owner"), "g");
    assert_eq!(events(&mut client), ["lapse"; 4], "each once");
}

#[test]
fn the_end_of_a_session_is_logged_with_its_client() {
    for grace in [0, 600_000] {
        let (server, mut client) = talkative();
        client.ok(format!("CONFIG SET dlock.session-grace {grace}"));
        let mut session = server.client();
        session.ok("CLIENT SETNAME holder");
        let id = session.id();
        let token = session.int("DLOCK.ACQUIRE k a SESSION");
        session.int("DLOCK.RLOCK other a");
        client.watch_close(session);
        let entry = last(&mut client, "session-end");
        assert_eq!(entry.texts(["key", "owner", "mode", "name"]), ["k", "a", "exclusive", "holder"]);
        assert_eq!([entry.int("token"), entry.int("client")], [token, id]);
        assert!(entry.int("held") >= 0 && entry.text("addr").starts_with("127.0.0.1:"), "{entry:?}");
        assert_eq!(log(&mut client).len(), 1, "a session end is no hold");
    }
}

#[test]
fn a_key_that_goes_with_live_holds_is_a_delete() {
    let (_server, mut client) = Server::start().with_client();
    for act in [
        "DEL k",
        "UNLINK k",
        "SET k v",
        "PEXPIRE k -1",
        "PEXPIREAT k 1",
        "RENAME k other",
        "MOVE k 1",
        "EVAL return(redis.call('del','k')) 0",
    ] {
        client.ok("FLUSHALL");
        client.ok("DLOCK.LOG RESET");
        let token = client.int("DLOCK.ACQUIRE k a PX 600000");
        client.run(act);
        let entry = last(&mut client, "delete");
        assert_eq!(entry.texts(["key", "owner", "mode"]), ["k", "a", "exclusive"], "{act}");
        assert_eq!(entry.int("token"), token, "{act}");
        assert!(entry.int("held") >= 0, "{act}");
        assert_eq!(log(&mut client).len(), 1, "{act}");
    }
    // A key that expires before its lease is a delete, too, whoever notices.
    for notice in ["EXISTS k", "DLOCK.ACQUIRE k b", "DLOCK.INFO k"] {
        client.ok("FLUSHALL");
        client.ok("DLOCK.LOG RESET");
        client.int("DLOCK.ACQUIRE k a PX 600000");
        client.int("PEXPIRE k 5");
        client.pass_ms(10);
        client.run(notice);
        assert_eq!(events(&mut client), ["delete"], "{notice}");
    }
    // A lock that the module deletes itself is not lost.
    client.ok("DLOCK.LOG RESET");
    client.int("DLOCK.ACQUIRE mine a PX 600000");
    client.int("DLOCK.RELEASE mine a");
    assert_eq!(log(&mut client), []);
}

#[test]
fn an_evicted_or_migrated_lock_is_a_delete() {
    let (server, target) = (Server::start(), Server::start());
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.run(format!("MIGRATE 127.0.0.1 {} k 0 5000", target.port()));
    assert_eq!(last(&mut client, "delete").text("key"), "k");
    assert_eq!(log(&mut target.client()), []);
    client.int("DLOCK.ACQUIRE evicted a PX 600000");
    client.ok("CONFIG SET maxmemory-policy allkeys-random");
    client.ok("CONFIG SET maxmemory 1");
    let _ = client.attempt("SET x y");
    assert_eq!(last(&mut client, "delete").text("key"), "evicted");
}

#[test]
fn a_flush_that_removes_a_lock_is_one_entry() {
    let (_server, mut client) = Server::start().with_client();
    client.ok("SET string v");
    for flush in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "FLUSHDB ASYNC"] {
        client.ok("DLOCK.LOG RESET");
        client.ok(flush);
        assert_eq!(log(&mut client), [], "{flush}: there was no lock");
        client.ok("SET string v");
        for n in 0..20 {
            client.int(format!("DLOCK.ACQUIRE k{n} a PX 600000"));
        }
        client.ok("SELECT 1");
        client.ok("FLUSHDB");
        assert_eq!(log(&mut client), [], "no lock in that database");
        client.ok("SELECT 0");
        client.ok(flush);
        let entry = last(&mut client, "flush");
        assert_eq!(log(&mut client).len(), 1, "{flush}");
        let db = if flush.starts_with("FLUSHDB") { Value::Int(0) } else { Value::Nil };
        assert_eq!(*entry.field("db"), db, "{flush}");
        for name in ["key", "owner", "mode", "token", "waited", "held"] {
            assert_eq!(*entry.field(name), Value::Nil, "{flush}: {name}");
        }
    }
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.ok("SELECT 3");
    client.ok("FLUSHALL");
    assert_eq!(events(&mut client), ["flush", "flush"], "a lock in another database");
}

#[test]
fn a_flush_of_many_keys_without_a_lock_is_no_entry() {
    let (_server, [mut client, mut session]) = Server::start().with_clients();
    for flush in ["FLUSHDB", "FLUSHDB ASYNC"] {
        client.pour((0..30_000).map(|n| format!("SET string{n} v")));
        client.ok("SELECT 1");
        session.ok("SELECT 1");
        client.int("DLOCK.ACQUIRE elsewhere a PX 600000");
        session.int("DLOCK.ACQUIRE bound a PX 600000 SESSION");
        client.ok("SELECT 0");
        client.ok(flush);
        assert_eq!(log(&mut client), [], "{flush}: the locks are in another database");
        // A lock of a session is found among all these keys.
        session.ok("SELECT 0");
        client.pour((0..30_000).map(|n| format!("SET string{n} v")));
        session.int("DLOCK.ACQUIRE bound a PX 600000 SESSION");
        client.ok(flush);
        assert_eq!(events(&mut client), ["flush"], "{flush}");
        client.ok("FLUSHALL");
        client.ok("DLOCK.LOG RESET");
    }
}

#[test]
fn a_deadlock_is_logged() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.nil("DLOCK.ACQUIRE k a");
    assert_eq!(log(&mut client), []);
    client.error("DLOCK.ACQUIRE k a BLOCK 0");
    let entry = last(&mut client, "deadlock");
    assert_eq!(entry.texts(["key", "owner", "mode"]), ["k", "a", "exclusive"]);
    assert_eq!(entry.int("client"), client.id());
    assert_eq!((entry.field("token"), entry.field("held")), (&Value::Nil, &Value::Nil));
    // A cycle names the key that was asked for, and a request for several locks its first key.
    client.int("DLOCK.ACQUIRE other b");
    let _waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    client.error("DLOCK.ACQUIRE other a BLOCK 0");
    client.error("DLOCK.MACQUIRE 2 first k a BLOCK 0");
    let keys: Vec<_> = log(&mut client).iter().map(|entry| entry.text("key")).collect();
    assert_eq!(keys, ["first", "other", "k"]);
}

#[test]
fn a_request_for_several_locks_is_logged_under_the_first() {
    let (server, mut client) = talkative();
    client.int("DLOCK.ACQUIRE b x");
    let mut waiter = server.waiter("DLOCK.MACQUIRE 3 c b a y BLOCK 0");
    client.int("DLOCK.RELEASE b x");
    let token = waiter.granted();
    let entry = last(&mut client, "wait");
    assert_eq!((entry.text("key"), entry.int("token")), ("c".to_owned(), token));
    server.waiter("DLOCK.MACQUIRE 2 d a z BLOCK 20").gives_up();
    assert_eq!(last(&mut client, "timeout").text("key"), "d");
    assert_eq!(events(&mut client), ["timeout", "wait", "hold"]);
}

#[test]
fn one_cause_logs_at_most_sixteen_entries() {
    let (server, mut client) = Server::start().with_client();
    let readers = |lease: &str| (0..1000).map(|n| format!("DLOCK.RLOCK k r{n} {lease}")).collect::<Vec<_>>();
    client.pipeline(&readers("PX 600000")).into_iter().for_each(|reply| drop(reply.unwrap()));
    client.int("DEL k");
    assert_eq!(events(&mut client), ["delete"; 16]);
    client.ok("DLOCK.LOG RESET");
    let end = client.now() + 2000;
    client.pipeline(&readers(&format!("PXAT {end}"))).into_iter().for_each(|reply| drop(reply.unwrap()));
    client.pass(end);
    client.int("DLOCK.WLOCK k w PX 600000");
    assert_eq!(events(&mut client), ["lapse"; 16]);
    client.ok("DLOCK.LOG RESET");
    for keys in ["one lock", "many locks"] {
        let mut session = server.client();
        let all = (0..300).map(|n| match keys {
            "one lock" => format!("DLOCK.RLOCK s r{n} SESSION"),
            _ => format!("DLOCK.RLOCK s{n} r SESSION"),
        });
        session.pipeline(&all.collect::<Vec<_>>()).into_iter().for_each(|reply| drop(reply.unwrap()));
        client.watch_close(session);
        assert_eq!(events(&mut client), ["session-end"; 16], "{keys}");
        client.ok("DLOCK.LOG RESET");
    }
}

#[test]
fn names_are_cut_at_128_bytes() {
    let (server, mut client) = talkative();
    let (owner, key, name) = ("o".repeat(1024), "k".repeat(5000), "n".repeat(300));
    client.int(req!["DLOCK.ACQUIRE", &key, "first"]);
    let mut waiter = server.client();
    waiter.ok(req!["CLIENT", "SETNAME", &name]);
    server.enters_queue(&mut waiter, req!["DLOCK.ACQUIRE", &key, &owner, "BLOCK", 0]);
    client.int(req!["DLOCK.RELEASE", &key, "first"]);
    waiter.granted();
    let entry = last(&mut client, "wait");
    let cut = |text: &str| text[..128].to_owned();
    assert_eq!(entry.texts(["key", "owner", "name"]), [cut(&key), cut(&owner), cut(&name)]);
}

#[test]
fn only_a_primary_logs() {
    let (primary, replica) = Server::conf("dlock.log-hold 0").with_replica();
    let (mut client, mut copy) = (primary.client(), replica.client());
    copy.ok("CONFIG SET dlock.log-hold 0");
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.int("DLOCK.RELEASE k a");
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.int("DEL k");
    client.int("DLOCK.ACQUIRE k a PX 50");
    soon("it lapses", || client.int("EXISTS k") == 0);
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.ok("FLUSHALL");
    replica.wait_synced(&primary);
    assert_eq!(events(&mut client), ["flush", "lapse", "delete", "hold"]);
    assert_eq!(copy.int("DLOCK.LOG LEN"), 0);
    assert_eq!(log(&mut copy), []);
    copy.ok("DLOCK.LOG RESET");
    copy.run("DLOCK.LOG HELP");
    // A primary's log stays when it becomes a replica.
    primary.follow(&replica);
    assert_eq!(client.int("DLOCK.LOG LEN"), 4);
}

#[test]
fn the_log_can_be_read_while_the_server_loads() {
    let (server, mut client) = Server::conf(
        "enable-debug-command yes\nkey-load-delay 500\nloading-process-events-interval-bytes 1024\ndlock.log-hold 0",
    )
    .with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.RELEASE k a");
    let keys: Vec<_> = (0..1000).map(|n| req!["SET", format!("key{n}"), "x".repeat(200)]).collect();
    client.pipeline(&keys);
    let mut other = server.client();
    client.send("DEBUG RELOAD");
    soon("it loads", || other.attempt("GET k").is_err_and(|error| error.starts_with("LOADING")));
    assert_eq!(other.int("DLOCK.LOG LEN"), 1);
    assert_eq!(events(&mut other), ["hold"]);
    assert!(other.attempt("GET k").is_err(), "it still loads");
    client.read().unwrap();
}

/// A client cannot fill the memory, however much it makes the server log.
#[test]
fn a_flood_of_long_names_takes_no_more_memory_than_the_log_may() {
    let (server, mut client) = talkative();
    let memory = |client: &mut Client| {
        crate::support::replica::info_field(client, "memory", "used_memory").unwrap().parse::<i64>().unwrap()
    };
    let mut attacker = server.client();
    let owner = "o".repeat(1024);
    attacker.int(req!["DLOCK.ACQUIRE", "held", &owner, "PX", 600_000]);
    let deadlock = req!["DLOCK.ACQUIRE", "held", &owner, "BLOCK", 0];
    let key = "k".repeat(2000);
    let pair = [req!["DLOCK.ACQUIRE", &key, &owner], req!["DLOCK.RELEASE", &key, &owner]];
    let round: Vec<_> = (0..200).flat_map(|_| [deadlock.clone(), pair[0].clone(), pair[1].clone()]).collect();
    attacker.pipeline(&round);
    let before = memory(&mut client);
    for _ in 0..20 {
        attacker.pipeline(&round);
    }
    let grown = memory(&mut client) - before;
    assert_eq!(client.int("DLOCK.LOG LEN"), 128);
    assert!(grown < 1_000_000, "{grown} bytes more");
    assert_eq!(log(&mut client)[0].int("id"), 21 * 400 - 1, "each was logged");
}

#[test]
fn an_entry_shows_its_fields_in_order() {
    let (server, mut client) = talkative();
    client.int("DLOCK.ACQUIRE k a");
    client.int("DLOCK.RELEASE k a");
    let fields = "id time event db key owner mode token waited held client addr name session";
    let flat = crate::support::list_of(&client.run("DLOCK.LOG GET"));
    assert!(matches!(&flat[..], [Value::Array(items)] if items.len() == 28), "{flat:?}");
    let mut three = server.client().resp3();
    let maps = crate::support::list_of(&three.run("DLOCK.LOG GET"));
    assert!(matches!(&maps[..], [Value::Map(pairs)] if pairs.len() == 14), "{maps:?}");
    for entry in [&flat[0], &maps[0]].map(Entry::of) {
        assert_eq!(entry.names().join(" "), fields);
        assert_eq!(entry.field("waited"), &Value::Nil);
    }
}
