//! Programs as people write them: tasks that are dropped and panic, several runtimes, many on one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dlock_client::{Acquire, Client, Error, Session};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::{Server, soon};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::{client_of, freed, in_queue, in_time, server_and_client};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// A lock of each kind.
fn kinds(client: &Client) -> [Acquire; 3] {
    let lease = Duration::from_secs(60);
    [client.acquire("job").lease(lease), client.acquire("job").lease(lease).session(), client.write("job").lease(lease)]
}

/// A client in a static variable, as test suites and lambdas have it.
#[test]
fn a_client_goes_on_in_another_runtime() {
    let server = Server::start();
    let client = client_of(&server);
    for _ in 0..3 {
        runtime().block_on(async {
            for acquire in kinds(&client) {
                let guard = in_time(acquire).await.expect("a lock");
                let waiting = in_queue(&server, client.acquire("job"));
                assert!(in_time(guard.release()).await.is_ok());
                assert!(in_time(waiting).await.expect("a task").expect("a lock").release().await.is_ok());
            }
            let session = in_time(Session::open(&client, Duration::from_secs(2))).await.expect("a session");
            let guard = in_time(client.acquire("job").in_session(&session)).await.expect("a lock");
            assert!(guard.is_held() && guard.release().await.is_ok());
            assert!(session.close().await.is_ok());
        });
        freed(&server, "job");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_work_frees_the_lock() {
    let (server, client) = server_and_client();
    for acquire in kinds(&client) {
        let work = tokio::spawn(async move {
            let _guard = in_time(acquire).await.expect("a lock");
            assert!(std::env::args().count() == usize::MAX, "on purpose");
        });
        assert!(work.await.expect_err("a panic").is_panic());
        freed(&server, "job");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_dropped_outside_a_runtime_frees_the_lock() {
    let (server, client) = server_and_client();
    for acquire in kinds(&client) {
        let guard = in_time(acquire).await.expect("a lock");
        std::thread::spawn(move || drop(guard)).join().expect("no panic");
        freed(&server, "job");
    }
}

/// Requests of a web server: most are dropped while they wait, connections break, and the server is stopped at times.
#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_on_one_client_take_turns_although_most_give_up() {
    let server = Server::start();
    let network = Arc::new(Proxy::to(&server));
    let client = Client::open(&network.url()).expect("a URL");
    let (inside, turns, last) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
    let shared = Arc::new((client.clone(), inside, turns, last));
    let mut crowd = Vec::new();
    for number in 0..40_u64 {
        let shared = shared.clone();
        crowd.push(tokio::spawn(async move {
            let (client, inside, turns, last) = &*shared;
            for round in 0..12 {
                let [lease, session, write] = kinds(client);
                let acquire = [lease, session.wait(Duration::from_millis(700)), write.no_wait()][round % 3].clone();
                let patience = Duration::from_millis((number * 37 + round as u64 * 101) % 400);
                match timeout(patience, acquire.into_future()).await {
                    Ok(Ok(guard)) => {
                        // A connection that breaks ends a session, while its work goes on.
                        let counts = usize::from(round % 3 != 1);
                        let before = inside.fetch_add(counts, Ordering::SeqCst);
                        assert!(before * counts == 0, "two hold the lock");
                        last.fetch_max(guard.token(), Ordering::SeqCst);
                        turns.fetch_add(1, Ordering::SeqCst);
                        sleep(Duration::from_millis(1)).await;
                        inside.fetch_sub(counts, Ordering::SeqCst);
                        let _ = timeout(patience, guard.release()).await;
                    }
                    Ok(Err(Error::Contention | Error::Unreachable(_))) | Err(_) => {}
                    Ok(Err(error)) => panic!("{error:?}"),
                }
            }
        }));
    }
    let faults = tokio::task::spawn_blocking(move || {
        for turn in 0..6 {
            std::thread::sleep(Duration::from_millis(300));
            if turn % 2 == 0 {
                network.cut()
            } else {
                server.freeze()
            }
            std::thread::sleep(Duration::from_millis(100));
            server.thaw();
        }
        (server, network)
    });
    for each in crowd {
        in_time(each).await.expect("no panic");
    }
    let (server, _network) = faults.await.expect("no panic");
    let (_, _, turns, last) = &*shared;
    assert!(turns.load(Ordering::SeqCst) > 0);
    in_time(client.settled()).await;
    freed(&server, "job");
    server.left_waiting(0);
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    assert!(guard.token() > last.load(Ordering::SeqCst));
    let mut watch = server.client();
    soon("no connection of those that waited is left", || watch.text("CLIENT LIST TYPE normal").lines().count() < 40);
}
