//! A hold is bound to one connection at most: the latest that said `SESSION`, until the hold is given up or moves.

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Client, Server, hold, list_of, lock_info, req, soon};

const LEASE: i64 = 600_000;

/// A server, a connection with a bound hold on `k` by `a`, and another client.
fn bound() -> (Server, Client, Client) {
    let (server, [mut session, client]) = Server::start().with_clients();
    session.int(format!("DLOCK.RACQUIRE k a PX {LEASE} SESSION"));
    (server, session, client)
}

#[test]
fn every_command_that_takes_session_binds() {
    let (_server, [mut session, mut client]) = Server::start().with_clients();
    let id = session.id();
    let mode_of = |command: &str| if matches!(command, "RLOCK" | "SACQUIRE") { "shared" } else { "exclusive" };
    let request = |command: &str, key: &str| match command {
        "SACQUIRE" => format!("DLOCK.SACQUIRE {key} a 3"),
        "MACQUIRE" => format!("DLOCK.MACQUIRE 1 {key} a"),
        _ => format!("DLOCK.{command} {key} a"),
    };
    for command in ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK", "SACQUIRE", "MACQUIRE"] {
        let mode = mode_of(command);
        session.int(format!("{} SESSION PX {LEASE}", request(command, command)));
        assert_eq!(client.session_of(command, "a", mode), Some(id), "{command}");
        client.int(request(command, &format!("renewed-{command}")));
        assert_eq!(client.session_of(&format!("renewed-{command}"), "a", mode), None);
        session.int(format!("DLOCK.RENEW renewed-{command} a session"));
        assert_eq!(client.session_of(&format!("renewed-{command}"), "a", mode), Some(id), "RENEW after {command}");
    }
    for command in ["RACQUIRE", "WLOCK", "RLOCK", "SACQUIRE"] {
        let key = format!("entered-{command}");
        client.int(request(command, &key));
        session.int(format!("{} SESSION", request(command, &key)));
        assert_eq!(client.session_of(&key, "a", mode_of(command)), Some(id), "re-entry by {command}");
    }
    let made_up = list_of(&session.run("DLOCK.ACQUIRE star * SESSION"));
    let holds = lock_info(&mut client, "star FULL").unwrap();
    assert_eq!((made_up.len(), &holds.holds()[0].session), (2, &Value::Int(id)));
    session.ok("MULTI");
    session.text("DLOCK.ACQUIRE transaction a SESSION");
    session.run("EXEC");
    assert_eq!(client.session_of("transaction", "a", "exclusive"), Some(id));
    assert_eq!(counter(&mut client, "sessions"), 18);
    client.watch_close(session);
    assert_eq!((client.int("DBSIZE"), counter(&mut client, "session_ends")), (0, 18));
}

#[test]
fn a_refused_request_binds_nothing() {
    let (server, session, mut client) = bound();
    let mut other = server.client();
    other.nil("DLOCK.ACQUIRE k b SESSION");
    other.nil("DLOCK.ACQUIRE k a SESSION");
    other.nil("DLOCK.RENEW k b SESSION");
    other.nil("DLOCK.RENEW k a READ SESSION");
    other.nil("DLOCK.RENEW none a SESSION");
    assert_eq!(counter(&mut client, "sessions"), 1);
    client.watch_close(other);
    assert!(lock_info(&mut client, "k").is_some());
    client.watch_close(session);
    assert!(lock_info(&mut client, "k").is_none());
}

#[test]
fn the_latest_connection_wins_and_no_two_are_bound() {
    let (server, mut first, mut client) = bound();
    let mut second = server.client();
    let [one, two] = [first.id(), second.id()];
    for (again, request) in [
        (false, "DLOCK.RENEW k a SESSION"),
        (true, "DLOCK.RACQUIRE k a SESSION"),
        (false, "DLOCK.RACQUIRE k a SESSION"),
        (true, "DLOCK.RENEW k a SESSION"),
        (false, "DLOCK.RENEW k a SESSION"),
    ] {
        let (binder, id) = if again { (&mut first, one) } else { (&mut second, two) };
        binder.int(request);
        assert_eq!(client.session_of("k", "a", "exclusive"), Some(id), "{request}");
        assert_eq!(counter(&mut client, "sessions"), 1, "{request}");
    }
    client.watch_close(first);
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(two));
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 3);
    client.watch_close(second);
    assert!(lock_info(&mut client, "k").is_none());
    assert_eq!(counter(&mut client, "session_ends"), 1);
}

#[test]
fn commands_without_session_leave_the_binding() {
    let (_server, mut session, mut client) = bound();
    let id = session.id();
    for request in [
        "DLOCK.RACQUIRE k a",
        "DLOCK.WLOCK k a PX 700000",
        "DLOCK.RENEW k a PX 800000",
        "DLOCK.RENEW k a",
        "DLOCK.RELEASE k a",
        "DLOCK.RLOCK k a",
        "DLOCK.RELEASE k a READ",
        "PEXPIRE k 500000",
        "PERSIST k",
    ] {
        client.int(request);
        assert_eq!(client.session_of("k", "a", "exclusive"), Some(id), "{request}");
    }
    // The same with a token that is lifted.
    let ahead = client.now_us() + 5_000_000;
    client.int(format!("DLOCK.RENEW k a MINTOKEN {ahead}"));
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(id));
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 2);
    client.watch_close(session);
    assert!(lock_info(&mut client, "k").is_none());
}

