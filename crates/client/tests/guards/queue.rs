//! Waiting in the queue.

use std::time::Duration;

use crate::{contention, in_queue, in_time, is_held, server_and_client};
use dlock_testkit::replica::counter;
use dlock_testkit::soon;

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_served_in_the_order_in_which_they_came() {
    let (server, client) = server_and_client();
    let first = in_time(client.acquire("job")).await.expect("a lock");
    let mut watch = server.client();
    let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..20 {
        let (waiting, order) = (client.acquire("job"), order.clone());
        tokio::spawn(async move {
            let guard = waiting.await.expect("a lock");
            order.send(number).expect("somebody listens");
            guard.release().await.expect("held");
        });
        soon("it waits in the queue", || counter(&mut watch, "waiters") == number + 1);
    }
    assert!(first.release().await.is_ok());
    for number in 0..20 {
        assert_eq!(in_time(served.recv()).await, Some(number));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_sends_a_try_and_one_command_that_waits() {
    let (server, client) = server_and_client();
    let first = in_time(client.acquire("job")).await.expect("a lock");
    let waiting = in_queue(&server, client.acquire("job").wait(Duration::from_secs(60)));
    let mut watch = server.client();
    // The wait is longer than the time in which the crate `redis` expects a reply by default (500 ms).
    watch.pass_ms(1500);
    assert_eq!(counter(&mut watch, "waiters"), 1);
    assert!(first.release().await.is_ok());
    let guard = in_time(waiting).await.expect("a task").expect("a lock");
    is_held(&server, &guard);
    assert_eq!(watch.calls("dlock.acquire"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_begins_with_the_grant_and_not_with_the_wait() {
    let (server, client) = server_and_client();
    let lease = Duration::from_millis(400);
    let first = in_time(client.acquire("job")).await.expect("a lock");
    let waiting = in_queue(&server, client.acquire("job").lease(lease));
    let mut watch = server.client();
    watch.pass_ms(2 * lease.as_millis() as i64);
    assert!(first.release().await.is_ok());
    let guard = in_time(waiting).await.expect("a task").expect("a lock");
    assert!(guard.remaining() > lease / 4, "{:?}", guard.remaining());
    is_held(&server, &guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_connection_breaks_enters_the_queue_again() {
    let (server, client) = server_and_client();
    let first = in_time(client.acquire("job")).await.expect("a lock");
    let waiting = in_queue(&server, client.acquire("job"));
    let mut watch = server.client();
    watch.int("CLIENT KILL TYPE normal SKIPME yes");
    soon("it waits again", || counter(&mut watch, "waits") == 2);
    assert!(first.release().await.is_ok());
    is_held(&server, &in_time(waiting).await.expect("a task").expect("a lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_an_operator_ends_is_over() {
    let (server, client) = server_and_client();
    let _first = in_time(client.acquire("job")).await.expect("a lock");
    let waiting = in_queue(&server, client.acquire("job"));
    let queue = crate::lock_info(&mut server.client(), "job FULL").expect("a lock").queue.expect("a queue");
    assert_eq!(server.client().int(format!("CLIENT UNBLOCK {}", queue[0].client)), 1);
    contention(in_time(waiting).await.expect("a task"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_waits_for_a_reader_and_a_later_reader_for_the_writer() {
    let (server, client) = server_and_client();
    let reader = in_time(client.read("doc")).await.expect("a lock");
    let writer = in_queue(&server, client.write("doc"));
    let late = in_queue(&server, client.read("doc"));
    assert!(reader.release().await.is_ok());
    let writer = in_time(writer).await.expect("a task").expect("a lock");
    is_held(&server, &writer);
    assert!(writer.release().await.is_ok());
    is_held(&server, &in_time(late).await.expect("a task").expect("a lock"));
}
