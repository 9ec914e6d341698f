//! Waits end when they should, even if the server hangs or dies meanwhile.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use dlock_client::{Acquire, Client, Error, Guard};
use dlock_testkit::process::free_port;
use dlock_testkit::{Server, Stopwatch, soon};

use crate::{client_of, connections, freed, in_queue, in_time, is_held, server_and_client};

const LIMIT: Duration = Duration::from_secs(1);
/// How much later than its limit a wait may end.
const LATE: Duration = Duration::from_millis(250);
/// How long an acquisition that does not wait looks for an answer.
const TRY: Duration = Duration::from_secs(1);

/// How many kinds of acquisitions [`each`] returns.
const KINDS: usize = 4;

/// Acquisitions of a lock on connections of each kind.
fn each(client: &Client) -> [Acquire; KINDS] {
    [
        client.acquire("job"),
        client.acquire("job").session(),
        client.read("job"),
        client.acquire("job").replicas(1, Duration::from_millis(1)),
    ]
}

/// Fails unless the acquisition ended without a server, after this limit and at most [`LATE`] later.
#[track_caller]
fn unreachable_after(outcome: &Result<Guard, Error>, took: &Stopwatch, limit: Duration) {
    assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
    took.is_between(limit, limit + LATE, "a limit");
}

async fn timed(acquire: Acquire) -> (Result<Guard, Error>, Stopwatch) {
    let began = Stopwatch::start();
    let outcome = in_time(acquire).await;
    (outcome, began)
}

