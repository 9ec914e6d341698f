//! Guards that are bound to a connection.

use std::time::Duration;

use dlock_client::{Client, Guard};

use crate::{client_of, freed, in_queue, in_time, is_held, lost, not_yet, server_and_client};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::{Server, soon};

const LEASE: Duration = Duration::from_millis(900);

/// Returns the id of the connection that the lock is bound to.
fn connection(server: &Server, guard: &Guard) -> i64 {
    let name = String::from_utf8_lossy(guard.name()).into_owned();
    server.client().session_of(&name, guard.owner(), "exclusive").expect("a session")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_keeps_the_lease_alive() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(LEASE).session()).await.expect("a lock");
    connection(&server, &guard);
    let mut watch = server.client();
    let end = watch.end_of("job");
    soon("two leases have passed", || watch.end_of("job") > end + 2 * LEASE.as_millis() as i64);
    is_held(&server, &guard);
    assert_eq!(watch.calls("dlock.renew"), 0);
    assert!(guard.remaining() <= LEASE);
    not_yet(guard.lost()).await;
    assert!(guard.release().await.is_ok());
    assert!(server.holders("job").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_lost_when_its_connection_breaks() {
    let server = Server::start();
    let guard =
        in_time(client_of(&server).acquire("job").lease(Duration::from_secs(600)).session()).await.expect("a lock");
    server.client().int(format!("CLIENT KILL ID {}", connection(&server, &guard)));
    in_time(guard.lost()).await;
    assert_eq!(guard.remaining(), Duration::ZERO);
    freed(&server, "job");
    lost(guard.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_lost_when_its_lock_was_deleted() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(LEASE).session()).await.expect("a lock");
    server.client().int("DEL job");
    in_time(guard.lost()).await;
    lost(guard.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_lost_when_the_server_is_silent_for_a_lease() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(LEASE).session()).await.expect("a lock");
    server.freeze();
    in_time(guard.lost()).await;
    server.thaw();
    drop(guard);
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn guards_do_not_share_a_connection() {
    let (server, client) = server_and_client();
    let one = in_time(client.acquire("one").session()).await.expect("a lock");
    let other = in_time(client.acquire("other").session()).await.expect("a lock");
    assert_ne!(connection(&server, &one), connection(&server, &other));
    drop(one);
    freed(&server, "one");
    is_held(&server, &other);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_waits_in_the_queue_like_any_other_request() {
    let (server, client) = server_and_client();
    let first = in_time(client.acquire("job")).await.expect("a lock");
    let waiting = client.acquire("job").session();
    let waiting = tokio::spawn(async move { waiting.await });
    server.left_waiting(1);
    drop(first);
    let guard = in_time(waiting).await.expect("a task").expect("a lock");
    connection(&server, &guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_of_a_session_is_closed_with_its_guard() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").session()).await.expect("a lock");
    let id = connection(&server, &guard);
    assert!(guard.release().await.is_ok());
    server.client().outlive_client(id);
}

/// Starts a server on which the end of a connection does not free its locks at once, so that they can be bound again.
fn patient_server() -> Server {
    Server::conf("dlock.session-grace 5000")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_bound_again_when_its_connection_breaks() {
    for replicas in [0, 1] {
        let server = patient_server();
        let replica = server.replica();
        let client = client_of(&server);
        let acquire = client.acquire("job").lease(LEASE).replicas(replicas, Duration::from_secs(2)).session();
        let guard = in_time(acquire).await.expect("a lock");
        let lost = guard.lost();
        let first = connection(&server, &guard);
        server.client().int(format!("CLIENT KILL ID {first}"));
        let mut watch = server.client();
        soon("another connection has it", || {
            watch.session_of("job", guard.owner(), "exclusive").is_some_and(|id| id != first)
        });
        let end = watch.end_of("job");
        soon("two leases have passed", || watch.end_of("job") > end + 2 * LEASE.as_millis() as i64);
        is_held(&server, &guard);
        not_yet(lost).await;
        assert!(guard.renew().await.is_ok() && !guard.remaining().is_zero());
        let second = connection(&server, &guard);
        assert!(guard.release().await.is_ok());
        server.client().outlive_client(second);
        drop(replica);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_locks_of_a_session_are_bound_again_after_a_failover() {
    let (mut primary, replica) = Server::start().with_replica();
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}", primary.port(), replica.port());
    let client = dlock_client::Client::open(&url).expect("URLs");
    let acquire = client.acquire_all(["one", "other"]).lease(Duration::from_secs(5)).session();
    let guard = in_time(acquire).await.expect("the locks");
    replica.wait_synced(&primary);
    primary.kill9();
    replica.promote();
    let mut watch = replica.client();
    for name in ["one", "other"] {
        soon("it is bound", || watch.session_of(name, guard.owner(), "exclusive").is_some());
    }
    // The answers to the bindings may still be on their way.
    in_time(async { while guard.renew().await.is_err() {} }).await;
    assert!(guard.release().await.is_ok());
    freed(&replica, "one");
    freed(&replica, "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_bound_elsewhere_when_its_server_hangs() {
    let (primary, replica) = Server::start().with_replica();
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}", primary.port(), replica.port());
    let client = dlock_client::Client::open(&url).expect("URLs");
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(15)).session()).await.expect("a lock");
    replica.wait_synced(&primary);
    // A frozen server keeps its connections open.
    primary.freeze();
    replica.promote();
    let mut watch = replica.client();
    soon("it is bound there", || watch.session_of("job", guard.owner(), "exclusive").is_some());
    // The answer to the binding may still be on its way.
    in_time(async { while guard.renew().await.is_err() {} }).await;
    assert!(guard.release().await.is_ok());
    freed(&replica, "job");
    primary.thaw();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_cannot_be_bound_again_is_lost_when_its_lease_ends() {
    let mut server = patient_server();
    let guard = in_time(client_of(&server).acquire("job").lease(LEASE).session()).await.expect("a lock");
    let lost = guard.lost();
    server.kill9();
    let left = guard.remaining();
    not_yet(guard.lost()).await;
    in_time(lost).await;
    assert!(left <= LEASE && guard.remaining().is_zero());
    crate::lost(guard.renew().await);
}

/// Until the new connection is bound, the guard does not know whether the server has kept the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_claims_nothing_while_its_connection_is_being_replaced() {
    let server = patient_server();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(600)).session()).await.expect("a lock");
    assert!(guard.is_held());
    proxy.keep_from("SESSION");
    server.client().int(format!("CLIENT KILL ID {}", connection(&server, &guard)));
    soon("nothing is claimed", || !guard.is_held());
    not_yet(guard.lost()).await;
    assert!(guard.remaining().is_zero());
    proxy.deliver();
    soon("it is bound again", || guard.is_held());
    not_yet(guard.lost()).await;
    assert!(guard.release().await.is_ok());
}

/// An abandoned command may arrive long after the lock was bound to another connection. It binds the lock to the
/// connection that it came on.
#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_arrives_late_does_not_release_the_lock() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    // Opens three connections for waits, which are free afterwards.
    let mut other = server.client();
    other.int("DLOCK.MACQUIRE 3 a b c other");
    let waits = ["a", "b", "c"].map(|name| in_queue(&server, client.acquire(name).wait(Duration::from_secs(30))));
    for name in ["a", "b", "c"] {
        other.int(format!("DLOCK.RELEASE {name} other"));
    }
    for wait in waits {
        drop(in_time(wait).await.expect("a task").expect("a lock"));
    }
    client.settled().await;
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(12)).session()).await.expect("a lock");
    let first = connection(&server, &guard);
    let mut watch = server.client();
    let before = watch.calls("dlock.renew");
    proxy.keep_commands();
    soon("a new connection has it", || {
        watch.session_of("job", guard.owner(), "exclusive").is_some_and(|id| id != first)
    });
    let renewals = watch.calls("dlock.renew");
    in_time(async { while guard.renew().await.is_err() {} }).await;
    proxy.deliver();
    soon("the late one has arrived", || watch.calls("dlock.renew") > renewals.max(before + 1));
    server.client().outlive_client(first);
    is_held(&server, &guard);
    not_yet(guard.lost()).await;
    assert!(guard.renew().await.is_ok() && guard.release().await.is_ok());
}

