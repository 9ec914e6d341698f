//! Acquisitions that nobody waits for any more leave nothing behind.

use std::future::IntoFuture;
use std::time::Duration;

use dlock_client::{Client, Error};

use crate::{client_of, freed, in_queue, in_time, server_and_client};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::{Server, lock_info, soon};

const LONG: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_acquisition_that_is_dropped_leaves_the_queue() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    for acquire in [client.acquire("job"), client.acquire("job").session(), client.acquire("job").wait(LONG)] {
        let waiting = in_queue(&server, acquire);
        waiting.abort();
        server.left_waiting(0);
    }
    assert!(guard.release().await.is_ok());
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_acquisition_was_dropped_before_the_answer_is_released() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    proxy.keep_integers();
    let acquiring = tokio::spawn(client.acquire("job").lease(LONG).into_future());
    let mut watch = server.client();
    soon("it is granted", || lock_info(&mut watch, "job").is_some());
    acquiring.abort();
    proxy.cut();
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_an_acquisition_that_failed_without_an_answer_is_released() {
    let (server, client) = server_and_client();
    // The request needs an open connection on which it can be sent: the frozen server answers on no new one.
    let both = [in_time(client.acquire("one")).await, in_time(client.acquire("other")).await];
    for guard in both {
        assert!(guard.expect("a lock").release().await.is_ok());
    }
    server.freeze();
    let outcome = in_time(client.acquire("job").lease(LONG).wait(Duration::from_millis(50))).await;
    assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
    server.thaw();
    // The server now reads the request and its release, in any order.
    let mut watch = server.client();
    soon("the release was executed", || watch.calls("dlock.release") >= 3);
    freed(&server, "job");
}

#[test]
fn a_guard_that_outlives_its_runtime_does_not_panic() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let acquire = client_of(&server).acquire("job").lease(Duration::from_millis(500));
    let guard = runtime.block_on(async { acquire.await.expect("a lock") });
    let lost = guard.lost();
    drop(runtime);
    drop(guard);
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    other.block_on(lost);
    freed(&server, "job");
}
