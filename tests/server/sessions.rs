//! A session keeps its locks while its connection lives, and frees them when it ends, for whatever reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::child::ClientProcess;
use crate::support::replica::counter;
use crate::support::{Client, Server, eventually, lock_info, soon};

/// In ms: short, and long enough for a busy machine.
const LEASE: i64 = 1200;

#[test]
fn a_killed_process_frees_its_lock_within_100_ms() {
    let (server, [mut client, mut next]) = Server::start().with_clients();
    let mut times = Vec::new();
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    // A busy machine proves nothing: it gets more chances.
    while times.len() < 5 || times.len() < 15 && median(&mut times) >= Duration::from_millis(100) {
        let process = ClientProcess::start(&server, &["DLOCK.ACQUIRE k a PX 600000 SESSION"]);
        soon("held", || lock_info(&mut client, "k").is_some());
        next.send("DLOCK.ACQUIRE k b BLOCK 20000");
        soon("somebody waits", || lock_info(&mut client, "k").unwrap().waiters == 1);
        let start = Instant::now();
        process.kill9();
        next.read().expect("a token");
        times.push(start.elapsed());
        assert_eq!(next.int("DLOCK.RELEASE k b"), 1);
    }
    assert!(median(&mut times) < Duration::from_millis(100), "{times:?}");
}

#[test]
fn a_stopped_process_keeps_its_lock() {
    let (server, mut client) = Server::start().with_client();
    let process = ClientProcess::start(&server, &[&format!("DLOCK.ACQUIRE k a PX {LEASE} SESSION")]);
    soon("held", || lock_info(&mut client, "k").is_some());
    process.freeze();
    let token = lock_info(&mut client, "k").unwrap().token;
    let start = client.now();
    while client.now() < start + 4 * LEASE {
        assert!((1..=LEASE).contains(&client.int(format!("DLOCK.CHECK k {token}"))));
        client.nil("DLOCK.ACQUIRE k b");
    }
    process.kill9();
    soon("released", || lock_info(&mut client, "k").is_none());
}

