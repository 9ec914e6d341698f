//! The view of an operator and of a watching client: counters, keyspace events, `WATCH`, `CLIENT TRACKING`.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Client, Server, list_of, soon, text_of};

const COUNTERS: [&str; 6] = ["grants", "reentries", "refusals", "releases", "renewals", "lapses"];

#[track_caller]
fn counters(client: &mut Client) -> BTreeMap<&'static str, i64> {
    COUNTERS.iter().map(|name| (*name, counter(client, name))).collect()
}

#[test]
fn info_dlock_has_version_counters_and_last_token() {
    let (_server, mut client) = Server::start().with_client();
    let text = client.text("INFO dlock");
    assert!(text.starts_with("# dlock"), "{text}");
    assert!(text.contains(concat!("dlock_version:", env!("CARGO_PKG_VERSION"), "\r\n")), "{text}");
    assert!(counters(&mut client).values().all(|n| *n == 0), "{text}");
    let token = client.int("DLOCK.ACQUIRE k a");
    assert_eq!(counter(&mut client, "last_token"), token);
    assert!(client.text("INFO everything").contains(&format!("dlock_last_token:{token}")));
}

#[test]
fn every_counter_counts_its_own() {
    let (_server, mut client) = Server::start().with_client();
    let mut expected = counters(&mut client);
    for (request, name) in [
        ("ACQUIRE k a PX 600000", "grants"),
        ("RACQUIRE r a", "grants"),
        ("RLOCK s a", "grants"),
        ("RLOCK s b", "grants"),
        ("WLOCK w a", "grants"),
        ("RLOCK w a", "grants"),
        ("RLOCK s *", "grants"),
        ("ACQUIRE star *", "grants"),
        ("RACQUIRE r a", "reentries"),
        ("RLOCK s a", "reentries"),
        ("WLOCK r a", "reentries"),
        ("RLOCK w a", "reentries"),
        ("ACQUIRE k b", "refusals"),
        ("ACQUIRE k a", "refusals"),
        ("RACQUIRE k b", "refusals"),
        ("WLOCK s a", "refusals"),
        ("RLOCK k b", "refusals"),
        ("RLOCK k *", "refusals"),
        ("RENEW k a", "renewals"),
        ("RENEW s a PX 5000", "renewals"),
        ("RELEASE k a", "releases"),
        ("RELEASE s b", "releases"),
    ] {
        client.run(format!("DLOCK.{request}"));
        *expected.get_mut(name).unwrap() += 1;
        assert_eq!(counters(&mut client), expected, "{request}");
    }
    // Questions, errors and what finds nothing count nowhere.
    for request in ["INFO k", "CHECK k 5", "RENEW none a", "RENEW s a PX 0", "RELEASE w a", "ACQUIRE k"] {
        let _ = client.attempt(format!("DLOCK.{request}"));
        assert_eq!(counters(&mut client), expected, "{request}");
    }
}

#[test]
fn lapses_are_counted_when_the_module_meets_them() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k c PX 600000");
    client.pipeline(&["DLOCK.RLOCK k a PX 30", "DLOCK.RLOCK k b PX 30"]);
    client.pass_ms(30);
    client.int("DLOCK.RLOCK k d PX 600000");
    assert_eq!(counter(&mut client, "lapses"), 2);
    client.int("DLOCK.RLOCK k a PX 600000");
    assert_eq!(counter(&mut client, "lapses"), 2, "each lapses once");
}

#[test]
fn leases_that_end_on_an_idle_lock_are_counted() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE one a PX 50");
    for owner in ["a", "b", "c"] {
        client.int(format!("DLOCK.RLOCK three {owner} PX 100"));
    }
    client.int("DLOCK.WLOCK both a PX 60");
    client.int("DLOCK.RLOCK both a PX 90");
    // Nobody asks for these locks: the server removes the keys.
    soon("the keys are gone", || client.int("DBSIZE") == 0);
    assert_eq!(counter(&mut client, "lapses"), 6);
    // A command on the key meets it first.
    client.int("DLOCK.ACQUIRE one a PX 50");
    client.outlive("one");
    client.int("DLOCK.ACQUIRE one b PX 600000");
    assert_eq!(counter(&mut client, "lapses"), 7);
    assert_eq!(counter(&mut client, "releases"), 0);
}

