//! Guards that are bound to a connection.

use std::time::Duration;

use dlock_client::Guard;

use crate::{client_of, freed, in_time, is_held, lost, not_yet, server_and_client};
use dlock_testkit::{Server, soon};

const LEASE: Duration = Duration::from_millis(900);

/// The id of the connection that it is bound to.
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
async fn it_is_lost_when_its_connection_breaks() {
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
async fn it_is_lost_when_it_was_deleted() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(LEASE).session()).await.expect("a lock");
    server.client().int("DEL job");
    in_time(guard.lost()).await;
    lost(guard.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_lost_when_the_server_says_nothing_for_a_lease() {
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
async fn it_waits_in_the_queue_like_any_other() {
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
async fn its_connection_is_closed_with_it() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").session()).await.expect("a lock");
    let id = connection(&server, &guard);
    assert!(guard.release().await.is_ok());
    server.client().outlive_client(id);
}
