//! Lost replies: the client sends the command again, and a repeated acquisition or release has no second effect.

use std::future::IntoFuture;
use std::time::Duration;

use dlock_client::{Client, Error};

use crate::{in_time, is_held};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::replica::counter;
use dlock_testkit::{Server, Stopwatch, lock_info, soon};

/// A server, a network before it, and a client.
fn behind_a_network() -> (Server, Proxy, Client) {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    (server, proxy, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_repeat_of_a_granted_request_gets_the_first_grant() {
    let (server, proxy, client) = behind_a_network();
    for acquire in [client.acquire("job"), client.try_acquire("job"), client.read("job")] {
        proxy.keep_integers();
        let acquiring = tokio::spawn(acquire.lease(Duration::from_secs(600)).into_future());
        let mut watch = server.client();
        soon("it is granted", || lock_info(&mut watch, "job").is_some());
        let token = lock_info(&mut watch, "job").expect("a lock").token;
        proxy.cut();
        let guard = in_time(acquiring).await.expect("a task").expect("a lock");
        assert_eq!(guard.token() as i64, token, "the first grant");
        assert_eq!(lock_info(&mut watch, "job").expect("a lock").count, 1);
        is_held(&server, &guard);
        assert!(guard.release().await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_reply_is_lost_succeeds() {
    let (server, proxy, client) = behind_a_network();
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(600))).await.expect("a lock");
    proxy.keep_integers();
    let releasing = tokio::spawn(guard.release());
    let mut watch = server.client();
    soon("it is released", || lock_info(&mut watch, "job").is_none());
    proxy.cut();
    assert!(in_time(releasing).await.expect("a task").is_ok());
}

/// The server executes the first release, and the proxy replaces its reply: the second release gets nil. After the
/// error of an agent, the first one may have been executed, so nil is a success. A server that loads executes nothing,
/// so nil means that the lock was lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_a_majority_may_have_released_the_lock() {
    for (error, is_lost) in [
        ("-LOADING no majority has answered\r\n", false),
        ("-LOADING Redis is loading the dataset in memory\r\n", true),
        ("-LOADING Valkey is loading the dataset in memory\r\n", true),
    ] {
        let (_server, proxy, client) = behind_a_network();
        let guard = in_time(client.acquire("job").lease(Duration::from_secs(600))).await.expect("a lock");
        proxy.say("DLOCK.RELEASE", error);
        let released = in_time(guard.release()).await;
        assert_eq!(matches!(released, Err(Error::Lost)), is_lost, "{error}: {released:?}");
        assert!(is_lost || released.is_ok(), "{error}: {released:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_whose_reply_is_lost_is_sent_again() {
    let (server, proxy, client) = behind_a_network();
    let lease = Duration::from_secs(6);
    let guard = in_time(client.acquire("job").lease(lease)).await.expect("a lock");
    let mut watch = server.client();
    proxy.keep_integers();
    soon("it is renewed", || counter(&mut watch, "renewals") >= 1);
    let began = Stopwatch::start();
    proxy.cut();
    soon("it is renewed again", || counter(&mut watch, "renewals") >= 2);
    // The next renewal that is due by itself comes after a third of the lease.
    began.is_between(Duration::ZERO, lease / 6, "the repeat");
    assert!(guard.renew().await.is_ok());
    is_held(&server, &guard);
}
