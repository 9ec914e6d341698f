//! Guards of several locks that are taken at once.

use std::time::Duration;

use dlock_client::Error;
use dlock_testkit::cluster::Cluster;
use dlock_testkit::{Server, lock_info, soon};

use crate::{client_of, contention, freed, in_queue, in_time, lost, server_and_client};

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_are_taken_with_one_token_or_not_at_all() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire_all(["a", "b", "c"])).await.expect("the locks");
    assert_eq!(guard.names().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    for name in ["a", "b", "c"] {
        assert_eq!(lock_info(&mut server.client(), name).expect("taken").token as u64, guard.token());
    }
    contention(in_time(client.acquire_all(["d", "c"]).no_wait()).await);
    assert_eq!(lock_info(&mut server.client(), "d"), None);
    let waiting = in_queue(&server, client.acquire_all(["d", "c"]));
    assert!(guard.release().await.is_ok());
    let next = in_time(waiting).await.expect("a task").expect("the locks");
    assert_eq!(lock_info(&mut server.client(), "a"), None);
    drop(next);
    freed(&server, "c");
    freed(&server, "d");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_are_renewed_together_and_lost_if_one_of_them_is() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire_all(["a", "b"]).lease(Duration::from_millis(1200))).await.expect("the locks");
    let mut watch = server.client();
    let end = watch.end_of("b");
    soon("both locks outlive a lease", || watch.end_of("a") > end + 1200 && watch.end_of("b") > end + 1200);
    watch.int("DEL b");
    in_time(guard.lost()).await;
    lost(guard.release().await);
    freed(&server, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_frees_the_locks_that_are_left_and_reports_the_loss() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire_all(["a", "b"])).await.expect("the locks");
    server.client().int("DEL a");
    lost(guard.release().await);
    assert_eq!(lock_info(&mut server.client(), "b"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_binds_all_of_several_locks() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire_all(["a", "b"]).session()).await.expect("the locks");
    let owner = guard.owner().to_owned();
    let sessions = ["a", "b"].map(|name| server.client().session_of(name, &owner, "exclusive").expect("a session"));
    assert_eq!(sessions[0], sessions[1]);
    assert!(guard.renew().await.is_ok());
    server.client().int(format!("CLIENT KILL ID {}", sessions[0]));
    in_time(guard.lost()).await;
    freed(&server, "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_wait_leaves_all_queues() {
    let (server, client) = server_and_client();
    let guard = in_time(client.acquire("a")).await.expect("a lock");
    let waiting = in_queue(&server, client.acquire_all(["b", "a"]));
    waiting.abort();
    freed(&server, "b");
    server.left_waiting(0);
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_several_locks_must_be_in_one_slot() {
    let cluster = Cluster::start(2);
    let client = client_of(&cluster.nodes[0]);
    let (one, other) = ("{x}1", "{x}2");
    let guard = in_time(client.acquire_all([one, other])).await.expect("the locks");
    assert!(guard.renew().await.is_ok() && guard.release().await.is_ok());
    let outcome = in_time(client.acquire_all(["a", "b"])).await;
    assert!(matches!(&outcome, Err(Error::Refused(why)) if why.code() == Some("CROSSSLOT")), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_sets_are_refused() {
    let (_server, client) = server_and_client();
    let many: Vec<_> = (0..65).map(|number| number.to_string()).collect();
    let unset = vec!["a".to_owned(), String::new()];
    for names in [vec![], many, unset] {
        let outcome = in_time(client.acquire_all(names)).await;
        assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
    }
    let outcome = in_time(client.acquire_all(["a", "a"])).await;
    assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
}
