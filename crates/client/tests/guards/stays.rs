//! A lock that stays for a while after its guard.

use std::time::{Duration, Instant};

use dlock_client::{Client, Error, Session};
use dlock_testkit::replica::counter;
use dlock_testkit::{Server, lock_info, soon};

use crate::{contention, freed, in_time, lost, server_and_client};

/// The least time of a lock: `at_least`.
const LEAST: Duration = Duration::from_millis(2500);
/// A lease that ends before the least time.
const LEASE: Duration = Duration::from_millis(600);

/// Checks that the lock of a guard that is gone ends in time, by the server's clock: not before this time after the
/// grant, and at most 1.5 s later.
#[track_caller]
fn ends_in_time(server: &Server, name: &str, token: u64, least: Duration) {
    let mut watch = server.client();
    let from_grant = watch.end_of(name) - (token / 1000) as i64;
    // The token counts microseconds, and the client counts from the reply, which a busy machine delays.
    let least = least.as_millis() as i64;
    assert!((least - 1..least + 1500).contains(&from_grant), "{name}: {from_grant} ms");
    let renewals = counter(&mut watch, "renewals");
    watch.outlive(name);
    assert_eq!(counter(&mut watch, "renewals"), renewals, "{name}: the lock was renewed after the end of its guard");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_stays_for_the_least_time_however_its_guard_ends() {
    let (server, client) = server_and_client();
    for (name, drops) in [("released", false), ("dropped", true)] {
        let guard = in_time(client.acquire(name).lease(LEASE).at_least(LEAST)).await.expect("a lock");
        let token = guard.token();
        assert!(guard.remaining() > LEASE && guard.remaining() <= LEAST);
        if drops {
            drop(guard);
            client.settled().await;
        } else {
            assert!(guard.release().await.is_ok());
        }
        contention(in_time(client.try_acquire(name)).await);
        ends_in_time(&server, name, token, LEAST);
        assert!(in_time(client.try_acquire(name)).await.is_ok(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_time_is_the_lease_from_the_grant_on_and_renewals_keep_its_end() {
    let (server, client) = server_and_client();
    let least = Duration::from_secs(600);
    let guard = in_time(client.acquire("job").lease(LEASE).at_least(least)).await.expect("a lock");
    let mut watch = server.client();
    let end = watch.end_of("job");
    assert!(
        end - (guard.token() / 1000) as i64 >= least.as_millis() as i64 - 1,
        "the lock ends before the least time is over"
    );
    soon("the guard has been renewed several times", || counter(&mut watch, "renewals") >= 5);
    // The client counts the least time from the reply, so renewals may move the end a little.
    let later = watch.end_of("job") - end;
    assert!((0..1500).contains(&later), "{later} ms later");
    // The next renewal notices that the lock was taken away.
    let began = Instant::now();
    watch.int("DEL job");
    in_time(guard.lost()).await;
    assert!(began.elapsed() < Duration::from_secs(20));
    lost(guard.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_held_beyond_the_least_time_is_renewed_and_released_at_once() {
    let (server, client) = server_and_client();
    let least = Duration::from_millis(900);
    let guard = in_time(client.acquire("job").lease(LEASE).at_least(least)).await.expect("a lock");
    let mut watch = server.client();
    let end = (guard.token() / 1000) as i64 + least.as_millis() as i64;
    soon("renewals keep the lock beyond the least time", || watch.end_of("job") > end + 1200);
    crate::is_held(&server, &guard);
    assert!(guard.release().await.is_ok());
    assert!(server.holders("job").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_kinds_of_locks_stay_for_the_least_time() {
    let (server, client) = server_and_client();
    let semaphore = client.semaphore("pool", 2);
    let permit = in_time(semaphore.acquire().lease(LEASE).at_least(LEAST)).await.expect("a permit");
    let both = in_time(client.acquire_all(["a", "b"]).lease(LEASE).at_least(LEAST)).await.expect("the locks");
    let reader = in_time(client.read("doc").lease(LEASE).at_least(LEAST)).await.expect("a lock");
    let tokens = [permit.token(), both.token(), both.token(), reader.token()];
    for guard in [permit, both, reader] {
        assert!(guard.release().await.is_ok());
    }
    assert!(in_time(semaphore.try_acquire_many(1)).await.is_ok(), "one of two permits is free");
    contention(in_time(semaphore.try_acquire_many(2)).await);
    let mut watch = server.client();
    for (name, token) in ["pool", "a", "b", "doc"].into_iter().zip(tokens) {
        let from_grant = watch.end_of(name) - (token / 1000) as i64;
        assert!(from_grant >= LEAST.as_millis() as i64 - 1, "{name}: {from_grant} ms");
    }
    for name in ["pool", "a", "b", "doc"] {
        freed(&server, name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_after_sets_how_long_the_lock_stays() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire("job").lease(LEASE)).await.expect("a lock");
    let began = server.client().now();
    assert!(guard.release_after(Duration::from_secs(2)).await.is_ok());
    let stays = server.client().end_of("job") - began;
    assert!((2000..3500).contains(&stays), "{stays} ms");
    contention(in_time(client.try_acquire("job")).await);
    server.client().outlive("job");
    // Zero releases the lock at once, even after `at_least`.
    let guard = in_time(client.acquire("job").at_least(Duration::from_secs(600))).await.expect("a lock");
    assert!(guard.release_after(Duration::ZERO).await.is_ok());
    assert!(server.holders("job").is_empty());
    // More than the server allows is refused, and the lock ends with its lease.
    let guard = in_time(client.acquire("job").lease(LEASE)).await.expect("a lock");
    server.client().ok("CONFIG SET dlock.max-lease 60000");
    let outcome = guard.release_after(Duration::from_secs(61)).await;
    assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
    freed(&server, "job");
    let outcome = in_time(client.acquire("job").at_least(Duration::from_secs(61))).await;
    assert!(matches!(outcome, Err(Error::Refused(_))), "the acquisition is refused, too: {outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_gone_does_not_come_back_to_stay() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire("job").at_least(LEAST)).await.expect("a lock");
    let mut other = server.client();
    other.int("DEL job");
    other.int("DLOCK.ACQUIRE job other PX 600000");
    lost(guard.release().await);
    assert_eq!(server.holders("job"), ["other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_from_a_server_that_forgot_the_lock_reports_the_loss() {
    let (mut server, client) = server_and_client();
    let guard = in_time(client.acquire("job").at_least(Duration::from_secs(600))).await.expect("a lock");
    server.kill9();
    let releasing = tokio::spawn(guard.release());
    server.boot();
    // The restarted server does not know the lock.
    lost(in_time(releasing).await.expect("a task"));
    assert_eq!(lock_info(&mut server.client(), "job"), None);
}

/// The task that renews the lock has to learn of the new lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_becomes_shorter_is_renewed_in_time() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(600))).await.expect("a lock");
    assert!(guard.extend(LEASE).await.is_ok());
    let mut watch = server.client();
    let renewals = counter(&mut watch, "renewals");
    soon("the guard renews the shorter lease", || counter(&mut watch, "renewals") >= renewals + 4);
    crate::is_held(&server, &guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_session_or_with_a_shorter_cap_cannot_stay() {
    let (server, client) = server_and_client();
    let session = in_time(Session::open(&client, Duration::from_secs(5))).await.expect("a session");
    let least = Duration::from_secs(9);
    for acquire in [
        client.acquire("job").session().at_least(least),
        client.acquire("job").in_session(&session).at_least(least),
        client.acquire("job").max_hold(least - Duration::from_millis(1)).at_least(least),
        client.acquire("job").at_least(Duration::ZERO),
    ] {
        let outcome = in_time(acquire).await;
        assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
    }
    for acquire in [client.acquire("job").session(), client.acquire("job").in_session(&session)] {
        let guard = in_time(acquire).await.expect("a lock");
        assert!(matches!(guard.release_after(least).await, Err(Error::Invalid(_))));
        freed(&server, "job");
    }
    // A quorum keeps no lock after its release.
    let quorum = ["a", "b", "c"].map(|host| format!("redis://{host}"));
    let quorum = Client::quorum(quorum, least).open().expect("URLs");
    let outcome = in_time(quorum.acquire("job").lease(Duration::from_secs(5)).at_least(Duration::from_secs(5))).await;
    assert!(matches!(&outcome, Err(Error::Invalid(why)) if why.contains("after its release")), "{outcome:?}");
}
