//! Clients of a quorum wait without polling, in the queue of the gate server.

use std::future::IntoFuture;

use dlock_client::{Error, Guard};
use tokio::task::JoinHandle;

use crate::{client_of, freed, in_time, servers, servers_and_client};
use dlock_testkit::replica::counter;
use dlock_testkit::{Server, soon};

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_served_in_the_order_in_which_they_came() {
    let servers = servers(3);
    let holder = in_time(client_of(&servers).acquire("job")).await.expect("a lock");
    let mut watch = servers[0].client();
    let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..8 {
        let (client, order) = (client_of(&servers), order.clone());
        tokio::spawn(async move {
            let guard = client.acquire("job").await.expect("a lock");
            order.send((number, guard.token())).expect("somebody listens");
            guard.release().await.expect("held");
        });
        soon("the request waits in the queue", || counter(&mut watch, "waiters") == number + 1);
    }
    let mut last = holder.token();
    holder.release().await.expect("held");
    for number in 0..8 {
        let (next, token) = in_time(served.recv()).await.expect("somebody");
        assert_eq!(next, number);
        assert!(token > last);
        last = token;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_client_does_not_poll_and_pings_the_gate_server_now_and_then() {
    let (servers, client) = servers_and_client(3);
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    servers.iter().for_each(|server| soon("the lock is held there", || server.holders("job") == [guard.owner()]));
    let waiting = tokio::spawn(client.acquire("job").into_future());
    servers[0].left_waiting(1);
    let pings = |server: &crate::Server| server.client().calls("ping");
    let acquires = |server: &crate::Server| server.client().calls("dlock.acquire");
    let before: Vec<_> = servers.iter().map(acquires).collect();
    let first = pings(&servers[0]);
    soon("the gate server is asked", || pings(&servers[0]) >= first + 2);
    assert_eq!(servers.iter().map(acquires).collect::<Vec<_>>(), before);
    in_time(guard.release()).await.expect("held");
    let guard = in_time(waiting).await.expect("a task").expect("a lock");
    in_time(guard.release()).await.expect("held");
}

/// Returns a request that the gate server has granted, and that waits for another owner to leave the two other servers.
/// Returns a client of each server, too.
fn granted_by_the_gate_server(servers: &[Server]) -> (JoinHandle<Result<Guard, Error>>, Vec<dlock_testkit::Client>) {
    let mut watch: Vec<_> = servers.iter().map(Server::client).collect();
    for server in &mut watch[1..] {
        assert!(server.int("DLOCK.ACQUIRE job leaving PX 60000") > 0);
    }
    let waiting = tokio::spawn(client_of(servers).acquire("job").into_future());
    soon("the request waits elsewhere, too", || watch[1..].iter_mut().all(|server| counter(server, "waiters") == 1));
    (waiting, watch)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_granted_by_the_gate_server_waits_for_a_majority() {
    let servers = servers(3);
    let (waiting, mut watch) = granted_by_the_gate_server(&servers);
    watch[2].run("DLOCK.RELEASE job leaving");
    let guard = in_time(waiting).await.expect("a task").expect("a lock");
    assert_eq!(watch[0].calls("dlock.acquire"), 1, "granted at the first attempt");
    assert_eq!(servers[2].holders("job"), [guard.owner()]);
    // The release also ends the wait on the second server, where another owner still holds the lock.
    in_time(guard.release()).await.expect("held");
    watch[1].run("DLOCK.RELEASE job leaving");
    freed(&servers, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_dropped_in_the_queues_of_the_other_servers_leaves_nothing() {
    let servers = servers(3);
    let (waiting, mut watch) = granted_by_the_gate_server(&servers);
    waiting.abort();
    freed([&servers[0]], "job");
    soon("the request has left the queues", || watch[1..].iter_mut().all(|server| counter(server, "waiters") == 0));
    watch[1..].iter_mut().for_each(|server| drop(server.run("DLOCK.RELEASE job leaving")));
    freed(&servers, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_server_that_stops_loses_its_queue_to_the_next() {
    let mut servers = servers(3);
    let guard = in_time(client_of(&servers).acquire("job")).await.expect("a lock");
    let waiting = tokio::spawn(client_of(&servers).acquire("job").into_future());
    servers[0].left_waiting(1);
    servers[0].kill9();
    let mut watch = servers[1].client();
    soon("the request waits in the next queue", || counter(&mut watch, "waiters") == 1);
    let token = guard.token();
    in_time(guard.release()).await.expect("held");
    let guard = in_time(waiting).await.expect("a task").expect("a lock");
    assert!(guard.token() > token);
}
