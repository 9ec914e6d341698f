//! Locks are inspected and taken away.

use std::time::Duration;

use crate::{client_of, in_time, lost, server_and_client};
use dlock_client::HoldMode;
use dlock_testkit::cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn holders_and_waiters_of_a_lock_are_shown() {
    let (server, client) = server_and_client();
    assert_eq!(client.info("doc").await.expect("an answer"), None);
    let readers = [
        in_time(client.read("doc")).await.expect("a lock"),
        in_time(client.read("doc").session()).await.expect("a lock"),
    ];
    let waiting = tokio::spawn(std::future::IntoFuture::into_future(client.write("doc")));
    server.left_waiting(1);
    let info = client.info("doc").await.expect("an answer").expect("a lock");
    assert_eq!((info.name.as_slice(), info.mode.as_str(), info.holders, info.waiters), (&b"doc"[..], "shared", 2, 1));
    let shown: Vec<_> =
        info.holds.iter().map(|hold| (hold.owner.as_slice(), hold.token, hold.session.is_some())).collect();
    let held = [(0, false), (1, true)].map(|(n, session)| (readers[n].owner().as_bytes(), readers[n].token(), session));
    assert_eq!(shown, held);
    assert!(info.holds[0].age >= info.holds[1].age && info.holds[0].age < Duration::from_secs(60));
    assert_eq!(info.queue.len(), 1);
    assert_eq!(info.queue[0].mode, HoldMode::Exclusive);
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_of_a_named_session_is_shown_and_watched() {
    let (server, client) = server_and_client();
    let mut other = server.client();
    other.int("DLOCK.SESSION worker-1 PX 600000 NX");
    let mut watch = client.watch("doc").expect("one server");
    assert!(in_time(watch.next()).await.expect("more").expect("holders").is_empty());
    other.int("DLOCK.ACQUIRE doc alice PX 600000 SESSIONID worker-1");
    let info = client.info("doc").await.expect("an answer").expect("a lock");
    assert_eq!((info.holds[0].session, info.holds[0].named_session.as_deref()), (None, Some(&b"worker-1"[..])));
    let seen = in_time(watch.next()).await.expect("more").expect("holders");
    assert_eq!(seen[0].named_session, info.holds[0].named_session);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cap_of_a_hold_is_shown() {
    let (server, client) = server_and_client();
    let mut other = server.client();
    other.int("DLOCK.RLOCK doc alice PX 60000 MAXHOLD 600000");
    other.int("DLOCK.RLOCK doc bob PX 60000");
    let info = client.info("doc").await.expect("an answer").expect("a lock");
    let cap = info.holds[0].cap.expect("a cap");
    assert!((Duration::from_secs(540)..=Duration::from_secs(600)).contains(&cap), "{cap:?}");
    assert_eq!(info.holds[1].cap, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_found_by_pattern_among_other_keys() {
    let (server, client) = server_and_client();
    server.client().int("RPUSH job:list 1");
    let _guards = [
        in_time(client.acquire("job:2")).await,
        in_time(client.acquire("job:1")).await,
        in_time(client.acquire("x")).await,
    ];
    let found = client.locks("job:*").await.expect("an answer");
    let names: Vec<_> = found.iter().map(|lock| lock.name.as_slice()).collect();
    assert_eq!(names, [&b"job:1"[..], &b"job:2"[..]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_all_nodes_of_a_cluster_are_found() {
    let cluster = Cluster::start(3);
    let client = client_of(&cluster.nodes[1]);
    let mut guards = Vec::new();
    // Each node has one of these names.
    for name in ["a", "b", "c"] {
        guards.push(in_time(client.acquire(name)).await.expect("a lock"));
    }
    let found = client.locks("*").await.expect("an answer");
    let tokens: Vec<_> = found.iter().filter_map(|lock| lock.token).collect();
    assert_eq!(tokens, guards.iter().map(dlock_client::Guard::token).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_taken_away_is_lost_to_its_guard() {
    let (_server, client) = server_and_client();
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    assert!(!client.evict("job", "nobody", None).await.expect("an answer"));
    assert!(!client.evict("job", guard.owner(), Some(guard.token() + 1)).await.expect("an answer"));
    assert!(client.evict("job", guard.owner(), Some(guard.token())).await.expect("an answer"));
    lost(guard.renew().await);
    in_time(guard.lost()).await;
}
