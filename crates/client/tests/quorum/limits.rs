//! Waits for a majority end when they should, even if servers hang or die meanwhile.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use dlock_client::{Acquire, Client, Error, Guard};
use dlock_testkit::{Server, Stopwatch};

use crate::{in_time, quorum, servers};

const LIMIT: Duration = Duration::from_secs(1);
/// How much later than its limit a wait may end.
const LATE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Killed,
    Hangs,
}

/// Takes a majority away.
fn take_away(servers: &mut [Server], trouble: Trouble) {
    for server in servers.iter_mut().take(2) {
        match trouble {
            Trouble::Killed => server.kill9(),
            Trouble::Hangs => server.freeze(),
        }
    }
}

fn bring_back(servers: &mut [Server], trouble: Trouble) {
    for server in servers.iter_mut().take(2) {
        match trouble {
            Trouble::Killed => server.boot(),
            Trouble::Hangs => server.thaw(),
        }
    }
}

#[track_caller]
fn too_few_after(what: &str, outcome: &Result<Guard, Error>, took: &Stopwatch, earliest: Duration, latest: Duration) {
    assert!(matches!(outcome, Err(Error::TooFew(_))), "{what}: {outcome:?}");
    took.is_between(earliest, latest, what);
}

async fn timed(acquire: Acquire) -> (Result<Guard, Error>, Stopwatch) {
    let began = Stopwatch::start();
    let outcome = in_time(acquire).await;
    (outcome, began)
}

fn client_of(servers: &[Server]) -> Client {
    quorum(servers).open().expect("a quorum")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_without_a_majority() {
    for trouble in [Trouble::Killed, Trouble::Hangs] {
        for with_connections in [false, true] {
            let what = format!("{trouble:?} {with_connections}");
            let mut servers = servers(3);
            let client = client_of(&servers);
            if with_connections {
                assert!(in_time(client.acquire("other")).await.expect("a lock").release().await.is_ok());
            }
            take_away(&mut servers, trouble);
            let (outcome, took) = timed(client.acquire("job").wait(LIMIT)).await;
            too_few_after(&what, &outcome, &took, LIMIT, LIMIT + LATE);
            let (outcome, took) = timed(client.try_acquire("job")).await;
            too_few_after(&what, &outcome, &took, Duration::ZERO, LIMIT + LATE);
            let (outcome, took) = timed(client.acquire("job").outage(LIMIT)).await;
            too_few_after(&what, &outcome, &took, LIMIT, LIMIT + LATE);
            bring_back(&mut servers, trouble);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_if_the_majority_fails_during_the_wait() {
    for trouble in [Trouble::Killed, Trouble::Hangs] {
        for limited in [true, false] {
            let what = format!("{trouble:?} {limited}");
            let mut servers = servers(3);
            let client = client_of(&servers);
            let holder = in_time(client_of(&servers).acquire("job")).await.expect("a lock");
            let acquire = client.acquire("job");
            let acquire = if limited { acquire.wait(2 * LIMIT) } else { acquire.outage(2 * LIMIT) };
            let began = Stopwatch::start();
            let waiting = tokio::spawn(acquire.into_future());
            dlock_testkit::soon("it waits", || servers.iter().any(|server| server.waiting() == 1));
            take_away(&mut servers, trouble);
            let gone = Stopwatch::start();
            let outcome = in_time(waiting).await.expect("a task");
            let took = if limited { &began } else { &gone };
            let earliest = if limited { 2 * LIMIT } else { LIMIT };
            too_few_after(&what, &outcome, took, earliest, 2 * LIMIT + LATE);
            bring_back(&mut servers, trouble);
            drop(holder);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_without_a_limit_goes_on_when_the_majority_is_back() {
    for trouble in [Trouble::Killed, Trouble::Hangs] {
        let mut servers = servers(3);
        let client = client_of(&servers);
        take_away(&mut servers, trouble);
        let waiting = tokio::spawn(client.acquire("job").into_future());
        tokio::time::sleep(LIMIT).await;
        assert!(!waiting.is_finished(), "{trouble:?}");
        bring_back(&mut servers, trouble);
        assert!(in_time(waiting).await.expect("a task").is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_returns_at_once_and_leaves_nothing() {
    let mut servers = servers(3);
    let client = client_of(&servers);
    take_away(&mut servers, Trouble::Hangs);
    let task = tokio::spawn(client.acquire("job").lease(Duration::from_secs(20)).into_future());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = Stopwatch::start();
    task.abort();
    assert!(task.await.is_err());
    began.is_between(Duration::ZERO, Duration::from_millis(100), "an abort");
    let began = Instant::now();
    in_time(client.settled()).await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    bring_back(&mut servers, Trouble::Hangs);
    crate::freed(&servers, "job");
}

/// The connections cannot take all the requests at once. No request may be sent after its own release.
#[tokio::test]
async fn many_cancellations_at_once_leave_nothing() {
    let (servers, client) = crate::servers_and_client(3);
    in_time(in_time(client.acquire("warm")).await.expect("a lock").release()).await.expect("held");
    let names: Vec<_> = (0..60).map(|number| format!("job:{number}")).collect();
    let acquire = |name: &String| client.acquire(name.as_str()).lease(crate::LONGEST).no_renewal();
    let began = Instant::now();
    let tasks: Vec<_> = names.iter().map(|name| tokio::spawn(acquire(name).into_future())).collect();
    tokio::task::yield_now().await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    for task in tasks {
        assert!(in_time(task).await.is_err(), "it is cancelled");
    }
    in_time(client.settled()).await;
    names.iter().for_each(|name| crate::freed(&servers, name));
    assert!(began.elapsed() < crate::LONGEST / 2, "only its lease has ended one: {:?}", began.elapsed());
}