#[test]
fn only_the_lapsed_holds_of_a_removed_key_are_counted() {
    let (_server, mut client) = Server::start().with_client();
    for act in ["DEL k", "UNLINK k", "PEXPIRE k 0", "SET k v"] {
        let before = counter(&mut client, "lapses");
        for (owner, lease) in [("a", 20), ("b", 20), ("c", 600_000)] {
            client.int(format!("DLOCK.RLOCK k {owner} PX {lease}"));
        }
        client.pass_ms(20);
        client.run(act);
        assert_eq!(counter(&mut client, "lapses") - before, 2, "{act}");
        client.int("DEL k");
        assert_eq!(counter(&mut client, "lapses") - before, 2, "{act}: once");
    }
    // An early end is no lapse: the deadline had not passed.
    let before = counter(&mut client, "lapses");
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.int("PEXPIRE k 30");
    soon("the key is gone", || client.int("DBSIZE") == 0);
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.int("DEL k");
    assert_eq!(counter(&mut client, "lapses"), before);
}

#[test]
fn lapses_count_on_the_primary_alone() {
    let (primary, replica) = Server::start().with_replica();
    let (mut client, mut copy) = (primary.client(), replica.client());
    client.int("DLOCK.RLOCK k a PX 50");
    client.int("DLOCK.RLOCK k b PX 200");
    replica.wait_synced(&primary);
    replica.keeps_only(0);
    assert_eq!([&mut client, &mut copy].map(|client| counter(client, "lapses")), [2, 0]);
    assert_eq!(copy.int("DBSIZE"), 0);
}

#[test]
fn a_lapse_while_somebody_waits_is_counted_once() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 1000");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b PX 600000 BLOCK 0");
    waiter.granted();
    assert_eq!(counter(&mut client, "lapses"), 1);
    assert_eq!(client.int("DLOCK.RELEASE k b"), 1);
    assert_eq!(counter(&mut client, "lapses"), 1);
}

/// Everything published on this pattern while acting: `channel message`, without the prefix of the channel.
#[track_caller]
pub fn events(server: &Server, pattern: &str, act: impl FnOnce(&mut Client)) -> Vec<String> {
    let (mut listener, mut client) = (server.client(), server.client());
    listener.run(format!("PSUBSCRIBE {pattern}"));
    listener.run("PSUBSCRIBE end-of-test");
    act(&mut client);
    client.int("PUBLISH end-of-test now");
    let mut seen = Vec::new();
    loop {
        let message = list_of(&listener.read().unwrap());
        let [channel, text] = [&message[2], &message[3]].map(text_of);
        if channel == "end-of-test" {
            return seen;
        }
        seen.push(format!("{} {text}", channel.split_once(':').unwrap().1));
    }
}

#[test]
fn keyspace_events_tell_of_changes_by_command() {
    let server = Server::conf("notify-keyspace-events Ed");
    for (request, event) in [
        ("ACQUIRE k a", Some("acquire")),
        ("RACQUIRE k b", None),
        ("RELEASE k b", None),
        ("RENEW k b", None),
        ("RENEW k a", Some("renew")),
        ("RACQUIRE k a", Some("acquire")),
        ("RELEASE k a", Some("release")),
        ("INFO k", None),
        ("CHECK k 5", None),
        ("RLOCK k a", Some("acquire")),
        ("RELEASE k a ALL", Some("release")),
        ("RELEASE k a", None),
        ("WLOCK k *", Some("acquire")),
        ("RLOCK k2 *", Some("acquire")),
        ("ACQUIRE k", None),
    ] {
        let key = if request.contains("k2") { "k2" } else { "k" };
        let seen = events(&server, "__key*__:*", |client| drop(client.attempt(format!("DLOCK.{request}"))));
        let expected: Vec<_> = event.iter().map(|event| format!("dlock.{event} {key}")).collect();
        assert_eq!(seen, expected, "{request}");
    }
}

#[test]
fn keyspace_events_come_on_both_channels_and_only_when_switched_on() {
    let server = Server::conf("notify-keyspace-events KEd");
    let seen = events(&server, "__key*@3__:*", |client| {
        client.ok("SELECT 3");
        client.int("DLOCK.ACQUIRE k a");
    });
    assert_eq!(seen, ["k dlock.acquire", "dlock.acquire k"]);
    server.client().ok("CONFIG SET notify-keyspace-events KEg$");
    let seen = events(&server, "__key*__:dlock*", |client| drop(client.run("DLOCK.ACQUIRE k2 a")));
    assert_eq!(seen, [""; 0]);
}

