//! Sessions when servers die, change roles, stall, or refuse writes; and what replicas and watchers see of them.

use std::time::{Duration, SystemTime};

use redis::Value;

use crate::support::cluster::Cluster;
use crate::support::replica::counter;
use crate::support::{Client, Server, Setup, lock_info, soon};

/// The machine's clock, which is the servers', in unix ms.
fn machine_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

/// Waits until the key's end is moved on.
#[track_caller]
fn moved_on(client: &mut Client, key: &str) -> i64 {
    let before = client.end_of(key);
    soon("the lease is moved on", || client.end_of(key) > before);
    client.end_of(key)
}

/// Nothing is bound, and the lock lapses within one lease of `death`.
#[track_caller]
fn lapses_within_a_lease(client: &mut Client, death: i64, lease: i64) {
    let end = client.end_of("k");
    assert!(end <= death + lease, "{} ms after the death, of a lease of {lease}", end - death);
    assert!(end > death + lease / 3, "{} ms after the death, of a lease of {lease}", end - death);
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
    assert_eq!(counter(client, "sessions"), 0);
    client.pass(end);
    assert!(lock_info(client, "k").is_none());
    assert!(client.int("DLOCK.ACQUIRE k b") > 0);
}

#[test]
fn after_a_crash_of_the_server_its_locks_lapse_within_one_lease() {
    let (mut server, [mut session, mut client]) = Server::conf("appendonly yes\nappendfsync always").with_clients();
    session.int("DLOCK.ACQUIRE k a PX 3000 SESSION");
    session.int("DLOCK.ACQUIRE renewed a PX 3000 SESSION");
    moved_on(&mut client, "k");
    server.kill9();
    let death = machine_ms();
    server.boot();
    // An owner that comes back in time keeps its lock, and binds it again.
    let (mut client, mut session) = (server.client(), server.client());
    assert_eq!(client.session_of("renewed", "a", "exclusive"), None);
    assert_eq!(session.int("DLOCK.RENEW renewed a PX 600000"), 1);
    lapses_within_a_lease(&mut client, death, 3000);
    assert_eq!(session.int("DLOCK.RENEW renewed a PX 3000 SESSION"), 1);
    let id = session.id();
    assert_eq!(client.session_of("renewed", "a", "exclusive"), Some(id));
    moved_on(&mut client, "renewed");
}

#[test]
fn after_a_failover_locks_lapse_within_one_lease_unless_bound_again() {
    let (primary, replica) = Server::start().with_replica();
    let (mut session, mut client) = (primary.client(), primary.client());
    session.int("DLOCK.ACQUIRE k a PX 3000 SESSION");
    moved_on(&mut client, "k");
    session.int("DLOCK.ACQUIRE renewed a PX 3000 SESSION");
    replica.wait_synced(&primary);
    drop(primary);
    let death = machine_ms();
    replica.promote();
    let (mut session, mut client) = (replica.client(), replica.client());
    assert_eq!(session.int("DLOCK.RENEW renewed a SESSION"), 1);
    let id = session.id();
    assert_eq!(client.session_of("renewed", "a", "exclusive"), Some(id));
    assert_eq!(client.int("DLOCK.RENEW renewed a PX 900"), 1);
    assert_eq!(counter(&mut client, "sessions"), 1);
    session.int("DLOCK.RELEASE renewed a");
    lapses_within_a_lease(&mut client, death, 3000);
}

#[test]
fn a_demoted_primary_forgets_its_sessions() {
    let (old, new) = (Server::start(), Server::start());
    let (mut session, mut client) = (old.client(), old.client());
    session.int("DLOCK.ACQUIRE k a PX 600000 SESSION");
    // Towards a primary that does not answer, and back: the data stays.
    client.ok("REPLICAOF 127.0.0.1 1");
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
    assert_eq!(counter(&mut client, "sessions"), 0);
    old.promote();
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
    client.watch_close(session);
    assert!(lock_info(&mut client, "k").is_some());
    // To another one, with its data.
    let mut session = old.client();
    session.int("DLOCK.RENEW k a SESSION");
    new.client().int("DLOCK.ACQUIRE k a PX 600000");
    old.follow(&new);
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
    client.watch_close(session);
    assert_eq!(counter(&mut client, "session_ends"), 0);
    assert!(lock_info(&mut new.client(), "k").is_some());
}

