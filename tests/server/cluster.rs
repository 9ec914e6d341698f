//! Locks in a cluster: every lock in its slot, and slots move with their locks.

use std::time::Duration;

use crate::support::cluster::{Cluster, in_cluster};
use crate::support::replica::counter;
use crate::support::skip::skipped;
use crate::support::version::Version;
use crate::support::{lock_info, soon};

#[test]
fn a_lock_lives_where_its_slot_lives() {
    let cluster = Cluster::start(2);
    assert!(in_cluster(&mut cluster.client(0)));
    let home = cluster.home_of("k");
    let (mut here, mut there) = (cluster.client(home), cluster.client(1 - home));
    here.int("DLOCK.ACQUIRE k a");
    for request in
        ["ACQUIRE k b", "RACQUIRE k b", "RLOCK k b", "WLOCK k b", "RELEASE k a", "RENEW k a", "CHECK k 5", "INFO k"]
    {
        let error = there.error(format!("DLOCK.{request}"));
        assert!(error.starts_with("MOVED "), "{request}: {error}");
    }
    assert_eq!(here.int("DLOCK.RELEASE k a"), 1);
}

#[test]
fn a_slot_that_moves_takes_its_lock_along() {
    let (cluster, from, to) = Cluster::of_two("k");
    let (mut here, mut there) = (cluster.client(from), cluster.client(to));
    let write = here.int("DLOCK.WLOCK k a PX 600000");
    here.int("DLOCK.RLOCK k a PX 600000");
    let end = here.end_of("k");
    cluster.begin_move("k", from, to);
    // The key is still here: everything goes on in place.
    assert_eq!(here.int("DLOCK.WLOCK k a"), write);
    here.nil("DLOCK.ACQUIRE k b");
    cluster.migrate("k", from, to);
    assert!(here.error("DLOCK.ACQUIRE k b").starts_with("ASK "));
    assert!(here.error("DLOCK.INFO k").starts_with("ASK "));
    there.ok("ASKING");
    there.nil("DLOCK.ACQUIRE k b");
    cluster.end_move("k", to);
    assert!(here.error("DLOCK.ACQUIRE k b").starts_with("MOVED "));
    assert!((there.end_of("k") - end).abs() < 2000, "MIGRATE sends the time to live");
    assert!(there.int(format!("DLOCK.CHECK k {write}")) > 0);
    assert_eq!(lock_info(&mut there, "k").unwrap().count, 3);
    assert_eq!(there.int("DLOCK.RELEASE k a ALL"), 1);
    assert!(there.int("DLOCK.ACQUIRE k b") > write);
}