#[test]
fn the_module_tells_of_lapses_that_it_notices_first() {
    let (server, mut client) = Server::conf("notify-keyspace-events Edx").with_client();
    client.int("DLOCK.RLOCK k b PX 600000");
    client.int("DLOCK.RLOCK k a PX 1");
    client.pass_ms(1);
    let seen = events(&server, "__keyevent@0__:*", |client| drop(client.run("DLOCK.RLOCK k c")));
    assert!(seen.contains(&"dlock.lapse k".to_owned()) && seen.contains(&"dlock.acquire k".to_owned()), "{seen:?}");
    assert_eq!(seen.len(), 2, "{seen:?}");
    // The server itself tells of the end of a whole key.
    let seen = events(&server, "__keyevent@0__:*", |client| {
        client.int("DLOCK.ACQUIRE short a PX 20");
        client.outlive("short");
        soon("expired", || client.int("EXISTS short") == 0);
        client.int("DLOCK.ACQUIRE short b");
    });
    assert_eq!(seen, ["dlock.acquire short", "expired short", "dlock.acquire short"]);
}

/// Whether a transaction that watches `k` still goes through after this.
#[track_caller]
fn watch_survives(server: &Server, before: &[&str], request: &str) -> bool {
    let (mut watcher, mut other) = (server.client(), server.client());
    other.ok("FLUSHALL");
    before.iter().for_each(|line| drop(other.run(format!("DLOCK.{line}"))));
    watcher.ok("WATCH k");
    let _ = other.attempt(request);
    !watcher.watched_key_changed()
}

/// Requests after which `k` has changed, or not: what holds before, the request, whether it is a change.
const CHANGES: [(&[&str], &str, bool); 25] = [
    (&[], "DLOCK.ACQUIRE k a", true),
    (&[], "DLOCK.RLOCK k *", true),
    (&[], "DLOCK.RELEASE k a", false),
    (&[], "DLOCK.RENEW k a", false),
    (&["RLOCK k a"], "DLOCK.RLOCK k b", true),
    (&["RLOCK k a"], "DLOCK.WLOCK k a", true),
    (&["RLOCK k a"], "DLOCK.RLOCK k a", true),
    (&["RACQUIRE k a"], "DLOCK.RACQUIRE k a", true),
    (&["RACQUIRE k a"], "DLOCK.RACQUIRE k a PX 1", true),
    (&["RACQUIRE k a", "RACQUIRE k a"], "DLOCK.RELEASE k a", true),
    (&["RACQUIRE k a"], "DLOCK.RELEASE k a", true),
    (&["RLOCK k a", "RLOCK k b"], "DLOCK.RELEASE k b", true),
    (&["WLOCK k a", "RLOCK k a"], "DLOCK.RELEASE k a WRITE", true),
    (&["ACQUIRE k a"], "DLOCK.ACQUIRE k a", false),
    (&["ACQUIRE k a"], "DLOCK.ACQUIRE k b", false),
    (&["ACQUIRE k a"], "DLOCK.RLOCK k b", false),
    (&["ACQUIRE k a"], "DLOCK.RELEASE k b", false),
    (&["ACQUIRE k a"], "DLOCK.RELEASE k a TOKEN 5", false),
    (&["ACQUIRE k a"], "DLOCK.RENEW k a", false),
    (&["ACQUIRE k a"], "DLOCK.RENEW k a PX 5000", false),
    (&["ACQUIRE k a"], "DLOCK.INFO k FULL", false),
    (&["ACQUIRE k a"], "DLOCK.CHECK k 5", false),
    (&["ACQUIRE k a"], "DLOCK.ACQUIRE k a PX 0", false),
    (&["WLOCK k a", "RLOCK k a"], "DLOCK.RELEASE k a", false),
    (&["ACQUIRE k a"], "DEL k", true),
];

#[test]
fn watch_sees_changes_and_neither_refusals_nor_renewals() {
    let server = Server::start();
    for (before, request, change) in CHANGES {
        assert_eq!(watch_survives(&server, before, request), !change, "{before:?} {request}");
    }
}