#[test]
fn a_session_on_a_replica_is_refused() {
    let (primary, replica) = Server::start().with_replica();
    primary.client().int("DLOCK.ACQUIRE k a");
    replica.wait_synced(&primary);
    for request in ["RENEW k a SESSION", "RACQUIRE k a SESSION", "ACQUIRE new a SESSION BLOCK 0"] {
        let error = replica.client().error(format!("DLOCK.{request}"));
        assert!(error.starts_with("READONLY "), "{request}: {error}");
    }
    assert_eq!(counter(&mut replica.client(), "sessions"), 0);
}

#[test]
fn nothing_is_renewed_while_writes_are_refused_but_ends_release() {
    let (server, [mut session, mut gone, mut waiter]) = Server::start().with_clients();
    let mut client = server.client();
    session.int("DLOCK.ACQUIRE k a PX 900 SESSION");
    gone.int("DLOCK.ACQUIRE ended a PX 600000 SESSION");
    gone.int("DLOCK.ACQUIRE waited a PX 600000 SESSION");
    waiter.send("DLOCK.ACQUIRE waited b BLOCK 0");
    soon("it waits", || lock_info(&mut client, "waited").unwrap().waiters == 1);
    client.ok("CONFIG SET min-replicas-to-write 1");
    let end = client.end_of("k");
    client.watch_close(gone);
    assert!(lock_info(&mut client, "ended").is_none());
    let waited = lock_info(&mut client, "waited").unwrap();
    assert_eq!((waited.holders, waited.waiters), (0, 1), "released, and not granted");
    assert_eq!(counter(&mut client, "session_ends"), 2);
    client.pass(end);
    assert!(lock_info(&mut client, "k").is_none(), "it lapses");
    assert_eq!(waiter.poll(Duration::from_millis(50)), None);
    client.ok("CONFIG SET min-replicas-to-write 0");
    assert!(matches!(waiter.read(), Ok(Value::Int(_))));
    // A lapsed hold is not revived, and what is taken again is not bound.
    soon("unbound", || counter(&mut client, "sessions") == 0);
    client.int("DLOCK.ACQUIRE k a PX 600000");
    assert_eq!(client.session_of("k", "a", "exclusive"), None);
}

#[test]
fn renewals_go_on_when_writes_are_taken_again_in_time() {
    let (_server, [mut session, mut client]) = Server::start().with_clients();
    let token = session.int("DLOCK.ACQUIRE k a PX 3000 SESSION");
    client.ok("CONFIG SET min-replicas-to-write 1");
    let end = client.end_of("k");
    client.pass(end - 1500);
    assert_eq!(client.end_of("k"), end);
    client.ok("CONFIG SET min-replicas-to-write 0");
    moved_on(&mut client, "k");
    client.pass(end);
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
}

#[test]
fn a_pause_is_made_up_for_if_the_hold_still_lives() {
    let (_server, [mut session, mut gone, mut client]) = Server::start().with_clients();
    let token = session.int("DLOCK.ACQUIRE k a PX 3000 SESSION");
    session.int("DLOCK.ACQUIRE short a PX 500 SESSION");
    gone.int("DLOCK.ACQUIRE ended a PX 600000 SESSION");
    client.ok("CLIENT PAUSE 60000 WRITE");
    let end = client.end_of("k");
    client.watch_close(gone);
    assert_eq!(client.int("EXISTS ended"), 1, "nothing is written while writes are paused");
    assert!(lock_info(&mut client, "ended").is_none(), "and yet it is over");
    client.pass(end - 1500);
    assert_eq!(client.end_of("k"), end, "nothing is renewed");
    assert!(lock_info(&mut client, "short").is_none());
    client.ok("CLIENT UNPAUSE");
    moved_on(&mut client, "k");
    soon("released", || client.int("EXISTS ended") == 0);
    client.pass(end);
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert!(lock_info(&mut client, "short").is_none(), "never revived");
    soon("unbound", || counter(&mut client, "sessions") == 1);
}