#[test]
fn a_session_hold_outlives_eight_leases_under_load() {
    let (server, mut session) = Server::start().with_client();
    // A server that a busy machine stops for two thirds of a lease may lose it.
    let leases = [2400, 2450, 2500];
    let tokens = leases.map(|lease| session.int(format!("DLOCK.ACQUIRE k{lease} a PX {lease} SESSION")));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, ended) = (&server, &ended);
        scope.spawn(move || load(&mut server.client(), ended));
        let mut client = server.client();
        let end = client.now() + 8 * 2500;
        let id = session.id();
        while client.now() < end {
            for (lease, token) in leases.iter().zip(&tokens) {
                client.int(format!("DLOCK.CHECK k{lease} {token}"));
                assert_eq!(client.session_of(&format!("k{lease}"), "a", "exclusive"), Some(id));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(counter(&mut session, "lapses"), 0);
    assert_eq!(counter(&mut session, "sessions"), 3);
}

/// Loads the server until `ended` is set, or for a minute: a test that has failed does not set it.
fn load(client: &mut Client, ended: &AtomicBool) {
    let end = client.now() + 60_000;
    let requests: Vec<_> =
        (0..64).flat_map(|n| [format!("DLOCK.ACQUIRE load{n} a"), format!("DLOCK.RELEASE load{n} a")]).collect();
    while !ended.load(Ordering::Relaxed) && client.now() < end {
        client.pipeline(&requests);
    }
}

/// Ends the connection of a session. Arguments: another client, the client of the session, and the id of its connection.
type End = fn(&mut Client, &mut Client, i64);

#[test]
fn whatever_ends_a_connection_releases_its_lock() {
    let ends: [(&str, End); 8] = [
        ("QUIT", |_, session, _| session.send("QUIT")),
        ("CLIENT KILL", |other, _, id| assert_eq!(other.int(format!("CLIENT KILL ID {id}")), 1)),
        ("its own CLIENT KILL", |_, session, id| session.send(format!("CLIENT KILL ID {id} SKIPME no"))),
        ("bytes that are no command", |_, session, _| session.send_raw(b"*1\r\nbroken\r\n")),
        ("idle timeout", |other, _, _| other.ok("CONFIG SET timeout 1")),
        ("output buffer limit", |other, session, _| {
            other.int("SETRANGE big 1000000 x");
            other.ok(["CONFIG", "SET", "client-output-buffer-limit", "normal 2000000 0 0"]);
            // Not `GET`: Redis 8.6 sends its reply from the value itself, and counts no buffer.
            session.send_all(&["GETRANGE big 0 -1"; 40]);
        }),
        ("ACL DELUSER", |other, session, _| {
            other.ok("ACL SETUSER someone on nopass ~* &* +@all");
            session.ok("AUTH someone x");
            other.int("ACL DELUSER someone");
        }),
        ("output buffer limit of a monitor", |other, session, _| {
            // A monitor may count as a replica.
            other.ok(["CONFIG", "SET", "client-output-buffer-limit", "normal 300000 0 0 replica 300000 0 0"]);
            session.ok("MONITOR");
            let text = "x".repeat(100_000);
            (0..200).for_each(|_| {
                other.run(["ECHO", &text]);
            });
        }),
    ];
    for (what, end) in ends {
        let (_server, [mut session, mut client]) = Server::start().with_clients();
        let id = session.id();
        session.int("DLOCK.RACQUIRE k a PX 600000 SESSION");
        session.int("DLOCK.RACQUIRE k a");
        assert_eq!(client.session_of("k", "a", "exclusive"), Some(id), "{what}");
        end(&mut client, &mut session, id);
        soon(&format!("{what} releases"), || lock_info(&mut client, "k").is_none());
        assert_eq!(client.int("EXISTS k"), 0, "{what}");
        let counted = ["sessions", "session_ends", "releases"].map(|name| counter(&mut client, name));
        assert_eq!(counted, [0, 1, 1], "{what}");
    }
}

#[test]
fn a_connection_that_has_not_ended_keeps_its_lock() {
    let (server, mut client) = Server::start().with_client();
    let ways = ["SELECT 3", "RESET", "SUBSCRIBE channel", "MONITOR", "HELLO 3", "CLIENT REPLY OFF", "WATCH x", "MULTI"];
    let mut sessions = Vec::new();
    for (n, way) in ways.iter().enumerate() {
        let mut session = server.client();
        let id = session.id();
        let token = session.int(format!("DLOCK.ACQUIRE k{n} a PX {LEASE} SESSION"));
        session.send(way);
        sessions.push((session, id, token));
    }
    let end = client.now() + 4 * LEASE;
    while client.now() < end {
        for (n, (_, id, token)) in sessions.iter().enumerate() {
            assert_ne!(client.run(format!("DLOCK.CHECK k{n} {token}")), redis::Value::Nil, "{}", ways[n]);
            assert_eq!(client.session_of(&format!("k{n}"), "a", "exclusive"), Some(*id), "{}", ways[n]);
        }
    }
    assert_eq!(counter(&mut client, "session_ends"), 0);
    drop(sessions);
    for (n, way) in ways.iter().enumerate() {
        soon(&format!("after {way} the end releases"), || lock_info(&mut client, &format!("k{n}")).is_none());
    }
    assert_eq!(counter(&mut client, "session_ends"), ways.len() as i64);
}

#[test]
fn the_locks_of_every_database_are_released() {
    let (_server, [mut session, mut client]) = Server::start().with_clients();
    for db in [0, 1, 2, 3] {
        session.ok(format!("SELECT {db}"));
        session.int("DLOCK.ACQUIRE k a PX 600000 SESSION");
    }
    session.ok("SELECT 9");
    client.watch_close(session);
    for db in [0, 1, 2, 3] {
        client.ok(format!("SELECT {db}"));
        assert_eq!(client.int("DBSIZE"), 0, "{db}");
    }
}

#[test]
fn two_thousand_locks_of_a_connection_are_released_within_a_second() {
    let (_server, [mut session, mut client]) = Server::start().with_clients();
    let requests: Vec<_> = (0..2000).map(|n| format!("DLOCK.ACQUIRE k{n} a PX 600000 SESSION")).collect();
    session.pipeline(&requests);
    assert_eq!((client.int("DBSIZE"), counter(&mut client, "sessions")), (2000, 2000));
    drop(session);
    eventually(Duration::from_secs(1), "all are released", || client.int("DBSIZE") == 0);
    let counted = ["sessions", "session_ends", "releases"].map(|name| counter(&mut client, name));
    assert_eq!(counted, [0, 2000, 2000]);
}

#[test]
fn a_lock_of_no_session_outlives_its_connection() {
    let (_server, [mut session, mut client]) = Server::start().with_clients();
    session.int("DLOCK.ACQUIRE bound a PX 600000 SESSION");
    session.int("DLOCK.ACQUIRE free a PX 600000");
    assert_eq!(client.session_of("free", "a", "exclusive"), None);
    client.watch_close(session);
    assert!(lock_info(&mut client, "bound").is_none());
    assert!(lock_info(&mut client, "free").is_some());
}
