//! A client that waits finds out that servers are gone, and asks no more than it needs to for that.

use std::future::IntoFuture;
use std::thread;
use std::time::Duration;

use dlock_client::{Error, Guard};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::{RELAXED, client_of, in_time, quorum, servers, servers_and_client};
use dlock_testkit::replica::counter;
use dlock_testkit::{Server, Stopwatch, soon};

const WAITERS: i64 = 10;
/// How often a client in the queue asks the gate server, and one of the others.
const GATE: Duration = Duration::from_secs(4);
const OTHERS: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(1);
/// How late a test may notice what it waits for.
const LATE: Duration = Duration::from_millis(500);

/// Returns clients, each with its own connections, that wait for a held lock and have pinged each server once.
fn waiters(servers: &[Server], count: i64, timeout: Duration) -> Vec<JoinHandle<Result<Guard, Error>>> {
    let pings: Vec<i64> = servers.iter().map(|server| server.client().calls("ping")).collect();
    let client = |_| quorum(servers).server_timeout(timeout).open().expect("a quorum");
    let waiters = (0..count).map(client).map(|client| tokio::spawn(client.acquire("job").into_future())).collect();
    servers[0].left_waiting(count);
    for (server, before) in servers.iter().zip(pings) {
        soon("all have asked", || server.client().calls("ping") == before + count);
    }
    waiters
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_waiters_ask_the_gate_server_every_4_s_and_one_of_the_others_every_10_s() {
    let (servers, client) = servers_and_client(3);
    let holder = in_time(client.acquire("job")).await.expect("a lock");
    let waiters = waiters(&servers, WAITERS, RELAXED);
    let began = Stopwatch::start();
    let asked = || -> Vec<[i64; 2]> {
        servers.iter().map(|server| ["ping", "time"].map(|command| server.client().calls(command))).collect()
    };
    let before = asked();
    soon("each waiter has asked the gate server five times", || {
        servers[0].client().calls("ping") >= before[0][0] + 5 * WAITERS
    });
    let (passed, after) = (began.elapsed(), asked());
    let [gate, one, other] = [0, 1, 2].map(|at| [after[at][0] - before[at][0], after[at][1] - before[at][1]]);
    let most = |every: Duration| WAITERS * (passed.as_secs_f64() / every.as_secs_f64() + 1.0) as i64;
    // The clock is read with each ping.
    assert!((gate[0] - gate[1]).abs() <= WAITERS / 2 && gate[0] <= most(GATE), "{passed:?} {gate:?} {one:?} {other:?}");
    assert!(one[1] > 0 && other[1] > 0, "in turn: {gate:?} {one:?} {other:?}");
    assert!(one[1] + other[1] <= most(OTHERS), "{passed:?} {gate:?} {one:?} {other:?}");
    assert_eq!([one[0], other[0]], [0, 0]);
    waiters.iter().for_each(JoinHandle::abort);
    in_time(holder.release()).await.expect("held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_server_that_hangs_is_found_within_4_s_and_half_a_timeout() {
    let servers = servers(3);
    let timeout = Duration::from_millis(200);
    let holder = in_time(client_of(&servers).acquire("job")).await.expect("a lock");
    let waiting = waiters(&servers, 1, timeout).remove(0);
    let mut watch = servers[1].client();
    servers[0].freeze();
    let hangs = Stopwatch::start();
    soon("it waits in the next queue", || counter(&mut watch, "waiters") == 1);
    hangs.is_between(GATE / 2, GATE + timeout / 2 + LATE, "a server that hangs");
    servers[0].thaw();
    in_time(holder.release()).await.expect("held");
    assert!(in_time(waiting).await.expect("a task").is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_the_gate_server_alone_is_left() {
    for is_killed in [false, true] {
        let mut servers = servers(3);
        let holder = in_time(client_of(&servers).acquire("job")).await.expect("a lock");
        let client = quorum(&servers).open().expect("a quorum");
        let waiting = tokio::spawn(client.acquire("job").outage(2 * LIMIT).into_future());
        servers[0].left_waiting(1);
        for server in &mut servers[1..] {
            if is_killed { server.kill9() } else { server.freeze() }
        }
        let gone = Stopwatch::start();
        let outcome = in_time(waiting).await.expect("a task");
        gone.is_between(LIMIT, 2 * LIMIT + LATE, "an outage");
        assert!(matches!(outcome, Err(Error::TooFew(_))), "{outcome:?}");
        if !is_killed {
            servers[1..].iter().for_each(Server::thaw);
        }
        drop(holder);
    }
}

/// In one thread, which is paused as a whole.
#[tokio::test]
async fn a_client_that_is_paused_for_longer_than_an_outage_asks_before_it_gives_up() {
    let (servers, client) = servers_and_client(3);
    let holder = in_time(client.acquire("job")).await.expect("a lock");
    let waiting = tokio::spawn(client.acquire("job").outage(LIMIT).into_future());
    while servers[0].waiting() == 0 {
        sleep(LIMIT / 100).await;
    }
    thread::sleep(2 * LIMIT);
    sleep(LIMIT / 2).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    in_time(holder.release()).await.expect("held");
    assert!(in_time(waiting).await.expect("a task").is_ok());
}
