//! A server that is out of memory, and one that may evict.

use crate::support::replica::info_field;
use crate::support::{Server, eventually, lock_info};
use std::time::Duration;

#[test]
fn locks_can_be_given_back_and_kept_when_memory_is_out() {
    let (_server, mut client) = Server::start().with_client();
    for request in ["RACQUIRE k a", "RACQUIRE k a", "RLOCK r a", "RLOCK r b"] {
        client.int(format!("DLOCK.{request}"));
    }
    client.ok("CONFIG SET maxmemory 1");
    assert!(client.error("SET x y").starts_with("OOM"));
    for request in ["ACQUIRE new a", "RACQUIRE k a", "RLOCK r a", "WLOCK new a"] {
        let error = client.error(format!("DLOCK.{request}"));
        assert!(error.starts_with("OOM "), "{request}: {error}");
    }
    let token = lock_info(&mut client, "k").unwrap().token;
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert_eq!(client.int("DLOCK.RENEW k a PX 90000"), 1);
    assert_eq!(client.int("DLOCK.RELEASE k a"), 0);
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    assert_eq!(client.int("DLOCK.RELEASE r b ALL"), 1);
    assert_eq!(lock_info(&mut client, "r").unwrap().holders, 1);
    client.ok("CONFIG SET maxmemory 0");
    client.int("DLOCK.ACQUIRE k b");
}

#[test]
fn a_replica_applies_effects_when_memory_is_out() {
    let (primary, replica) = Server::start().with_replica();
    replica.client().ok("CONFIG SET maxmemory 1");
    primary.client().int("DLOCK.ACQUIRE k a");
    replica.wait_synced(&primary);
    assert!(lock_info(&mut replica.client(), "k").is_some());
}

fn warnings(server: &Server) -> usize {
    server.log().lines().filter(|line| line.contains("dlock") && line.contains("maxmemory-policy")).count()
}

#[test]
fn a_policy_that_can_evict_locks_is_warned_of() {
    for policy in ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-lfu"] {
        let server = Server::conf(&format!("maxmemory-policy {policy}"));
        assert_eq!(warnings(&server), 1, "at load: {policy}\n{}", server.log());
        assert!(server.log().lines().any(|line| line.contains("dlock") && line.contains(policy)));
    }
    let (server, mut client) = Server::conf("maxmemory-policy noeviction").with_client();
    assert_eq!(warnings(&server), 0);
    let have_come = |count: usize| {
        eventually(Duration::from_secs(5), "the warnings", || warnings(&server) == count);
    };
    client.ok("CONFIG SET maxmemory-policy allkeys-lru");
    have_come(1);
    client.ok("CONFIG SET maxmemory-policy noeviction");
    client.ok("CONFIG SET maxmemory 100mb");
    have_come(1);
    client.ok("CONFIG SET maxmemory-policy volatile-ttl");
    have_come(2);
}

/// Each look asks the server for a field of its `INFO`.
#[test]
fn looking_at_the_policy_again_and_again_loses_no_memory() {
    let (_server, mut client) = Server::start().with_client();
    let turns = ["volatile-ttl", "noeviction"].map(|policy| format!("CONFIG SET maxmemory-policy {policy}"));
    let requests: Vec<_> = turns.iter().cycle().take(500).cloned().collect();
    let mut used = |rounds: usize| {
        for _ in 0..rounds {
            client.pipeline(&requests);
        }
        let field = info_field(&mut client, "memory", "used_memory").expect("a field");
        field.parse::<u64>().expect("a number")
    };
    let before = used(2);
    let after = used(16);
    // 8,000 strings would be at least 256 kB.
    assert!(after < before + 100_000, "{before} bytes before, {after} after");
}

#[test]
fn an_evicted_lock_is_a_freed_lock() {
    let (_server, mut client) = Server::start().with_client();
    client.pipeline(&(0..50).map(|n| format!("DLOCK.ACQUIRE k{n} a PX 600000")).collect::<Vec<_>>());
    client.ok("CONFIG SET maxmemory-policy allkeys-lru");
    client.ok("CONFIG SET maxmemory 1");
    let _ = client.attempt("SET x y");
    eventually(Duration::from_secs(5), "evicted", || {
        let _ = client.attempt("SET x y");
        client.int("DBSIZE") == 0
    });
    client.ok("CONFIG SET maxmemory 0");
    client.int("DLOCK.ACQUIRE k1 b");
}
