//! Observers of a lock.

use std::time::{Duration, SystemTime};

use dlock_client::{Client, Error, HoldInfo, Watch};
use dlock_testkit::cluster::Cluster;
use dlock_testkit::{Server, Setup, soon};

use crate::{client_of, in_time, server_and_client};

/// The tokens of the next holders.
async fn next(watch: &mut Watch) -> Vec<u64> {
    holds(watch).await.iter().map(|hold| hold.token).collect()
}

async fn holds(watch: &mut Watch) -> Vec<HoldInfo> {
    in_time(watch.next()).await.expect("more to come").expect("holders")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_the_holder_is_reported_without_polling() {
    let (server, client) = server_and_client();
    let mut watch = client.watch("leader").expect("one server");
    assert!(next(&mut watch).await.is_empty());
    let before = SystemTime::now() - Duration::from_secs(1);
    let first = in_time(client.acquire("leader")).await.expect("a lock");
    let holder = holds(&mut watch).await.remove(0);
    assert_eq!((holder.owner.as_slice(), holder.token), (first.owner().as_bytes(), first.token()));
    assert!(holder.since() > before && holder.since() < SystemTime::now() + Duration::from_secs(1));
    let mut counting = server.client();
    let asked = counting.calls("dlock.info");
    // Renewals are no change.
    assert!(first.renew().await.is_ok());
    counting.pass_ms(300);
    assert_eq!(counting.calls("dlock.info"), asked);
    assert!(first.release().await.is_ok());
    assert!(next(&mut watch).await.is_empty());
    let second = in_time(client.acquire("leader")).await.expect("a lock");
    assert_eq!(next(&mut watch).await, [second.token()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_lease_is_reported() {
    let server = Server::start();
    let mut watch = client_of(&server).watch("leader").expect("one server");
    assert!(next(&mut watch).await.is_empty());
    let token = server.client().int("DLOCK.ACQUIRE leader other PX 300");
    assert_eq!(next(&mut watch).await, [token as u64]);
    assert!(next(&mut watch).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_reported_once_and_survived() {
    let mut server = Server::start();
    let client = client_of(&server);
    let mut watch = client.watch("leader").expect("one server");
    let guard = in_time(client.acquire("leader").lease(Duration::from_secs(60))).await.expect("a lock");
    while next(&mut watch).await != [guard.token()] {}
    server.kill9();
    let outcome = in_time(watch.next()).await.expect("more to come");
    assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
    server.boot();
    // The server has forgotten the lock.
    assert!(next(&mut watch).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_with_an_error_of_the_server() {
    let plain = Setup::plain().start();
    let mut watch = client_of(&plain).watch("leader").expect("one server");
    let outcome = in_time(watch.next()).await.expect("an error");
    assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
    assert!(in_time(watch.next()).await.is_none());
    let quorum = Client::quorum(["redis://127.0.0.1:1"], Duration::from_secs(60)).open().expect("a quorum");
    assert!(matches!(quorum.watch("leader"), Err(Error::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_follows_the_slot_of_its_lock() {
    let cluster = Cluster::start(2);
    let from = cluster.home_of("leader");
    let client = client_of(&cluster.nodes[1 - from]);
    let mut watch = client.watch("leader").expect("a cluster");
    assert!(next(&mut watch).await.is_empty());
    let guard = in_time(client.acquire("leader")).await.expect("a lock");
    assert_eq!(next(&mut watch).await, [guard.token()]);
    cluster.begin_move("leader", from, 1 - from);
    cluster.migrate("leader", from, 1 - from);
    cluster.end_move("leader", 1 - from);
    assert!(guard.release().await.is_ok());
    while !holds(&mut watch).await.is_empty() {}
    let next_one = in_time(client.acquire("leader")).await.expect("a lock");
    assert_eq!(next(&mut watch).await, [next_one.token()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_of_a_watch_is_closed_with_it() {
    let server = Server::start();
    let mut watch = client_of(&server).watch("leader").expect("one server");
    assert!(next(&mut watch).await.is_empty());
    let mut client = server.client();
    let count = |client: &mut dlock_testkit::Client| client.text("CLIENT LIST").lines().count();
    let connections = count(&mut client);
    drop(watch);
    soon("its connection is closed", || count(&mut client) < connections);
}