#[test]
fn a_full_release_unbinds() {
    for release in ["RELEASE k a", "RELEASE k a ALL", "RELEASE k a WRITE"] {
        let (_server, mut session, mut client) = bound();
        assert_eq!(session.int(format!("DLOCK.{release}")), 1);
        assert_eq!(counter(&mut client, "sessions"), 0, "{release}");
        client.int(format!("DLOCK.ACQUIRE k a PX {LEASE}"));
        assert_eq!(client.session_of("k", "a", "exclusive"), None, "{release}");
        client.watch_close(session);
        assert_eq!(client.session_of("k", "a", "exclusive"), None, "{release}");
        assert_eq!(counter(&mut client, "session_ends"), 0);
    }
}

#[test]
fn the_end_of_an_old_session_spares_the_owners_next_hold() {
    // The connection ends in the same turn in which its hold is released and taken again.
    let (server, mut session, mut client) = bound();
    let (mut other, id) = (server.client(), session.id());
    other.ok("MULTI");
    other.queued("DLOCK.RELEASE k a");
    other.queued(format!("CLIENT KILL ID {id}"));
    other.queued("DLOCK.ACQUIRE k a PX 600000");
    other.run("EXEC");
    client.outlive_client(id);
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
    // The same where the end comes first, but is not yet dealt with.
    let mut session = server.client();
    session.int("DLOCK.RENEW k a SESSION");
    let id = session.id();
    other.ok("MULTI");
    for request in [format!("CLIENT KILL ID {id}"), "DEL k".to_owned(), "DLOCK.ACQUIRE k a PX 600000".to_owned()] {
        other.queued(request);
    }
    other.run("EXEC");
    client.outlive_client(id);
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
    assert_eq!(counter(&mut client, "sessions"), 0);
}

#[test]
fn a_hold_is_bound_again_only_before_its_session_ends() {
    let (server, session, mut client) = bound();
    let mut other = server.client();
    assert_eq!(other.int("DLOCK.RENEW k a SESSION"), 1);
    client.watch_close(session);
    let new = other.id();
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(new));
    let [killed, renewed]: [_; 2] =
        client.pipeline(&[format!("CLIENT KILL ID {new}"), "DLOCK.RENEW k a SESSION".to_owned()]).try_into().unwrap();
    assert_eq!((killed, renewed), (Ok(Value::Int(1)), Ok(Value::Nil)));
    assert!(lock_info(&mut client, "k").is_none());
}

#[test]
fn a_partial_release_keeps_the_binding() {
    let (_server, mut session, mut client) = bound();
    session.int("DLOCK.RACQUIRE k a");
    assert_eq!(session.int("DLOCK.RELEASE k a"), 0);
    let id = session.id();
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(id));
    client.watch_close(session);
    assert!(lock_info(&mut client, "k").is_none());
}

#[test]
fn a_hold_taken_again_after_a_lapse_is_not_bound() {
    let (server, [mut session, mut client]) = Server::start().with_clients();
    session.int("DLOCK.ACQUIRE k a PX 300 SESSION");
    session.int("DLOCK.RLOCK readers a PX 300 SESSION");
    client.int(format!("DLOCK.RLOCK readers b PX {LEASE}"));
    server.freeze();
    // The requests arrive before the server knows that the leases are over.
    client.send("DLOCK.ACQUIRE k a PX 600000");
    client.send("DLOCK.RLOCK readers a PX 600000");
    std::thread::sleep(std::time::Duration::from_millis(350));
    server.thaw();
    let granted = [client.read(), client.read()];
    assert!(granted.iter().all(|reply| matches!(reply, Ok(Value::Int(_)))), "{granted:?}");
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
    assert_eq!(client.session_of("readers", "a", "shared"), None);
    client.watch_close(session);
    assert!(hold(&mut client, "k", "a", "exclusive").is_some());
    assert!(hold(&mut client, "readers", "a", "shared").is_some());
    assert_eq!((counter(&mut client, "sessions"), counter(&mut client, "session_ends")), (0, 0));
}

#[test]
fn both_modes_are_bound_each_by_itself() {
    let (server, mut session, mut client) = bound();
    let id = session.id();
    client.int("DLOCK.RLOCK k a PX 600000");
    assert_eq!(client.session_of("k", "a", "shared"), None);
    let mut other = server.client();
    other.int("DLOCK.RENEW k a READ SESSION");
    let new = other.id();
    let both = ["exclusive", "shared"].map(|mode| client.session_of("k", "a", mode));
    assert_eq!(both, [Some(id), Some(new)]);
    assert_eq!(counter(&mut client, "sessions"), 2);
    client.watch_close(other);
    assert_eq!(lock_info(&mut client, "k").unwrap().mode, "exclusive");
    session.int("DLOCK.RLOCK k a PX 600000");
    session.int("DLOCK.RENEW k a SESSION");
    let both = ["exclusive", "shared"].map(|mode| client.session_of("k", "a", mode));
    assert_eq!(both, [Some(id); 2], "without a mode RENEW binds both");
    client.watch_close(session);
    assert!(lock_info(&mut client, "k").is_none());
    assert_eq!(counter(&mut client, "session_ends"), 3);
}