#[test]
fn renewals_reach_replicas_and_files() {
    let (primary, replica) = Server::conf("appendonly yes\nappendfsync always").with_replica();
    let (mut session, mut client, mut copy) = (primary.client(), primary.client(), replica.client());
    session.int("DLOCK.ACQUIRE k a PX 1500 SESSION");
    replica.wait_synced(&primary);
    for _ in 0..3 {
        let end = copy.end_of("k");
        soon("the replica's end moves", || copy.end_of("k") > end);
        // The copy never knows of more than one lease.
        assert!(copy.end_of("k") <= machine_ms() + 1500);
    }
    let appended = primary.appended(|| {
        moved_on(&mut client, "k");
    });
    assert!(!appended.is_empty() && appended.iter().all(|name| name == "DLOCK.APPLY"), "{appended:?}");
    drop(session);
    soon("the replica's lock is released", || copy.int("EXISTS k") == 0);
    assert_eq!(lock_info(&mut client, "k"), None);
}

#[test]
fn renewals_are_no_changes_to_watchers_and_ends_are() {
    let (server, [mut session, mut client, mut watcher]) = Server::start().with_clients();
    let mut tracker = server.client().resp3();
    session.int("DLOCK.ACQUIRE k a PX 1500 SESSION");
    tracker.ok("CLIENT TRACKING ON");
    tracker.run("DLOCK.INFO k");
    watcher.ok("WATCH k");
    moved_on(&mut client, "k");
    moved_on(&mut client, "k");
    assert!(!watcher.watched_key_changed());
    assert_eq!(tracker.pushes(), []);
    watcher.ok("WATCH k");
    client.watch_close(session);
    assert!(watcher.watched_key_changed());
    assert!(tracker.push(Duration::from_secs(5)).is_some());
}

#[test]
fn grace_unbinds_and_leaves_the_hold_for_a_while() {
    let (server, [mut session, mut client]) = Setup::new().module_args("session-grace 1500").start().with_clients();
    session.int("DLOCK.RACQUIRE k a PX 600000 SESSION");
    for _ in 0..2 {
        session.int("DLOCK.RACQUIRE k a");
    }
    session.int("DLOCK.RACQUIRE longer a PX 400 SESSION");
    let before = client.now();
    client.watch_close(session);
    for key in ["k", "longer"] {
        let end = client.end_of(key);
        assert!((before + 1498..=client.now() + 1500).contains(&end), "{key}: {} ms", end - before);
        assert_eq!(client.session_of(key, "a", "exclusive"), None);
    }
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 3);
    assert_eq!((counter(&mut client, "session_ends"), counter(&mut client, "sessions")), (2, 0));
    // The owner comes back in time with another connection.
    let mut back = server.client();
    back.leaves("k", 600_000, "DLOCK.RENEW k a SESSION");
    let id = back.id();
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(id));
    client.outlive("longer");
    assert!(lock_info(&mut client, "longer").is_none());
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 3);
    client.ok("CONFIG SET dlock.session-grace 0");
    client.watch_close(back);
    assert!(lock_info(&mut client, "k").is_none());
}

#[test]
fn a_slot_that_moves_leaves_the_session_behind() {
    let (cluster, from, to) = Cluster::of_two("k");
    let mut session = cluster.client(from);
    session.int("DLOCK.ACQUIRE k a PX 600000 SESSION");
    cluster.begin_move("k", from, to);
    cluster.migrate("k", from, to);
    cluster.end_move("k", to);
    let mut there = cluster.client(to);
    assert_eq!(there.session_of("k", "a", "exclusive"), None);
    assert_eq!(counter(&mut cluster.client(from), "sessions"), 0);
    cluster.client(from).watch_close(session);
    assert!(lock_info(&mut there, "k").is_some());
    let mut session = cluster.client(to);
    assert_eq!(session.int("DLOCK.RENEW k a SESSION"), 1);
    there.watch_close(session);
    assert!(lock_info(&mut there, "k").is_none());
}
