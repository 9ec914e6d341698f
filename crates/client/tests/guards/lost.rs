//! A guard reports the loss of its lock as soon as the lock may be lost, and not after the hold ends on the server.

use std::time::{Duration, Instant};

use dlock_client::Error;

use crate::{client_of, freed, in_time, lost, not_yet, server_and_client};
use dlock_testkit::Server;

const LEASE: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lock_is_lost_with_the_next_renewal() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(LEASE)).await.expect("a lock");
    server.client().int("DEL job");
    in_time(guard.lost()).await;
    assert_eq!(guard.remaining(), Duration::ZERO);
    lost(guard.renew().await);
    lost(guard.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_by_hand_reports_the_loss_at_once() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(600))).await.expect("a lock");
    server.client().int("DEL job");
    let next = in_time(client.acquire("job")).await.expect("a lock");
    lost(guard.renew().await);
    in_time(guard.lost()).await;
    lost(guard.release().await);
    assert!(next.renew().await.is_ok(), "the next owner's hold is not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_reports_that_the_key_was_overwritten() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(Duration::from_secs(600))).await.expect("a lock");
    server.client().ok("SET job text");
    lost(guard.release().await);
    assert_eq!(server.client().text("GET job"), "text");
}

/// A program without dlock has overwritten the key, so the lock is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_key_was_overwritten_is_lost_for_every_operation() {
    let (server, client) = server_and_client();
    let session = in_time(dlock_client::Session::open(&client, Duration::from_secs(3))).await.expect("a session");
    let lease = Duration::from_secs(600);
    let all = ["a", "b", "c", "d", "e", "f"].map(|name| client.acquire(name).lease(lease));
    let mut guards = Vec::new();
    for acquire in all {
        guards.push(in_time(acquire).await.expect("a lock"));
    }
    let [a, b, c, d, e, f] = guards.try_into().expect("six guards");
    let bound = in_time(client.acquire("g").session()).await.expect("a lock");
    let several = in_time(client.acquire_all(["h", "i"]).lease(lease)).await.expect("locks");
    let in_session = in_time(client.acquire("j").in_session(&session)).await.expect("a lock");
    let stays = in_time(client.acquire("k").at_least(lease)).await.expect("a lock");
    let reads = in_time(client.read("l").lease(lease)).await.expect("a lock");
    let mut other = server.client();
    // The test overwrites only one of the locks `h` and `i`.
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "j", "k", "l"] {
        other.ok(format!("SET {name} text"));
    }
    lost(a.renew().await);
    assert!(!a.is_held());
    lost(b.enter().await);
    lost(c.extend(lease).await);
    assert!(!c.is_held());
    lost(several.release().await);
    lost(bound.renew().await);
    lost(f.release().await);
    lost(e.release_after(lease).await);
    lost(d.release_after(Duration::ZERO).await);
    in_time(in_session.lost()).await;
    assert!(!in_session.is_held());
    lost(in_session.release().await);
    lost(stays.release().await);
    lost(reads.renew().await);
    assert_eq!(other.text("GET a"), "text");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_the_lock_is_lost_when_the_lease_ends() {
    let mut server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(LEASE)).await.expect("a lock");
    server.kill9();
    let left = guard.remaining();
    let began = Instant::now();
    not_yet(guard.lost()).await;
    in_time(guard.lost()).await;
    assert!(began.elapsed() >= left.saturating_sub(Duration::from_millis(1)) && left > LEASE / 2, "{left:?}");
    assert_eq!(guard.remaining(), Duration::ZERO);
    lost(guard.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_has_the_lock_at_least_as_long_as_the_guard() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(LEASE)).await.expect("a lock");
    let ends = server.client().end_of("job");
    server.freeze();
    in_time(guard.lost()).await;
    let believed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    server.thaw();
    // A renewal between `end_of` and the freeze may have moved the end by up to one lease.
    assert!((believed.as_millis() as i64) < ends + LEASE.as_millis() as i64);
    drop(guard);
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_release_says_so_and_the_lease_frees_the_lock() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(LEASE)).await.expect("a lock");
    server.freeze();
    let outcome = in_time(guard.release()).await;
    assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
    server.thaw();
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_release_and_drop_the_future_of_the_loss_resolves() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(600))).await.expect("a lock");
    let over = guard.lost();
    assert!(guard.release().await.is_ok());
    in_time(over).await;
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(600))).await.expect("a lock");
    let over = guard.lost();
    drop(guard);
    in_time(over).await;
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_guard_touches_nothing_when_it_is_dropped() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire("job").lease(LEASE)).await.expect("a lock");
    server.client().int("DEL job");
    let next = in_time(client.acquire("job")).await.expect("a lock");
    in_time(guard.lost()).await;
    drop(guard);
    assert!(next.release().await.is_ok());
}
