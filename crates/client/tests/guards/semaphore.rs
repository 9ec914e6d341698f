//! Permits of a semaphore.

use std::time::Duration;

use dlock_client::Error;
use dlock_testkit::{Server, lock_info};

use crate::{client_of, contention, freed, in_queue, in_time, lost, server_and_client};

#[tokio::test(flavor = "multi_thread")]
async fn at_most_the_limit_is_taken_and_waiters_are_served_in_order() {
    let server = Server::start();
    let semaphore = client_of(&server).semaphore("pool", 2);
    let first = in_time(semaphore.acquire()).await.expect("a permit");
    let second = in_time(semaphore.acquire()).await.expect("a permit");
    assert_eq!((first.name(), first.permits()), (&b"pool"[..], 1));
    contention(in_time(semaphore.try_acquire()).await);
    contention(in_time(semaphore.acquire().wait(Duration::from_millis(50))).await);
    let third = in_queue(&server, semaphore.acquire());
    // A large request holds back those behind it.
    let both = in_queue(&server, semaphore.acquire_many(2));
    assert!(first.release().await.is_ok());
    let third = in_time(third).await.expect("a task").expect("a permit");
    assert!(third.token() > second.token());
    assert!(second.release().await.is_ok());
    contention(in_time(semaphore.try_acquire()).await);
    assert!(third.release().await.is_ok());
    let both = in_time(both).await.expect("a task").expect("two permits");
    assert_eq!((both.permits(), lock_info(&mut server.client(), "pool").expect("taken").count), (2, 2));
    assert!(both.release().await.is_ok());
    assert_eq!(lock_info(&mut server.client(), "pool"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_renewed_lost_and_returned_together() {
    let server = Server::start();
    let semaphore = client_of(&server).semaphore("pool", 3);
    let lease = Duration::from_millis(1200);
    let kept = in_time(semaphore.acquire_many(2).lease(lease)).await.expect("permits");
    let mut watch = server.client();
    let end = watch.end_of("pool");
    dlock_testkit::soon("they outlive a lease", || watch.end_of("pool") > end + 1200);
    assert_eq!(lock_info(&mut watch, "pool").expect("taken").count, 2);
    watch.int("DEL pool");
    in_time(kept.lost()).await;
    lost(kept.release().await);
    let session = in_time(semaphore.acquire_many(3).session()).await.expect("permits");
    drop(session);
    freed(&server, "pool");
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_numbers_are_refused_before_anything_is_sent() {
    let (_server, client) = server_and_client();
    for (limit, permits) in [(0, 1), (2, 0), (2, 3)] {
        let outcome = in_time(client.semaphore("pool", limit).acquire_many(permits)).await;
        assert!(matches!(outcome, Err(Error::Invalid(_))), "{permits} of {limit}: {outcome:?}");
    }
    assert!(in_time(client.semaphore("pool", u32::MAX).acquire_many(u32::MAX)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_comes_with_the_lowest_number_that_is_free() {
    let (server, client) = server_and_client();
    let pool = client.semaphore("pool", 3);
    let first = in_time(pool.acquire_slot().no_wait()).await.expect("a permit");
    let second = in_time(pool.acquire_slot().session()).await.expect("a permit");
    let plain = in_time(pool.acquire()).await.expect("a permit");
    assert_eq!([first.slot(), second.slot(), plain.slot()], [Some(0), Some(1), None]);
    assert_eq!((first.permits(), plain.permits()), (1, 1));
    let info = in_time(client.info("pool")).await.expect("an answer").expect("taken");
    let slots: Vec<_> = info.holds.iter().map(|hold| hold.slot).collect();
    assert_eq!(slots, [Some(0), Some(1), None]);
    contention(in_time(pool.acquire_slot().no_wait()).await);
    let next = in_queue(&server, pool.acquire_slot());
    assert!(first.release().await.is_ok());
    let next = in_time(next).await.expect("a task").expect("a permit");
    assert_eq!(next.slot(), Some(0));
    let session = in_time(dlock_client::Session::open(&client, Duration::from_secs(5))).await.expect("a session");
    drop((second, plain));
    let named =
        in_time(pool.acquire_slot().in_session(&session).wait(Duration::from_secs(20))).await.expect("a permit");
    assert!(named.slot().is_some_and(|slot| slot == 1 || slot == 2), "{:?}", named.slot());
}
