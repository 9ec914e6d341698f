//! Memory runs out, under every policy: a lock is held, refused, or evicted and handed over; never lost in between.

use redis::Value;

use crate::support::queue::all_granted;
use crate::support::replica::{counter, info_field};
use crate::support::state::{assert_same, state};
use crate::support::{Client, Server};

const POLICIES: [&str; 8] = [
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];
const LOCKS: usize = 120;
/// How many of the locks have a waiter: `lock0` and those that follow.
const WAITERS: usize = 20;

/// Locks, and other keys with and without an end.
#[track_caller]
fn fill(client: &mut Client) {
    let text = "x".repeat(500);
    let locks = (0..LOCKS).map(|n| format!("DLOCK.ACQUIRE lock{n} a PX 600000"));
    let texts = (0..LOCKS).flat_map(|n| [format!("SET text{n} {text}"), format!("SET brief{n} {text} PX 600000")]);
    for reply in client.pipeline(&locks.chain(texts).collect::<Vec<_>>()) {
        reply.expect("room for it");
    }
}

/// Returns the memory that counts for `maxmemory`.
#[track_caller]
fn counted(client: &mut Client) -> i64 {
    let [used, uncounted] = ["used_memory", "mem_not_counted_for_evict"]
        .map(|name| info_field(client, "memory", name).expect("a field").parse::<i64>().expect("a number"));
    used - uncounted
}

/// Takes away memory until the server has to do something about it, and asks for more locks all the while. Returns how
/// many were refused.
#[track_caller]
fn squeeze(client: &mut Client, policy: &str) -> usize {
    let mut refused = 0;
    for step in 1..=10 {
        let left = counted(client) - 10_000;
        client.ok(format!("CONFIG SET maxmemory {left}"));
        let requests: Vec<_> = (0..20).map(|n| format!("DLOCK.ACQUIRE new{step}-{n} a PX 600000")).collect();
        for reply in client.pipeline(&requests) {
            match reply {
                Ok(reply) => assert!(matches!(reply, Value::Int(_)), "{policy}: {reply:?}"),
                Err(error) => {
                    assert!(error.starts_with("OOM "), "{policy}: {error}");
                    refused += 1;
                }
            }
        }
        // The next commands need no memory.
        client.run(format!("DLOCK.RENEW lock{} a", LOCKS - 1));
        client.run(format!("DLOCK.RELEASE lock{} a", LOCKS - 1 - step));
    }
    refused
}

#[test]
fn memory_that_runs_out_loses_no_waiter_under_any_policy() {
    for policy in POLICIES {
        let (server, replica) =
            Server::conf(&format!("maxmemory-policy {policy}\nmaxmemory-samples 10")).with_replica();
        let mut client = server.client();
        fill(&mut client);
        let requests = (0..WAITERS).map(|n| format!("DLOCK.ACQUIRE lock{n} b PX 600000 BLOCK 0"));
        let mut waiters = server.waiters(requests);
        let refused = squeeze(&mut client, policy);
        client.ok("CONFIG SET maxmemory 0");
        let evicted: i64 = info_field(&mut client, "stats", "evicted_keys").unwrap().parse().unwrap();
        let evicts = policy != "noeviction";
        assert!(if evicts { evicted > 0 } else { evicted == 0 && refused > 0 }, "{policy}: {evicted}, {refused}");
        for n in 0..WAITERS {
            is_waited_for_or_handed_over(&server, &format!("lock{n}"), policy);
        }
        client.pipeline(&(0..WAITERS).map(|n| format!("DLOCK.RELEASE lock{n} a")).collect::<Vec<_>>());
        all_granted(&mut waiters);
        assert_eq!(counter(&mut client, "waiters"), 0);
        replica.wait_synced(&server);
        assert_same(policy, &state(&mut client), &state(&mut replica.client()));
    }
}

/// Asserts that `b` waits for the lock of `a`, or has got it, or that an eviction took it from `b`, too.
#[track_caller]
fn is_waited_for_or_handed_over(server: &Server, lock: &str, policy: &str) {
    let (holders, queue) = (server.holders(lock), server.queue(lock));
    let shown: Vec<&str> = holders.iter().chain(&queue).map(String::as_str).collect();
    let evicts = policy != "noeviction";
    assert!(shown == ["a", "b"] || evicts && (shown == ["b"] || shown.is_empty()), "{policy}: {lock} {shown:?}");
    assert!(holders.len() <= 1, "{policy}: {holders:?}");
}
