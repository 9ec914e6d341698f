//! Connections that go dead without a word, as when a firewall forgets them, to servers that are well.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use dlock_client::{Client, Error};
use tokio::time::{sleep, timeout};

use crate::{LONGEST, client_of, in_time, servers};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::{Server, soon};

/// How long a server has to answer.
const TIMEOUT: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(1);

/// Servers, a network before each, and a client.
fn behind_networks() -> (Vec<Server>, Vec<Proxy>, Client) {
    let servers = servers(3);
    let networks: Vec<_> = servers.iter().map(Proxy::to).collect();
    let client = Client::quorum(networks.iter().map(Proxy::url), LONGEST).persistent().server_timeout(TIMEOUT);
    (servers, networks, client.open().expect("a quorum"))
}

fn forget(networks: &[Proxy]) {
    networks.iter().for_each(Proxy::forget_connections);
}

/// A client in the queue has asked all servers for the first time, and has had their answers.
async fn all_have_answered(servers: &[Server]) {
    for server in servers {
        soon("all have asked", || server.client().calls("ping") >= 1);
    }
    // Only the client knows that it has read an answer.
    sleep(TIMEOUT / 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_connections_to_those_that_are_not_waited_at_are_no_outage() {
    let (servers, networks, client) = behind_networks();
    let holder = in_time(client_of(&servers).acquire("job")).await.expect("a lock");
    let mut waiting = tokio::spawn(client.acquire("job").outage(2 * LIMIT).into_future());
    servers[0].left_waiting(1);
    all_have_answered(&servers).await;
    forget(&networks[1..]);
    let ended = timeout(4 * LIMIT, &mut waiting).await;
    assert!(ended.is_err(), "{ended:?}");
    in_time(holder.release()).await.expect("held");
    drop(in_time(waiting).await.expect("a task").expect("a lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_a_lock_although_all_its_connections_are_dead() {
    let (_servers, networks, client) = behind_networks();
    in_time(in_time(client.acquire("job")).await.expect("a lock").release()).await.expect("held");
    forget(&networks);
    drop(in_time(client.try_acquire("job")).await.expect("a lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_renewed_and_released_although_all_its_connections_are_dead() {
    let (servers, networks, client) = behind_networks();
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    forget(&networks);
    let began = Instant::now();
    while in_time(guard.renew()).await.is_err() {}
    assert!(began.elapsed() < 3 * TIMEOUT, "{:?}", began.elapsed());
    in_time(guard.release()).await.expect("held");
    for server in &servers {
        assert!(server.holders("job").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_takes_no_connection_that_died_while_it_was_free() {
    let (servers, networks, client) = behind_networks();
    let other = client_of(&servers);
    let holder = in_time(other.acquire("job")).await.expect("a lock");
    let waiting = tokio::spawn(client.acquire("job").into_future());
    servers[0].left_waiting(1);
    in_time(holder.release()).await.expect("held");
    in_time(in_time(waiting).await.expect("a task").expect("a lock").release()).await.expect("held");
    let holder = in_time(other.acquire("job")).await.expect("a lock");
    sleep(LIMIT).await;
    forget(&networks);
    // The shared connections are opened again, and every server is known to answer.
    for _ in 0..2 {
        let outcome = in_time(client.try_acquire("job")).await;
        assert!(matches!(outcome, Err(Error::Contention)), "{outcome:?}");
    }
    let waiting = tokio::spawn(client.acquire("job").into_future());
    servers[0].left_waiting(1);
    in_time(holder.release()).await.expect("held");
    drop(in_time(waiting).await.expect("a task").expect("a lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_in_the_queue_of_a_process_ends_when_another_has_its_place() {
    let (mut servers, networks, client) = behind_networks();
    let holder = in_time(client_of(&servers).acquire("job")).await.expect("a lock");
    let waiting = tokio::spawn(client.acquire("job").into_future());
    servers[0].left_waiting(1);
    all_have_answered(&servers).await;
    let next = crate::servers(1).remove(0);
    networks[0].forget_connections();
    networks[0].lead_to(&next);
    servers[0].kill9();
    // This finds the new process.
    while next.client().calls("time") == 0 {
        let _ = in_time(client.try_acquire("other")).await;
    }
    servers[1].left_waiting(1);
    in_time(holder.release()).await.expect("held");
    drop(in_time(waiting).await.expect("a task").expect("a lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_late_is_not_asked_on_one_connection_after_another() {
    let (_servers, networks, client) = behind_networks();
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    let before = networks[2].made();
    networks[2].delay(TIMEOUT * 3 / 2);
    let end = Instant::now() + 4 * LIMIT;
    while Instant::now() < end {
        in_time(guard.renew()).await.expect("held");
        sleep(TIMEOUT / 4).await;
    }
    let made = networks[2].made() - before;
    assert!(made <= 1, "{made} connections");
}
