//! Acquisitions and releases of a lock, and the errors of both.

use std::time::{Duration, Instant};

use dlock_client::{Client, Error};

use crate::{client_of, connections, contention, freed, in_queue, in_time, is_held, server_and_client};
use dlock_testkit::process::free_port;
use dlock_testkit::{Server, Setup, lock_info};

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_matches_the_hold_on_the_server() {
    let server = Server::start();
    let lease = Duration::from_secs(20);
    let guard = in_time(client_of(&server).acquire("job").lease(lease)).await.expect("a free lock");
    is_held(&server, &guard);
    assert_eq!(guard.name(), b"job");
    let ttl = Duration::from_millis(lock_info(&mut server.client(), "job").expect("a lock").ttl as u64);
    // `remaining` counts from before the grant, and is read after the TTL.
    assert!(guard.remaining() <= ttl + Duration::from_millis(1) && guard.remaining() > lease / 2, "{ttl:?} {guard:?}");
    assert!(guard.renew().await.is_ok());
    assert!(guard.release().await.is_ok());
    assert_eq!(lock_info(&mut server.client(), "job"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_acquisition_has_an_owner_of_its_own_and_a_higher_token() {
    let (_server, client) = server_and_client();
    let first = in_time(client.acquire("a")).await.expect("a lock");
    let second = in_time(client.acquire("b")).await.expect("a lock");
    assert_ne!(first.owner(), second.owner());
    assert!(second.token() > first.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_may_begin_with_a_label() {
    let (server, client) = server_and_client();
    let labeled = |name: &str| client.read(name).owner_label("web-1:4711");
    let [one, other] = [in_time(labeled("a")).await, in_time(labeled("b")).await].map(|guard| guard.expect("a lock"));
    for guard in [&one, &other] {
        assert!(guard.owner().starts_with("web-1:4711:"), "{guard:?}");
        is_held(&server, guard);
    }
    assert_ne!(one.owner(), other.owner());
    let upgraded = in_time(one.upgrade().expect("a reader").owner_label("other")).await.expect("nobody else reads");
    assert_eq!(upgraded.owner(), one.owner());
    // A label has 256 bytes at most.
    let long = in_time(client.acquire("c").owner_label("x".repeat(257))).await;
    assert!(matches!(long, Err(Error::Invalid(_))), "{long:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_of_an_acquisition_is_another_acquisition() {
    let (server, client) = server_and_client();
    let acquire = client.try_acquire("job");
    let first = in_time(acquire.clone()).await.expect("a lock");
    contention(in_time(acquire.clone()).await);
    is_held(&server, &first);
    assert!(first.release().await.is_ok());
    let second = in_time(acquire).await.expect("a lock");
    is_held(&server, &second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_contention_at_once_or_after_the_wait() {
    let (_server, client) = server_and_client();
    let guard = in_time(client.acquire("job")).await.expect("a lock");
    contention(in_time(client.try_acquire("job")).await);
    contention(in_time(client.read("job").no_wait()).await);
    let began = Instant::now();
    contention(in_time(client.acquire("job").wait(Duration::from_millis(80))).await);
    assert!(began.elapsed() >= Duration::from_millis(80));
    assert!(guard.release().await.is_ok());
    assert!(in_time(client.try_acquire("job")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_a_writer_does_not() {
    let (_server, client) = server_and_client();
    let readers =
        [in_time(client.read("doc")).await.expect("a lock"), in_time(client.read("doc")).await.expect("a lock")];
    contention(in_time(client.write("doc").no_wait()).await);
    for reader in readers {
        assert!(reader.release().await.is_ok());
    }
    let writer = in_time(client.write("doc")).await.expect("a lock");
    contention(in_time(client.read("doc").no_wait()).await);
    drop(writer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_frees_the_lock() {
    let server = Server::start();
    drop(in_time(client_of(&server).acquire("job").lease(Duration::from_secs(600))).await.expect("a lock"));
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_not_awaited_to_the_end_goes_on() {
    let server = Server::start();
    let guard = in_time(client_of(&server).acquire("job").lease(Duration::from_secs(600))).await.expect("a lock");
    server.freeze();
    let cut = tokio::time::timeout(Duration::from_millis(30), guard.release()).await;
    assert!(cut.is_err());
    server.thaw();
    freed(&server, "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_server_is_not_contention() {
    let client = Client::open(&format!("redis://127.0.0.1:{}", free_port())).expect("a URL");
    for acquire in [client.acquire("job"), client.try_acquire("job"), client.acquire("job").session()] {
        let outcome = in_time(acquire.outage(Duration::from_millis(100))).await;
        let Err(error @ Error::Unreachable(_)) = outcome else { panic!("{outcome:?}") };
        let source = std::error::Error::source(&error).expect("the error of the crate `redis`");
        assert!(source.is::<redis::RedisError>(), "{source}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_server_without_the_module_says_so() {
    let plain = Setup::plain().start();
    let outcome = in_time(client_of(&plain).acquire("job")).await;
    let Err(error @ Error::Refused(_)) = outcome else { panic!("{outcome:?}") };
    assert!(error.to_string().contains("is the dlock module loaded?"), "{error}");
    let source = std::error::Error::source(&error).expect("the error of the crate `redis`");
    assert!(source.is::<redis::RedisError>(), "{source}");
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_and_passwords_are_those_of_the_url() {
    let (server, mut client) = Server::start().with_client();
    client.ok("CONFIG SET requirepass secret");
    let url = |login: &str| format!("redis://{login}127.0.0.1:{}/3", server.port());
    let outcome = in_time(Client::open(&url("")).expect("a URL").acquire("job")).await;
    assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
    let guard = in_time(Client::open(&url(":secret@")).expect("a URL").acquire("job")).await.expect("a lock");
    client.ok("SELECT 3");
    assert_eq!(lock_info(&mut client, "job").expect("a lock").token as u64, guard.token());
}

/// A program without dlock holds a lock of the same name: a string that was set with `NX`. Such a lock has no queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_program_without_dlock_counts_as_held() {
    let (server, client) = server_and_client();
    let mut old = server.client();
    let kinds = || {
        let session = client.acquire("text").session();
        [client.acquire("text"), client.acquire_all(["other", "text"]), client.semaphore("text", 2).acquire(), session]
    };
    old.ok("SET text 1 NX");
    for acquire in kinds() {
        let outcome = in_time(acquire.clone().no_wait()).await;
        assert!(matches!(outcome, Err(Error::Contention)), "{outcome:?}");
        let (began, limit) = (Instant::now(), Duration::from_millis(300));
        let outcome = in_time(acquire.clone().wait(limit)).await;
        assert!(matches!(outcome, Err(Error::Contention)) && began.elapsed() >= limit, "{outcome:?}");
    }
    for acquire in kinds() {
        old.int("DEL text");
        // The request waits behind a lock of dlock. When the key is overwritten, it polls until the key is deleted.
        old.int("DLOCK.ACQUIRE text before PX 600000");
        let waiting = in_queue(&server, acquire);
        old.ok("SET text 1");
        // A request whose key is a string polls every 100 ms.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!waiting.is_finished());
        let before = connections(&server);
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(connections(&server) <= before, "a poll has opened a new connection");
        old.int("DEL text");
        in_time(waiting).await.expect("a task").expect("a lock").release().await.expect("held");
        freed(&server, "text");
    }
}

/// Client and server round to whole milliseconds, so that nothing is left of a lease under 3 ms. Every grant would
/// count as lost, and an acquisition without a limit would never end.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_certain_for_no_moment_is_refused_at_once() {
    let (server, client) = server_and_client();
    let ms = Duration::from_millis;
    let guard = in_time(client.acquire("held").lease(ms(60_000))).await.expect("a lock");
    for lease in [ms(0), ms(1), ms(2), Duration::from_nanos(2_999_999)] {
        for acquire in [client.acquire("job"), client.acquire("job").no_renewal(), client.try_acquire("job")] {
            let capped = acquire.clone().max_hold(lease);
            for acquire in [acquire.lease(lease), capped] {
                let outcome = in_time(acquire).await;
                assert!(matches!(outcome, Err(Error::Invalid(_))), "{lease:?}: {outcome:?}");
            }
        }
        let outcome = in_time(guard.extend(lease)).await;
        assert!(matches!(outcome, Err(Error::Invalid(_))), "{lease:?}: {outcome:?}");
        assert!(guard.is_held());
    }
    freed(&server, "job");
}
