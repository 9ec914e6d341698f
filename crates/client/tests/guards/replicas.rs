//! Grants that replicas have.

use std::time::{Duration, Instant};

use dlock_client::Error;
use dlock_testkit::{Server, soon};

use crate::{client_of, freed, in_queue, in_time, is_held};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

fn too_few<T: std::fmt::Debug>(outcome: Result<T, Error>, found: u32) {
    match outcome {
        Err(Error::TooFewReplicas { acknowledged, wanted, .. }) => assert_eq!((acknowledged, wanted), (found, 2)),
        other => panic!("{other:?}"),
    }
}

/// A primary whose replica acknowledges what is written.
fn pair() -> (Server, Server) {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    soon("the replica acknowledges", || {
        client.ok("SET x 1");
        client.int("WAIT 1 1000") == 1
    });
    client.int("DEL x");
    (primary, replica)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_enough_replicas_have_is_on_them_at_once_and_after_a_wait() {
    let (primary, replica) = pair();
    let client = client_of(&primary);
    let at_once = in_time(client.try_acquire("job").replicas(1, LONG)).await.expect("a lock");
    is_held(&replica, &at_once);
    assert_eq!(primary.client().calls("dlock.renew"), 0, "the grant was enough");
    let waiting = in_queue(&primary, client.acquire("job").replicas(1, LONG));
    let mut watch = primary.client();
    soon("what follows the request that waits is in the server already: one round trip", || {
        let list = watch.text("CLIENT LIST");
        let waits = list.lines().find(|client| client.contains(" cmd=dlock.acquire "));
        waits.is_some_and(|client| !client.contains(" qbuf=0 "))
    });
    assert!(at_once.release().await.is_ok());
    let waited = in_time(waiting).await.expect("a task").expect("a lock");
    is_held(&replica, &waited);
    assert!(waited.renew().await.is_ok());
    assert!(waited.release().await.is_ok());
    let several = in_time(client.acquire_all(["a", "b"]).replicas(1, LONG)).await.expect("the locks");
    assert!(several.renew().await.is_ok());
    for name in ["a", "b"] {
        assert_eq!(replica.holders(name), [several.owner().to_owned()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_are_an_error_and_leave_nothing() {
    let (primary, _replica) = pair();
    let client = client_of(&primary);
    for acquire in [client.try_acquire("job"), client.acquire("job"), client.acquire("job").session()] {
        let outcome = in_time(acquire.lease(Duration::from_secs(600)).replicas(2, SHORT)).await;
        let error = outcome.as_ref().expect_err("an error").to_string();
        assert_eq!(error, "1 of 2 replicas acknowledged in time");
        too_few(outcome, 1);
        freed(&primary, "job");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_does_not_wait_for_replicas() {
    let (primary, _replica) = pair();
    let client = client_of(&primary);
    let _held = in_time(client.acquire("job")).await.expect("a lock");
    let began = Instant::now();
    crate::contention(in_time(client.try_acquire("job").replicas(2, LONG)).await);
    assert!(began.elapsed() < LONG / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_acknowledged_renewals_count() {
    let (primary, replica) = pair();
    let client = client_of(&primary);
    let lease = Duration::from_millis(1500);
    for session in [false, true] {
        let acquire = client.acquire("job").lease(lease).replicas(1, Duration::from_millis(200));
        let acquire = if session { acquire.session() } else { acquire };
        let guard = in_time(acquire).await.expect("a lock");
        replica.freeze();
        let outcome = in_time(guard.renew()).await;
        assert!(matches!(outcome, Err(Error::TooFewReplicas { .. })), "{outcome:?}");
        in_time(guard.lost()).await;
        assert_eq!(guard.remaining(), Duration::ZERO);
        replica.thaw();
        replica.wait_synced(&primary);
        drop(guard);
        freed(&primary, "job");
    }
}