/// The connection of a request breaks before the server has read the request. The late copy binds the lock that it gets
/// to that connection, whose end releases the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_outlasts_its_connection_releases_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let mut watch = server.client();
    for waits in [false, true] {
        proxy.strand("SESSION", "SESSION");
        let acquire = client.acquire("job").lease(Duration::from_secs(600)).session();
        let acquire = if waits { acquire } else { acquire.no_wait() };
        let guard = in_time(acquire).await.expect("a lock");
        let before = watch.calls("dlock.acquire");
        proxy.deliver();
        soon("the late one has arrived", || watch.calls("dlock.acquire") > before);
        // The end of its connection follows.
        tokio::time::sleep(Duration::from_millis(300)).await;
        is_held(&server, &guard);
        not_yet(guard.lost()).await;
        assert!(guard.release().await.is_ok());
        client.settled().await;
    }
}

/// A late copy of the command that binds the lock would release it, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_lost_if_a_binding_may_outlast_its_connection() {
    let server = patient_server();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let guard = in_time(client.acquire("job").lease(Duration::from_secs(600)).session()).await.expect("a lock");
    proxy.strand("SESSION", "SESSION");
    server.client().int(format!("CLIENT KILL ID {}", connection(&server, &guard)));
    let told = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await;
    assert!(told.is_ok(), "the guard relies on another connection");
    proxy.deliver();
    lost(guard.renew().await);
}
