//! Waits that are dropped at the moment of the grant: the next owner gets the lock.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use dlock_client::{Acquire, Client};
use dlock_testkit::Server;
use dlock_testkit::proxy::Proxy;

use crate::{client_of, in_queue};

/// Longer than the test, so that no hold ends with its lease.
const LEASE: Duration = Duration::from_secs(3600);

/// How long the next owner waits. A busy machine needs a part of this time; if a hold is left, all of it passes.
const NEXT_MS: u64 = 15_000;

/// The limit of the waits that have one.
const LIMIT: Duration = Duration::from_millis(60);

/// The acquisitions that wait, each with the command of another owner that keeps it waiting.
fn each(client: &Client) -> [(Acquire, &'static str); 5] {
    [
        (client.acquire("job"), "DLOCK.ACQUIRE job other PX 3600000"),
        (client.acquire("job").session(), "DLOCK.ACQUIRE job other PX 3600000"),
        (client.write("job"), "DLOCK.RLOCK job other PX 3600000"),
        (client.semaphore("job", 2).acquire_many(2), "DLOCK.SACQUIRE job other 2 PX 3600000"),
        (client.acquire_all(["job", "more"]), "DLOCK.ACQUIRE more other PX 3600000"),
    ]
    .map(|(acquire, held)| (acquire.lease(LEASE), held))
}

/// Returns for how long before or after the grant a wait is dropped: one of the two is zero. Most are near the grant.
fn offsets() -> impl Iterator<Item = (Duration, Duration)> {
    let after = |us: u64| (Duration::ZERO, Duration::from_micros(us));
    let before = |us: u64| (Duration::from_micros(us), Duration::ZERO);
    let near = (0..1000).step_by(50);
    near.clone().map(before).chain(near.map(after)).chain((1000..6000).step_by(500).map(after))
}

/// Waits for this time, to a few microseconds.
async fn pass(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::task::yield_now().await;
    }
}

/// Drops waits around the moment of the grant, and lets another owner acquire the locks that they waited for.
async fn the_next_one_gets_it(server: &Server, client: &Client) {
    let (mut other, mut next) = (server.client(), server.client());
    for (before, after) in offsets() {
        for (acquire, held) in each(client) {
            let shown = format!("{acquire:?}, {before:?} before or {after:?} after");
            other.run(held);
            let waiting = in_queue(server, acquire);
            let releasing = tokio::task::spawn_blocking(move || {
                std::thread::sleep(before);
                let name = held.split(' ').nth(1).expect("a name");
                other.int(format!("DLOCK.RELEASE {name} other"));
                other
            });
            // The release takes about as long as this thread takes to start it.
            pass(after).await;
            waiting.abort();
            other = releasing.await.expect("a release");
            drop(waiting.await);
            for name in ["job", "more"] {
                let request = format!("DLOCK.ACQUIRE {name} next PX 3600000 BLOCK {NEXT_MS}");
                assert!(next.run(&request) != redis::Value::Nil, "{shown}: {name} is still held");
                next.run(format!("DLOCK.RELEASE {name} next"));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_dropped_at_the_moment_of_the_grant_leaves_no_hold() {
    let server = Server::start();
    the_next_one_gets_it(&server, &client_of(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_dropped_before_the_late_answer_of_its_grant_leaves_no_hold() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    proxy.delay_replies(Duration::from_millis(3));
    the_next_one_gets_it(&server, &client).await;
}

/// The server grants to a connection that it takes for open.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_to_a_connection_whose_end_comes_late_is_released() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    proxy.delay_ends(Duration::from_secs(5));
    for (acquire, held) in each(&client) {
        let shown = format!("{acquire:?}");
        let (mut other, mut next) = (server.client(), server.client());
        other.run(held);
        let waiting = in_queue(&server, acquire);
        waiting.abort();
        drop(waiting.await);
        // After this time the client tries no more to release the lock.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let name = held.split(' ').nth(1).expect("a name");
        other.int(format!("DLOCK.RELEASE {name} other"));
        for name in ["job", "more"] {
            let request = format!("DLOCK.ACQUIRE {name} next PX 3600000 BLOCK {NEXT_MS}");
            assert!(next.run(&request) != redis::Value::Nil, "{shown}: {name} is still held");
            next.run(format!("DLOCK.RELEASE {name} next"));
        }
    }
}

/// The limit of a wait ends at the moment of the grant. The proxy delays the answer for more than the 150 ms of grace.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_whose_limit_ends_at_the_moment_of_the_grant_leaves_no_hold() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let clients = [client_of(&server), Client::open(&proxy.url()).expect("a URL")];
    proxy.delay_replies(Duration::from_millis(180));
    let (mut other, mut next) = (server.client(), server.client());
    for client in clients {
        for early in (0..4000).step_by(250).map(Duration::from_micros) {
            other.run("DLOCK.ACQUIRE job other PX 3600000");
            let began = Instant::now();
            let waiting = tokio::spawn(client.acquire("job").lease(LEASE).wait(LIMIT).into_future());
            // The server counts the limit from when it reads the request, and ends the wait about then.
            let end = began + LIMIT + Duration::from_millis(2);
            pass(end.saturating_duration_since(Instant::now()).saturating_sub(early)).await;
            other.run("DLOCK.RELEASE job other");
            drop(waiting.await);
            let request = format!("DLOCK.ACQUIRE job next PX 3600000 BLOCK {NEXT_MS}");
            assert!(next.run(&request) != redis::Value::Nil, "released {early:?} early: the lock is still held");
            next.run("DLOCK.RELEASE job next");
        }
    }
}
