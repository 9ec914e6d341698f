//! The servers of a quorum that count towards a majority.

use std::time::{Duration, Instant};

use dlock_client::{Client, Error};

use crate::{RELAXED, in_time, quorum, servers, urls};
use dlock_testkit::{Server, Setup};

fn too_few<T: std::fmt::Debug>(outcome: Result<T, Error>, why: &str) {
    match outcome {
        Err(Error::TooFew(text)) if text.contains(why) => {}
        outcome => panic!("{why}, not {outcome:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_have_forgotten_locks_counts_when_every_lease_has_ended() {
    let mut servers = [Server::start(), Server::start(), Server::start()];
    let longest = Duration::from_secs(4);
    let client = Client::quorum(urls(&servers), longest).server_timeout(longest / 4).open().expect("a quorum");
    let lease = |client: &Client| client.try_acquire("job").lease(longest);
    too_few(in_time(lease(&client)).await, "started lately");
    let guard = loop {
        match in_time(lease(&client)).await {
            Ok(guard) => break guard,
            Err(Error::TooFew(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    };
    // Two servers forget the lock. They must not grant it to another client.
    servers[1..].iter_mut().for_each(Server::kill9);
    servers[1..].iter_mut().for_each(Server::boot);
    let other = Client::quorum(urls(&servers), longest).server_timeout(longest / 4).open().expect("a quorum");
    let outcome = in_time(lease(&other)).await;
    assert!(matches!(outcome, Err(Error::TooFew(_) | Error::Contention)), "{outcome:?}");
    in_time(guard.renew()).await.expect_err("no majority keeps it");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_and_promoted_replicas_are_refused() {
    let primary = Server::start();
    let replica = Setup::new().replica_of(&primary);
    replica.wait_synced(&primary);
    let client =
        Client::quorum(urls(std::slice::from_ref(&replica)), RELAXED * 4).server_timeout(RELAXED).open().expect("one");
    too_few(in_time(client.try_acquire("job").lease(RELAXED * 4)).await, "is a replica");
    replica.promote();
    let client =
        Client::quorum(urls(std::slice::from_ref(&replica)), RELAXED * 4).server_timeout(RELAXED).open().expect("one");
    too_few(in_time(client.try_acquire("job").lease(RELAXED * 4)).await, "was promoted");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_declared_persistent_must_have_an_aof() {
    let servers = [Server::start()];
    let client = quorum(&servers).server_timeout(RELAXED).open().expect("a quorum");
    too_few(in_time(client.try_acquire("job")).await, "has no AOF");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_under_two_names_counts_once() {
    let servers = servers(1);
    let port = servers[0].port();
    let twice = [format!("redis://127.0.0.1:{port}"), format!("redis://localhost:{port}")];
    let client = Client::quorum(twice, crate::LONGEST).persistent().server_timeout(RELAXED).open().expect("a quorum");
    // After both names have answered, the client knows that they are the same server.
    let _ = in_time(client.try_acquire("job")).await;
    too_few(in_time(client.try_acquire("other")).await, "is the same server as");
}

#[tokio::test]
async fn passwords_are_not_printed() {
    let tls = dlock_client::Tls::new().ca("s3cret").identity("s3cret", "s3cret");
    let builder = Client::quorum(["redis://user:s3cret@127.0.0.1:1"], crate::LONGEST);
    let single =
        Client::builder("redis-sentinel://user:s3cret@127.0.0.1:1/main").sentinel_login(Some("user"), "s3cret");
    let printed = format!("{builder:?} {:?} {single:?} {tls:?}", builder.clone().tls(tls.clone()));
    assert!(printed.contains("QuorumBuilder") && !printed.contains("s3cret"), "{printed}");
    for client in [builder.open(), single.open()] {
        let error =
            in_time(client.expect("a URL").try_acquire("job").outage(Duration::from_secs(1))).await.expect_err("down");
        let printed = format!("{error:?} {error} {:?}", std::error::Error::source(&error));
        assert!(printed.contains("127.0.0.1:1") && !printed.contains("s3cret"), "{printed}");
    }
}

#[test]
fn urls_that_cannot_be_a_quorum_are_refused() {
    let open = |urls: &[&str]| Client::quorum(urls.iter().copied(), crate::LONGEST).open();
    for urls in [&[][..], &["redis://a,b"], &["redis-sentinel://a/main"], &["http://a"]] {
        assert!(matches!(open(urls), Err(Error::Invalid(_))), "{urls:?}");
    }
    assert!(open(&["redis://a", "redis://b", "redis://c"]).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_sessions_that_a_quorum_cannot_give_are_refused() {
    let client = Client::quorum(["redis://127.0.0.1:1"], Duration::from_secs(2)).open().expect("a quorum");
    for acquire in [client.acquire("job"), client.acquire("job").lease(RELAXED).session()] {
        let outcome = in_time(acquire).await;
        assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_about_young_servers_is_the_same_each_time_and_says_when_they_count() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let without_numbers = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    let mut told = Vec::new();
    for round in 0..10 {
        let client = Client::quorum(urls(&servers), Duration::from_secs(3600)).server_timeout(RELAXED);
        let client = client.open().expect("a quorum");
        // A lock of its own for each round: what the last round left on a server may take its lease to end.
        let name = format!("job:{round}");
        let acquire = if round % 2 == 0 { client.acquire(&name).outage(RELAXED) } else { client.try_acquire(&name) };
        let began = Instant::now();
        match in_time(acquire).await {
            Err(Error::TooFew(why)) => told.push(why),
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < RELAXED * 2, "the round {round} took {:?}", began.elapsed());
    }
    assert!(told[0].starts_with("0 of 3, a majority is 2: "), "{}", told[0]);
    assert!(told[0].contains("; a majority counts in ") && told[0].matches("started lately").count() == 3);
    for why in &told {
        assert_eq!(without_numbers(why), without_numbers(&told[0]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_down_are_named_once() {
    let urls = ["redis://127.0.0.1:1", "redis://127.0.0.1:2"];
    let client = Client::quorum(urls, Duration::from_secs(60)).server_timeout(RELAXED).open().expect("a quorum");
    let Err(Error::TooFew(why)) = in_time(client.try_acquire("job").outage(RELAXED)).await else {
        panic!("no server is there");
    };
    assert!(["127.0.0.1:1:", "127.0.0.1:2:"].iter().all(|address| why.matches(address).count() == 1), "{why}");
    assert!(!why.contains("127.0.0.1:1 ") && !why.contains("127.0.0.1:2 "), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_granted_when_young_servers_begin_to_count() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let lease = Duration::from_secs(1);
    let client = Client::quorum(urls(&servers), lease).server_timeout(lease / 4).open().expect("a quorum");
    let guard = in_time(client.acquire("job").lease(lease).wait(Duration::from_secs(60))).await.expect("a lock");
    guard.release().await.expect("held");
}
