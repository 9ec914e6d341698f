//! Renewals and releases whose answers do not come: a guard counts only on what is certain.

use std::time::Duration;

use dlock_client::{Acquire, Client, Error, Guard};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::{Server, Stopwatch, lock_info, soon};
use tokio::time::sleep;

use crate::{freed, in_queue, in_time, is_held, server_and_client};

const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);

/// Returns two requests: the guard of the first renews itself, that of the second does not.
fn each(client: &Client, lease: Duration) -> [Acquire; 2] {
    [client.acquire("job").lease(lease), client.acquire("job").lease(lease).no_renewal()]
}

fn unreachable<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
}

#[track_caller]
fn at_most(most: Duration, guard: &Guard) {
    let left = guard.remaining();
    assert!(left <= most, "{left:?} are left");
}

/// Extends the lock as soon as the server answers.
async fn extended(guard: &Guard, lease: Duration) {
    while let Err(error) = in_time(guard.extend(lease)).await {
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_extension_without_an_answer_the_shorter_lease_counts() {
    let (server, client) = server_and_client();
    for (before, asked) in [(SHORT, LONG), (LONG, SHORT)] {
        for acquire in each(&client, before) {
            let guard = in_time(acquire).await.expect("a lock");
            server.freeze();
            unreachable(in_time(guard.extend(asked)).await);
            at_most(SHORT, &guard);
            server.thaw();
            drop(guard);
            freed(&server, "job");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_that_may_still_come_is_counted() {
    for is_dropped in [false, true] {
        let (server, client) = server_and_client();
        for acquire in each(&client, Duration::from_secs(20)) {
            let guard = in_time(acquire).await.expect("a lock");
            server.freeze();
            let extending = guard.extend(Duration::from_secs(10));
            if is_dropped {
                assert!(tokio::time::timeout(Duration::from_millis(50), extending).await.is_err());
            } else {
                unreachable(in_time(extending).await);
            }
            server.thaw();
            extended(&guard, LONG).await;
            at_most(Duration::from_secs(10), &guard);
            is_held(&server, &guard);
            assert!(guard.release().await.is_ok());
        }
    }
}

/// The network delivers the renewals in another order than they were sent in.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_never_promises_more_than_the_server_has() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    for acquire in each(&client, Duration::from_secs(20)) {
        let guard = in_time(acquire).await.expect("a lock");
        proxy.keep_commands();
        unreachable(in_time(guard.extend(Duration::from_secs(8))).await);
        extended(&guard, LONG).await;
        let mut watch = server.client();
        assert!(lock_info(&mut watch, "job").expect("a lock").ttl > 50_000);
        proxy.deliver();
        soon("the first one has come", || lock_info(&mut watch, "job").expect("a lock").ttl < 9_000);
        let ttl = lock_info(&mut watch, "job").expect("a lock").ttl;
        at_most(Duration::from_millis(ttl as u64 + 1), &guard);
        assert!(guard.release().await.is_ok());
    }
}

/// After a long wait the acquisition renews the lease, before there is a guard.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_of_the_acquisition_that_may_still_come_is_counted() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let mut other = server.client();
    for acquire in each(&client, SHORT) {
        other.run("DLOCK.ACQUIRE job other PX 60000");
        // The answer shows that the connection which the renewal takes is open.
        assert!(in_time(client.info("job")).await.expect("an answer").is_some());
        let waiting = in_queue(&server, acquire);
        sleep(SHORT / 2).await;
        proxy.keep_commands();
        other.int("DLOCK.RELEASE job other");
        let guard = in_time(waiting).await.expect("a task").expect("a lock");
        extended(&guard, LONG).await;
        assert!(lock_info(&mut other, "job").expect("a lock").ttl > 50_000);
        proxy.deliver();
        soon("the first one has come", || lock_info(&mut other, "job").expect("a lock").ttl < 4_000);
        let ttl = lock_info(&mut other, "job").expect("a lock").ttl;
        at_most(Duration::from_millis(ttl as u64 + 1), &guard);
        assert!(guard.release().await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_becomes_shorter_is_renewed_in_time() {
    for is_answered in [true, false] {
        let (server, client) = server_and_client();
        let guard = in_time(client.acquire("job").lease(LONG)).await.expect("a lock");
        // By now its keeper waits for the next renewal.
        sleep(Duration::from_millis(100)).await;
        if is_answered {
            assert!(in_time(guard.extend(SHORT)).await.is_ok());
        } else {
            server.freeze();
            unreachable(in_time(guard.extend(SHORT)).await);
            server.thaw();
        }
        sleep(SHORT + Duration::from_millis(1500)).await;
        is_held(&server, &guard);
        assert!(!guard.remaining().is_zero());
        at_most(SHORT, &guard);
        assert!(guard.release().await.is_ok());
    }
}

/// An extension waits for its answer only as long as a renewal of the lease that is certain would.
#[tokio::test(flavor = "multi_thread")]
async fn an_extension_on_a_dead_connection_leaves_time_for_renewals() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let guard = in_time(client.acquire("job").lease(SHORT)).await.expect("a lock");
    proxy.forget_connections();
    proxy.delay_replies(Duration::from_millis(100));
    unreachable(in_time(guard.extend(LONG)).await);
    sleep(SHORT).await;
    is_held(&server, &guard);
    assert!(!guard.remaining().is_zero());
    assert!(guard.release().await.is_ok());
}

/// A late answer is never taken for that to another command.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_owes_an_answer_is_closed() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let guard = in_time(client.acquire("job").lease(LONG).no_renewal()).await.expect("a lock");
    for round in 0..3 {
        proxy.forget_connections();
        unreachable(in_time(guard.renew()).await);
        assert!(in_time(guard.renew()).await.is_ok(), "round {round}: on a new connection");
    }
    proxy.cut();
    assert!(in_time(guard.renew()).await.is_ok() || in_time(guard.renew()).await.is_ok());
    let mut watch = server.client();
    soon("two connections are left, beside the one that looks", || watch.text("CLIENT LIST").lines().count() <= 3);
    assert!(guard.release().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_an_answer_ends_in_time_and_goes_on_in_the_background() {
    let (server, client) = server_and_client();
    let limit = Duration::from_secs(5);
    for (lease, longest) in [(LONG, limit), (SHORT, SHORT)] {
        for acquire in [client.acquire("job").lease(lease).no_renewal(), client.acquire("job").session().lease(lease)] {
            let guard = in_time(acquire).await.expect("a lock");
            let lost = guard.lost();
            server.freeze();
            let began = Stopwatch::start();
            unreachable(in_time(guard.release()).await);
            began.is_between(Duration::ZERO, longest + Duration::from_millis(250), "a release");
            in_time(lost).await;
            server.thaw();
            freed(&server, "job");
        }
    }
}

/// A firewall has forgotten the connections: the first try finds that out, and the next try has a new connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_try_after_one_without_an_answer_has_a_new_connection() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    for waits in [false, true] {
        let client = Client::open(&proxy.url()).expect("a URL");
        // Opens a connection for requests that wait, and the shared one for short commands.
        for guard in [in_time(client.acquire("one")).await, in_time(client.acquire("other")).await] {
            assert!(guard.expect("a lock").release().await.is_ok());
        }
        let acquire = client.acquire("job");
        let acquire = if waits { acquire.wait(Duration::from_secs(1)) } else { acquire.no_wait() };
        proxy.forget_connections();
        unreachable(in_time(acquire.clone()).await);
        let guard = in_time(acquire).await.expect("a lock");
        is_held(&server, &guard);
        assert!(guard.release().await.is_ok());
    }
}

/// The session of the lock has lost its connection, and the server has given the lock to another owner since.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_a_lost_lock_reports_the_loss_even_if_an_answer_is_lost() {
    let server = Server::start();
    let network = Proxy::to(&server);
    let client = Client::open(&network.url()).expect("a URL");
    let mut other = server.client();
    let guard = in_time(client.acquire("job").session().lease(LONG)).await.expect("a lock");
    network.keep_from("SESSION");
    other.run("CLIENT KILL TYPE normal SKIPME yes");
    soon("the lock is free, and the guard is not held", || other.int("EXISTS job") == 0 && !guard.is_held());
    other.int("DLOCK.ACQUIRE job other PX 60000");
    network.strand("DLOCK.RELEASE", "DLOCK.RELEASE");
    let outcome = in_time(guard.release()).await;
    assert!(matches!(outcome, Err(Error::Lost)), "{outcome:?}");
    network.deliver();
}