#[test]
fn atomic_slot_migration_takes_the_lock_along() {
    let (cluster, from, to) = Cluster::of_two("k");
    let mut here = cluster.client(from);
    if !Version::of(&mut here).migrates_slots() {
        return skipped("this server has no CLUSTER MIGRATESLOTS");
    }
    let token = here.int("DLOCK.WLOCK k a PX 600000");
    here.int("DLOCK.RLOCK k a PX 600000");
    here.int("DLOCK.RELEASE k a READ");
    let end = here.end_of("k");
    let slot = here.int("CLUSTER KEYSLOT k");
    here.ok(format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", cluster.id(to)));
    // Each renewal is one more effect that the migration takes along.
    let mut longer = 0;
    soon("the slot has moved", || {
        longer += 1;
        let _ = here.attempt(format!("DLOCK.RENEW k a PX {}", 600_000 + longer));
        here.attempt("DLOCK.INFO k").is_err_and(|error| error.starts_with("MOVED "))
    });
    let mut there = cluster.client(to);
    assert!(there.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert!(there.end_of("k") >= end);
    assert_eq!(lock_info(&mut there, "k").unwrap().count, 1);
    there.nil("DLOCK.ACQUIRE k b");
    assert_eq!(there.int(format!("DLOCK.RELEASE k a TOKEN {token}")), 1);
    assert!(there.int("DLOCK.ACQUIRE k b") > token);
}

/// Redis 8.4 and later have a migration of their own, which the other node asks for.
#[test]
fn atomic_slot_migration_of_redis_takes_the_lock_along() {
    let (cluster, from, to) = Cluster::of_two("k");
    let (mut here, mut there) = (cluster.client(from), cluster.client(to));
    if !Version::of(&mut here).imports_slots() {
        return skipped("this server has no CLUSTER MIGRATION");
    }
    let token = here.int("DLOCK.WLOCK k a PX 600000");
    let end = here.end_of("k");
    let mut waiter = cluster.client(from);
    waiter.send("DLOCK.ACQUIRE k w BLOCK 60000");
    soon("it waits", || lock_info(&mut here, "k").is_some_and(|info| info.waiters == 1));
    let slot = here.int("CLUSTER KEYSLOT k");
    there.run(format!("CLUSTER MIGRATION IMPORT {slot} {slot}"));
    // The keys that the node then removes are granted to nobody.
    let error = waiter.read().expect_err("it is sent to the other node");
    assert!(error.starts_with("MOVED ") || error.starts_with("TRYAGAIN "), "{error}");
    soon("the keys are removed here", || here.int("DBSIZE") == 0);
    assert_eq!(counter(&mut here, "grants"), 1);
    assert!(here.error("DLOCK.INFO k").starts_with("MOVED "));
    assert!(there.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert_eq!(there.end_of("k"), end);
    there.nil("DLOCK.ACQUIRE k b");
    assert_eq!(there.int(format!("DLOCK.RELEASE k a TOKEN {token}")), 1);
    assert!(there.int("DLOCK.ACQUIRE k b") > token);
}

/// Redis drops the keys of a slot that has left without telling a module of each.
#[test]
fn sessions_of_a_slot_that_has_left_are_forgotten_and_cost_nothing() {
    const LOCKS: usize = 2000;
    let (cluster, from, to) = Cluster::of_two("{k}");
    let (mut here, mut there, mut session) = (cluster.client(from), cluster.client(to), cluster.client(from));
    let version = Version::of(&mut here);
    let slot = here.int("CLUSTER KEYSLOT {k}");
    session.pour((0..LOCKS).map(|n| format!("DLOCK.ACQUIRE {{k}}{n} a PX 1200 SESSION")));
    if version.imports_slots() {
        there.run(format!("CLUSTER MIGRATION IMPORT {slot} {slot}"));
    } else if version.migrates_slots() {
        here.ok(format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", cluster.id(to)));
    } else {
        return skipped("this server has no command that moves a slot");
    }
    soon("the slot has moved", || here.attempt("GET {k}").is_err_and(|error| error.starts_with("MOVED ")));
    soon("nothing is bound here", || counter(&mut here, "sessions") == 0);
    // A session of another slot goes on, and nothing else keeps the timer busy.
    let other =
        (0..).map(|n| format!("other{n}")).find(|key| cluster.home_of(key) == from).expect("a key of this node");
    let token = session.int(format!("DLOCK.ACQUIRE {other} a PX 900 SESSION"));
    let busy = cluster.nodes[from].takes(|| here.pass_ms(1500));
    assert!(here.int(format!("DLOCK.CHECK {other} {token}")) > 0);
    assert!(busy < Duration::from_millis(300), "{busy:?} of CPU time in 1.5 s");
}

#[test]
fn a_slot_that_comes_back_has_no_sessions() {
    const READERS: usize = 100;
    let (cluster, from, to) = Cluster::of_two("{k}");
    let (mut here, mut there) = (cluster.client(from), cluster.client(to));
    let version = Version::of(&mut here);
    if !version.imports_slots() && !version.migrates_slots() {
        return skipped("this server has no command that moves a slot");
    }
    let slot = here.int("CLUSTER KEYSLOT {k}");
    let travel = |source: usize, target: usize| {
        let (mut source_client, mut target_client) = (cluster.client(source), cluster.client(target));
        if version.imports_slots() {
            target_client.run(format!("CLUSTER MIGRATION IMPORT {slot} {slot}"));
        } else {
            let id = cluster.id(target);
            source_client.ok(format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {id}"));
        }
        soon("the slot has moved", || target_client.attempt("GET {k}").is_ok());
        soon("the source has removed it", || source_client.int("DBSIZE") == 0);
    };
    let mut session = cluster.client(from);
    let one = session.int("DLOCK.ACQUIRE {k}one a PX 3600000 SESSION");
    session.int("DLOCK.SESSION named PX 3600000");
    for key in ["{k}same", "{k}other"] {
        session.pour((0..READERS).map(|n| format!("DLOCK.RLOCK {key} r{n} PX 3600000 SESSIONID named")));
    }
    travel(from, to);
    there.run("DEL {k}other");
    let other = there.int("DLOCK.RLOCK {k}other new PX 3600000");
    travel(to, from);
    let same = lock_info(&mut here, "{k}same FULL COUNT 0").unwrap();
    let sessions = same.holds();
    assert!(sessions.iter().all(|hold| hold.session == redis::Value::Nil), "{sessions:?}");
    drop(session);
    // The commands come in one write: nothing is worked off in between.
    let writers = ["one", "same", "other"].map(|key| format!("DLOCK.WLOCK {{k}}{key} writer"));
    let replies = here.pipeline(&[vec!["DLOCK.SESSION named CLOSE".to_owned()], writers.to_vec()].concat());
    assert!(replies[0].is_ok(), "{replies:?}");
    assert_eq!(replies[1..], [const { Ok(redis::Value::Nil) }; 3]);
    assert!(here.int(format!("DLOCK.CHECK {{k}}one {one}")) > 0);
    assert!(here.int(format!("DLOCK.CHECK {{k}}other {other}")) > 0);
    assert_eq!(lock_info(&mut here, "{k}same").unwrap().count, READERS as i64);
    assert_eq!(counter(&mut here, "sessions"), 0);
}