#[test]
fn any_client_that_names_the_owner_renews_and_releases() {
    let (_server, mut session, mut client) = bound();
    client.leaves("k", 700_000, "DLOCK.RENEW k a PX 700000");
    session.int("DLOCK.RACQUIRE k a");
    assert_eq!(client.int("DLOCK.RELEASE k a"), 0);
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    session.nil("DLOCK.RENEW k a SESSION");
    assert_eq!(counter(&mut client, "sessions"), 0);
}

#[test]
fn removing_or_moving_the_key_unbinds() {
    // The commands, and the database and key of the lock afterwards, if it still exists.
    type Way = (&'static [&'static str], Option<(i64, &'static str)>);
    let ways: [Way; 10] = [
        (&["DEL k"], None),
        (&["UNLINK k"], None),
        (&["SET k v", "DEL k"], None),
        (&["RENAME k l"], Some((0, "l"))),
        (&["MOVE k 2"], Some((2, "k"))),
        (&["SWAPDB 0 2"], Some((2, "k"))),
        (&["FLUSHDB"], None),
        (&["FLUSHALL ASYNC"], None),
        (&["PEXPIREAT k 1"], None),
        (&["DEBUG RELOAD"], Some((0, "k"))),
    ];
    for (way, place) in ways {
        let (_server, session, mut client) = bound();
        for request in way {
            client.run(request);
        }
        soon("unbound", || counter(&mut client, "sessions") == 0);
        if place != Some((0, "k")) {
            client.int("DLOCK.ACQUIRE k a PX 600000");
        }
        assert_eq!(client.session_of("k", "a", "exclusive"), None, "{way:?}");
        if let Some((db, key)) = place {
            client.ok(format!("SELECT {db}"));
            assert_eq!(client.session_of(key, "a", "exclusive"), None, "{way:?}");
        }
        client.watch_close(session);
        if let Some((_, key)) = place {
            assert!(hold(&mut client, key, "a", "exclusive").is_some(), "{way:?}");
        }
        client.ok("SELECT 0");
        assert!(hold(&mut client, "k", "a", "exclusive").is_some(), "{way:?}");
        assert_eq!(counter(&mut client, "session_ends"), 0, "{way:?}");
    }
}

#[test]
fn a_restored_lock_is_unbound_until_it_is_bound_again() {
    let (_server, mut session, mut client) = bound();
    let (dump, end) = (client.bytes("DUMP k"), client.end_of("k"));
    client.ok(req!["RESTORE", "k", end, &dump, "REPLACE", "ABSTTL"]);
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
    session.int("DLOCK.RENEW k a SESSION");
    let id = session.id();
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(id));
    client.watch_close(session);
    assert!(lock_info(&mut client, "k").is_none());
}

#[test]
fn a_lock_that_is_moved_lapses_with_its_session_open() {
    let (_server, [mut session, mut client]) = Server::start().with_clients();
    session.int("DLOCK.ACQUIRE k a PX 500 SESSION");
    client.ok("RENAME k l");
    client.outlive("l");
    assert!(lock_info(&mut client, "l").is_none());
    assert_eq!(session.text("PING"), "PONG");
}

#[test]
fn scripts_and_functions_have_no_connection() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.RACQUIRE k a PX 600000");
    let before = client.bytes("DUMP k");
    client.text(req![
        "FUNCTION",
        "LOAD",
        "#!lua name=lib\nredis.register_function('call', function(keys, args)
             return redis.call(args[1], keys[1], unpack(args, 2)) end)"
    ]);
    let script = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";
    for (command, key) in [
        ("DLOCK.ACQUIRE", "none"),
        ("DLOCK.RACQUIRE", "k"),
        ("DLOCK.WLOCK", "k"),
        ("DLOCK.RLOCK", "none"),
        ("DLOCK.RENEW", "k"),
        ("DLOCK.RENEW", "none"),
    ] {
        for request in [
            req!["EVAL", script, 1, key, command, "a", "SESSION"],
            req!["FCALL", "call", 1, key, command, "a", "SESSION"],
        ] {
            let error = client.error(request);
            assert!(error.contains("SESSION needs a client connection"), "{command}: {error}");
        }
    }
    assert_eq!(client.bytes("DUMP k"), before);
    assert_eq!((client.int("EXISTS none"), counter(&mut client, "sessions")), (0, 0));
    let error = client.error(req!["EVAL", "return redis.pcall('DLOCK.RENEW', KEYS[1], 'a', 'SESSION')", 1, "k"]);
    assert_eq!(error, "ERR SESSION needs a client connection");
}
