//! Servers that are away when a lock is wanted.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use dlock_client::{Client, Error};
use dlock_testkit::Server;
use dlock_testkit::process::free_port;

use crate::{client_of, contention, in_queue, in_time, is_held, server_and_client};

fn unreachable<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_begins_while_the_server_is_away_gets_the_lock_when_it_is_back() {
    let mut server = Server::start();
    let client = client_of(&server);
    server.kill9();
    let waits = [
        client.acquire("one").wait(Duration::from_secs(60)),
        client.acquire("two").session(),
        client.try_acquire("three").outage(Duration::from_secs(60)),
    ];
    let waits = waits.map(|acquire| tokio::spawn(acquire.into_future()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    server.boot();
    for wait in waits {
        is_held(&server, &in_time(wait).await.expect("a task").expect("a lock"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_over_with_the_wait_or_with_its_own_limit() {
    let client = Client::open(&format!("redis://127.0.0.1:{}", free_port())).expect("a URL");
    let limit = Duration::from_millis(400);
    let acquires = [
        client.acquire("job").wait(limit),
        client.acquire("job").wait(limit).session(),
        client.acquire("job").outage(limit),
        client.try_acquire("job").outage(limit),
    ];
    for acquire in acquires {
        let began = Instant::now();
        unreachable(in_time(acquire).await);
        assert!(began.elapsed() >= limit && began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
    let began = Instant::now();
    unreachable(in_time(client.try_acquire("job").outage(Duration::ZERO)).await);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_extends_the_wait_by_seconds_at_most() {
    let (server, client) = server_and_client();
    server.freeze();
    let began = Instant::now();
    unreachable(in_time(client.acquire("job").wait(Duration::from_millis(200))).await);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    server.thaw();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_durations_are_accepted_except_as_a_lease() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire("job").wait(Duration::MAX)).await.expect("a lock");
    let waiting = in_queue(&server, client.acquire("job").wait(Duration::MAX));
    contention(in_time(client.try_acquire("job").outage(Duration::MAX)).await);
    drop(guard);
    let _guard = in_time(waiting).await.expect("a task").expect("a lock");
    let outcome = in_time(client.acquire("job").lease(Duration::MAX)).await;
    assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
}