#[test]
fn watch_and_tracking_see_a_lapse_that_a_command_meets() {
    let server = Server::start();
    for request in ["DLOCK.RENEW k b", "DLOCK.RLOCK k b", "DLOCK.RELEASE k b"] {
        let (mut watcher, mut tracker, mut other) = (server.client(), server.client().resp3(), server.client());
        other.ok("FLUSHALL");
        other.int("DLOCK.RLOCK k b PX 600000");
        other.int("DLOCK.RLOCK k a PX 1");
        other.pass_ms(1);
        watcher.ok("WATCH k");
        tracker.ok("CLIENT TRACKING ON");
        tracker.run("DLOCK.INFO k");
        other.int(request);
        assert!(watcher.watched_key_changed(), "{request}");
        assert_eq!(tracker.pushes().len(), 1, "{request}");
    }
}

#[test]
fn watch_sees_a_release_by_script_and_no_renewal_by_script() {
    let server = Server::start();
    assert!(!watch_survives(&server, &["ACQUIRE k a"], "EVAL return(redis.call('DLOCK.RELEASE','k','a')) 1 k"));
    assert!(watch_survives(&server, &["ACQUIRE k a"], "EVAL return(redis.call('DLOCK.RENEW','k','a')) 1 k"));
}

#[test]
fn tracking_sees_changes_and_neither_refusals_nor_renewals() {
    let server = Server::start();
    for question in ["DLOCK.INFO k", "DLOCK.CHECK k 5"] {
        for (before, request, change) in CHANGES {
            let (mut tracker, mut other) = (server.client().resp3(), server.client());
            other.ok("FLUSHALL");
            before.iter().for_each(|line| drop(other.run(format!("DLOCK.{line}"))));
            tracker.ok("CLIENT TRACKING ON");
            tracker.run(question);
            let _ = other.attempt(request);
            let invalidations = tracker.pushes();
            assert_eq!(invalidations.len(), usize::from(change), "{before:?} {request}: {invalidations:?}");
            for invalidation in invalidations {
                let keys = list_of(&list_of(&invalidation)[0]);
                assert_eq!(keys, [Value::BulkString(b"k".to_vec())]);
            }
        }
    }
}

#[test]
fn tracking_sees_the_key_expire() {
    let server = Server::start();
    let (mut tracker, mut other) = (server.client().resp3(), server.client());
    tracker.ok("CLIENT TRACKING ON");
    other.int("DLOCK.ACQUIRE k a PX 500");
    assert_ne!(tracker.run("DLOCK.INFO k"), Value::Nil);
    let push = tracker.push(Duration::from_secs(5)).expect("an invalidation");
    assert!(format!("{push:?}").contains("Invalidate"), "{push:?}");
    tracker.nil("DLOCK.INFO k");
}

#[test]
fn monitor_slowlog_and_commandstats_show_lock_commands() {
    let (_server, [mut monitor, mut client]) = Server::conf("slowlog-log-slower-than 0").with_clients();
    monitor.ok("MONITOR");
    client.int("DLOCK.ACQUIRE k a");
    let line = text_of(&monitor.read().unwrap());
    assert!(line.contains("\"DLOCK.ACQUIRE\" \"k\" \"a\""), "{line}");
    let slow = format!("{:?}", client.run("SLOWLOG GET"));
    assert!(slow.contains("DLOCK.ACQUIRE"), "{slow}");
    assert!(client.text("INFO commandstats").to_lowercase().contains("cmdstat_dlock.acquire:calls=1"));
}

#[test]
fn the_report_of_a_servers_crash_is_whole() {
    // The memory test is the server's own. It writes to the memory of jemalloc's threads while they run, and so ends some
    // reports of any server in the middle.
    let (mut server, mut client) = Server::conf("crash-memcheck-enabled no").with_client();
    server.tolerate("BUG REPORT");
    client.int("DLOCK.ACQUIRE k a");
    client.send("DEBUG SEGFAULT");
    let status = server.ended();
    let log = server.log();
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "the report is no crash of its own: {log}");
    for part in ["INFO OUTPUT", "CLIENT LIST OUTPUT", "MODULES INFO OUTPUT", "BUG REPORT END"] {
        assert!(log.contains(part), "{part} is missing: {log}");
    }
    assert!(!log.contains("dlock_trace"), "no backtrace in a signal handler");
}
