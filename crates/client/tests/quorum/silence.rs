//! Connections that die silently, as when a firewall forgets them, to servers that are well.

use std::future::IntoFuture;
use std::time::Duration;

use dlock_client::{Client, Error};
use tokio::time::{sleep, timeout};

use crate::{LONGEST, client_of, freed, in_time, servers};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::replica::info_field;
use dlock_testkit::{Server, soon};

/// How long a server has to answer.
const TIMEOUT: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(1);

/// How many clients wait on the new server: one of them has the id that the client's connection had on the old one.
const OTHERS: usize = 64;

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

/// Waits until a client in the queue has asked all servers once, and has had their answers.
async fn all_have_answered(servers: &[Server]) {
    for server in servers {
        soon("the server has been asked", || server.client().calls("ping") >= 1);
    }
    // Only the client knows that it has read an answer.
    sleep(TIMEOUT / 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_connections_to_servers_other_than_the_gate_server_are_no_outage() {
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
async fn a_dropped_wait_does_not_end_another_clients_wait_on_a_new_server_process() {
    let (mut servers, networks, client) = behind_networks();
    let holder = in_time(client_of(&servers).acquire("job")).await.expect("a lock");
    let waiting = tokio::spawn(client.acquire("job").into_future());
    servers[0].left_waiting(1);
    all_have_answered(&servers).await;
    let clients = servers[0].client().text("CLIENT LIST");
    let line =
        clients.lines().find(|line| line.contains(" cmd=dlock.") && line.contains(" flags=b ")).expect("a waiter");
    let next = crate::servers(1).remove(0);
    let mut others: Vec<_> = (0..OTHERS).map(|_| next.client()).collect();
    let has_the_same_id =
        |other: &mut dlock_testkit::Client| line.starts_with(&format!("id={} ", other.int("CLIENT ID")));
    assert!(others.iter_mut().any(has_the_same_id), "none of the others has the id of the waiting connection: {line}");
    others.iter_mut().for_each(|other| other.send("BLPOP list 0"));
    let mut watch = next.client();
    let mut all_wait = || info_field(&mut watch, "clients", "blocked_clients") == Some(OTHERS.to_string());
    soon("all wait", &mut all_wait);
    forget(&networks[..1]);
    networks[0].lead_to(&next);
    servers[0].kill9();
    while next.client().calls("time") == 0 {
        let _ = in_time(client.try_acquire("other")).await;
    }
    waiting.abort();
    assert!(waiting.await.is_err());
    in_time(client.settled()).await;
    assert!(all_wait());
    in_time(holder.release()).await.expect("held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_unblock_does_not_end_the_next_wait_of_the_same_client() {
    let servers = servers(3);
    let networks: Vec<_> = servers.iter().map(Proxy::to).collect();
    let client = Client::quorum(networks.iter().map(Proxy::url), LONGEST).persistent().server_timeout(3 * LIMIT);
    let client = client.open().expect("a quorum");
    let other = client_of(&servers);
    let holder = in_time(other.acquire("job")).await.expect("a lock");
    let outcome = in_time(client.try_acquire("job")).await;
    assert!(matches!(outcome, Err(Error::Contention)), "{outcome:?}");
    // The network holds back the present connection, which is the one for short commands: the command that takes the
    // client out of the queue goes over it.
    networks[0].keep_commands();
    let waiting = tokio::spawn(client.acquire("job").into_future());
    servers[0].left_waiting(1);
    waiting.abort();
    assert!(waiting.await.is_err());
    in_time(holder.release()).await.expect("held");
    freed(&servers, "job");
    let holder = in_time(other.acquire("job")).await.expect("a lock");
    let next = tokio::spawn(client.acquire("job").into_future());
    servers[0].left_waiting(1);
    let last = tokio::spawn(client_of(&servers).acquire("job").into_future());
    servers[0].left_waiting(2);
    networks[0].deliver();
    soon("it has left", || servers[0].client().calls("client|unblock") == 1);
    in_time(holder.release()).await.expect("held");
    let guard = timeout(2 * LIMIT, next).await.expect("first come, first served").expect("a task").expect("a lock");
    assert!(!last.is_finished());
    drop(guard);
    drop(in_time(last).await.expect("a task").expect("a lock"));
}