/// A client that has two open connections: the one for short commands, and a free one for a wait or a session.
async fn warm(server: &Server) -> Client {
    let (client, mut other) = (client_of(server), server.client());
    // The first connection becomes the one for short commands.
    let guard = in_time(client.try_acquire("one")).await.expect("a lock");
    assert!(guard.release().await.is_ok());
    other.int("DLOCK.ACQUIRE one other PX 600000");
    let waiting = in_queue(server, client.acquire("one"));
    other.int("DLOCK.RELEASE one other");
    let guard = in_time(waiting).await.expect("a task").expect("a lock");
    assert!(guard.release().await.is_ok());
    // Two more are open: `other`, and the one that counts them.
    soon("the client has two connections", || connections(server) == 4);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_without_a_server() {
    let client = Client::open(&format!("redis://127.0.0.1:{}", free_port())).expect("a URL");
    for acquire in each(&client) {
        let (outcome, took) = timed(acquire.wait(LIMIT)).await;
        unreachable_after(&outcome, &took, LIMIT);
    }
    for acquire in each(&client) {
        let (outcome, took) = timed(acquire.no_wait()).await;
        unreachable_after(&outcome, &took, TRY);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_with_a_server_that_hangs() {
    let server = Server::start();
    for with_connections in [false, true] {
        for number in 0..2 * KINDS {
            // The first failure closes the connections of a client, so each acquisition has a client of its own.
            let client = if with_connections { warm(&server).await } else { client_of(&server) };
            let acquire = each(&client)[number % KINDS].clone();
            server.freeze();
            let (acquire, limit) = if number < KINDS { (acquire.wait(LIMIT), LIMIT) } else { (acquire.no_wait(), TRY) };
            let (outcome, took) = timed(acquire).await;
            unreachable_after(&outcome, &took, limit);
            server.thaw();
            in_time(client.settled()).await;
            freed(&server, "job");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_if_the_server_fails_during_the_wait() {
    for hangs in [false, true] {
        let (mut server, client) = server_and_client();
        server.client().int("DLOCK.ACQUIRE job other PX 600000");
        for acquire in each(&client) {
            let began = Stopwatch::start();
            let waiting = in_queue(&server, acquire.wait(LIMIT));
            if hangs {
                server.freeze()
            } else {
                server.kill9()
            }
            let outcome = in_time(waiting).await.expect("a task");
            // The server had said that the lock is held.
            crate::contention(outcome);
            began.is_between(LIMIT, LIMIT + LATE, "a limit");
            if hangs {
                server.thaw()
            } else {
                server.boot()
            }
            server.left_waiting(0);
            // A server that was killed has forgotten the hold.
            server.client().run("DLOCK.RACQUIRE job other PX 600000");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_limit_an_outage_counts_from_the_last_answer() {
    for hangs in [false, true] {
        let (mut server, client) = server_and_client();
        server.client().int("DLOCK.ACQUIRE job other PX 600000");
        let outage = Duration::from_secs(2);
        let waiting = in_queue(&server, client.acquire("job").outage(outage));
        // A server that answers is no outage, however long the lock is held.
        tokio::time::sleep(outage + outage / 2).await;
        assert!(!waiting.is_finished() && server.waiting() == 1);
        let began = Stopwatch::start();
        if hangs {
            server.freeze()
        } else {
            server.kill9()
        }
        let outcome = in_time(waiting).await.expect("a task");
        assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
        began.is_between(outage / 2, outage + LATE, "an outage");
        if hangs {
            server.thaw();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_at_the_server_that_answers_instead_of_the_one_that_hangs() {
    let [one, other] = [Server::start(), Server::start()];
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}", one.port(), other.port());
    for wait in [Some(Duration::from_secs(10)), None] {
        let client = Client::open(&url).expect("URLs");
        one.client().run("DLOCK.RACQUIRE job other PX 600000");
        let acquire = client.acquire("job").outage(Duration::from_secs(8));
        let waiting = in_queue(&one, if let Some(wait) = wait { acquire.wait(wait) } else { acquire });
        one.freeze();
        let guard = in_time(waiting).await.expect("a task").expect("a lock");
        is_held(&other, &guard);
        assert!(guard.release().await.is_ok());
        one.thaw();
        one.left_waiting(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_goes_past_a_server_that_hangs() {
    let [one, other] = [Server::start(), Server::start()];
    let url = format!("redis://127.0.0.1:{},127.0.0.1:{}", one.port(), other.port());
    one.freeze();
    let (outcome, took) = timed(Client::open(&url).expect("URLs").try_acquire("job")).await;
    is_held(&other, &outcome.expect("a lock"));
    took.is_between(Duration::ZERO, TRY + LATE, "a try");
    one.thaw();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_keeps_its_place_when_the_server_hung_for_a_while() {
    let (server, client) = server_and_client();
    server.client().int("DLOCK.ACQUIRE job other PX 600000");
    let first = in_queue(&server, client.acquire("job").outage(Duration::from_secs(8)));
    let mut second = server.waiter("DLOCK.ACQUIRE job second PX 600000 BLOCK 0");
    // Long enough for the client's first ping.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let before = server.client().text("CLIENT LIST");
    server.freeze();
    // Longer than the client relies on its connection: it pings the server every 2 s, and waits 2 s for the answer.
    tokio::time::sleep(Duration::from_millis(4500)).await;
    server.thaw();
    let waits = |list: &str| {
        let ids = list.lines().filter(|line| line.contains(" cmd=dlock.acquire "));
        ids.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut watch = server.client();
    soon("the client waits on another connection", || {
        waits(&watch.text("CLIENT LIST")).iter().any(|id| !waits(&before).contains(id))
    });
    assert_eq!(server.waiting(), 2);
    assert_eq!(server.client().int("DLOCK.RELEASE job other"), 1);
    let first = in_time(first).await.expect("a task").expect("a lock");
    second.waits();
    assert!(first.release().await.is_ok());
    assert!(second.granted() > 0);
}

#[test]
fn releases_in_the_background_end_after_a_few_seconds_without_an_answer() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let client = client_of(&server);
    let lease = Duration::from_secs(600);
    let guard = runtime.block_on(async { client.acquire("held").lease(lease).await.expect("a lock") });
    server.freeze();
    let acquire = client.acquire("job").lease(lease).into_future();
    runtime.block_on(async {
        let task = tokio::spawn(acquire);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let began = Stopwatch::start();
        task.abort();
        assert!(task.await.is_err());
        began.is_between(Duration::ZERO, Duration::from_millis(100), "an abort");
    });
    drop((guard, client));
    let began = Instant::now();
    while runtime.metrics().num_alive_tasks() > 0 {
        assert!(began.elapsed() < Duration::from_secs(8), "{} tasks", runtime.metrics().num_alive_tasks());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.thaw();
}

#[test]
fn a_limit_holds_without_tokio() {
    let server = Server::start();
    let client = dlock_client::blocking::Client::new(client_of(&server)).expect("a thread");
    server.freeze();
    for (acquire, limit) in [
        (client.asynchronous().acquire("job").wait(LIMIT), LIMIT),
        (client.asynchronous().try_acquire("job"), TRY),
        (client.asynchronous().acquire("job").outage(LIMIT), LIMIT),
    ] {
        let began = Stopwatch::start();
        let outcome = client.lock(|_| acquire);
        assert!(matches!(outcome, Err(Error::Unreachable(_))), "{outcome:?}");
        began.is_between(limit, limit + LATE, "a limit");
    }
    server.thaw();
}
