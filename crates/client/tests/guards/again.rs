//! Guards of an owner that already holds the lock: re-entry, upgrade and downgrade.

use std::time::Duration;

use dlock_client::{Client, Error, Guard, LockMode};

use crate::{client_of, contention, freed, in_queue, in_time, is_held, lost, not_yet, server_and_client};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::{Server, Stopwatch, soon};

async fn mode(client: &Client, name: &str) -> Option<LockMode> {
    in_time(client.info(name)).await.expect("an answer").map(|info| info.mode)
}

/// Acquires the lock `doc` as a reader.
async fn reader(client: &Client) -> Guard {
    in_time(client.read("doc").lease(Duration::from_secs(20))).await.expect("a lock")
}

fn invalid<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_entered_again_is_released_by_the_last_of_its_guards() {
    let (server, client) = server_and_client();
    for acquire in [client.acquire("job"), client.acquire("job").session(), client.semaphore("job", 1).acquire()] {
        let outer = in_time(acquire).await.expect("a lock");
        let inner = in_time(outer.enter()).await.expect("held");
        let third = in_time(inner.enter()).await.expect("held");
        assert_eq!((inner.token(), inner.owner()), (outer.token(), outer.owner()));
        drop(third);
        in_time(outer.release()).await.expect("held");
        in_time(inner.renew()).await.expect("held by the guard that is left");
        not_yet(inner.lost()).await;
        contention(in_time(client.try_acquire("job")).await);
        in_time(inner.release()).await.expect("held");
        freed(&server, "job");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_lost_is_not_entered_again() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job")).await.expect("a lock");
    server.client().run("DEL job");
    lost(in_time(guard.enter()).await);
    lost(in_time(guard.release()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_reader_becomes_the_writer_and_goes_back_as_often_as_it_likes() {
    let (server, client) = server_and_client();
    let reader = reader(&client).await;
    for session in [false, true, false] {
        let upgrade = reader.upgrade().expect("a reader");
        let writer = in_time(if session { upgrade.session() } else { upgrade }).await.expect("nobody else reads");
        assert_eq!(writer.owner(), reader.owner());
        assert!(writer.token() > reader.token());
        assert_eq!(mode(&client, "doc").await, Some(LockMode::Both));
        in_time(writer.renew()).await.expect("held");
        in_time(reader.renew()).await.expect("held");
        contention(in_time(client.read("doc").no_wait()).await);
        in_time(writer.release()).await.expect("held");
        is_held(&server, &reader);
        assert_eq!(mode(&client, "doc").await, Some(LockMode::Shared));
    }
    in_time(reader.release()).await.expect("held");
    freed(&server, "doc");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_is_first_in_the_queue_and_a_second_one_is_refused_as_a_deadlock() {
    let (server, client) = server_and_client();
    let (first, second) = (reader(&client).await, reader(&client).await);
    let upgrading = in_queue(&server, first.upgrade().expect("a reader"));
    let other = in_queue(&server, client.write("doc"));
    contention(in_time(second.upgrade().expect("a reader").no_wait()).await);
    match in_time(second.upgrade().expect("a reader")).await {
        Err(Error::Refused(cause)) => assert_eq!(cause.code(), Some("DEADLOCK")),
        outcome => panic!("{outcome:?}"),
    }
    is_held(&server, &second);
    in_time(second.release()).await.expect("held");
    let writer = in_time(upgrading).await.expect("a task").expect("the lock");
    in_time(writer.release()).await.expect("held");
    in_time(first.release()).await.expect("held");
    in_time(in_time(other).await.expect("a task").expect("the lock").release()).await.expect("held");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_is_dropped_does_not_affect_its_reader() {
    let (server, client) = server_and_client();
    let (first, second) = (reader(&client).await, reader(&client).await);
    let upgrading = in_queue(&server, first.upgrade().expect("a reader"));
    // An owner has one exclusive hold at a time.
    invalid(in_time(first.upgrade().expect("a reader")).await);
    upgrading.abort();
    server.left_waiting(0);
    // The next upgrade begins after the dropped one is released in the background, and its wait includes that time. The
    // release must affect neither the next upgrade nor the readers.
    let began = Stopwatch::start();
    contention(in_time(first.upgrade().expect("a reader").wait(Duration::from_millis(1200))).await);
    began.is_between(Duration::ZERO, Duration::from_millis(2000), "the wait of an upgrade");
    is_held(&server, &first);
    in_time(second.release()).await.expect("held");
    let writer = in_time(first.upgrade().expect("a reader")).await.expect("nobody else reads");
    invalid(in_time(first.upgrade().expect("a reader")).await);
    drop(writer);
    let mut watch = server.client();
    soon("only the reader is left", || dlock_testkit::lock_info(&mut watch, "doc").is_some_and(|info| info.count == 1));
    is_held(&server, &first);
    in_time(first.release()).await.expect("held");
    freed(&server, "doc");
}

/// The two upgrades have the same owner. The proxy delays the end of the first, which is still in the queue.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_is_dropped_does_not_affect_the_next_one() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let (first, second) = (reader(&client).await, reader(&client).await);
    proxy.delay_ends(Duration::from_secs(20));
    let given_up = in_queue(&server, first.upgrade().expect("a reader"));
    given_up.abort();
    drop(given_up.await);
    let upgrading = in_queue(&server, first.upgrade().expect("a reader"));
    in_time(second.release()).await.expect("held");
    let writer = in_time(upgrading).await.expect("a task").expect("nobody else reads");
    in_time(writer.renew()).await.expect("held");
    contention(in_time(client.read("doc").no_wait()).await);
    in_time(writer.release()).await.expect("held");
    in_time(first.release()).await.expect("held");
    freed(&server, "doc");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_becomes_a_reader_and_no_other_writer_comes_between() {
    let (server, client) = server_and_client();
    for acquire in [client.write("doc"), client.acquire("doc").session()] {
        let writer = in_time(acquire).await.expect("a lock");
        let joins = in_queue(&server, client.read("doc"));
        let waits = in_queue(&server, client.write("doc"));
        let reader = in_time(writer.downgrade()).await.expect("held");
        is_held(&server, &reader);
        let joined = in_time(joins).await.expect("a task").expect("a lock");
        assert_eq!(mode(&client, "doc").await, Some(LockMode::Shared));
        in_time(reader.release()).await.expect("held");
        in_time(joined.release()).await.expect("held");
        in_time(in_time(waits).await.expect("a task").expect("a lock").release()).await.expect("held");
    }
    let gone = in_time(client.write("doc")).await.expect("a lock");
    server.client().run("DEL doc");
    lost(in_time(gone.downgrade()).await);
    freed(&server, "doc");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_reader_is_upgraded_and_only_a_writer_is_downgraded() {
    let (server, client) = server_and_client();
    let writer = in_time(client.write("doc")).await.expect("a lock");
    invalid(writer.upgrade().map(drop));
    let entered = in_time(writer.enter()).await.expect("held");
    invalid(in_time(writer.downgrade()).await);
    in_time(entered.release()).await.expect("held");
    let reader = reader(&client).await;
    let upgraded = in_time(reader.upgrade().expect("a reader")).await.expect("nobody else reads");
    invalid(in_time(upgraded.downgrade()).await);
    invalid(in_time(reader.downgrade()).await);
    freed(&server, "doc");
    for acquire in [client.semaphore("pool", 2).acquire(), client.acquire_all(["a", "b"])] {
        let guard = in_time(acquire).await.expect("a lock");
        invalid(guard.upgrade().map(drop));
        invalid(in_time(guard.downgrade()).await);
    }
}
