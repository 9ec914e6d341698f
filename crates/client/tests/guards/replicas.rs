//! Grants that replicas must acknowledge.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use dlock_client::{Client, Error};
use dlock_testkit::cluster::Cluster;
use dlock_testkit::proxy::Proxy;
use dlock_testkit::{Server, Stopwatch, soon};

use crate::{client_of, connections, freed, in_queue, in_time, is_held};

/// A time for replicas that no test uses up.
const LONG: Duration = Duration::from_secs(20);
/// A time for replicas that tests let pass.
const SHORT: Duration = Duration::from_millis(50);

/// Fails unless this number of replicas, of the two wanted, acknowledged.
fn too_few<T: std::fmt::Debug>(outcome: Result<T, Error>, found: u32) {
    match outcome {
        Err(Error::TooFewReplicas { acknowledged, wanted, .. }) => assert_eq!((acknowledged, wanted), (found, 2)),
        other => panic!("{other:?}"),
    }
}

/// A primary and its replica, which acknowledges what is written.
fn pair() -> (Server, Server) {
    let (primary, replica) = Server::start().with_replica();
    let mut client = primary.client();
    soon("the replica acknowledges", || {
        client.ok("SET x 1");
        client.int("WAIT 1 1000") == 1
    });
    client.int("DEL x");
    (primary, replica)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_grant_is_on_the_replica_with_and_without_a_wait() {
    let (primary, replica) = pair();
    let client = client_of(&primary);
    let at_once = in_time(client.try_acquire("job").replicas(1, LONG)).await.expect("a lock");
    is_held(&replica, &at_once);
    assert_eq!(primary.client().calls("dlock.renew"), 0, "a grant at once is a write that WAIT waits for");
    let waiting = in_queue(&primary, client.acquire("job").replicas(1, LONG));
    assert!(at_once.release().await.is_ok());
    let waited = in_time(waiting).await.expect("a task").expect("a lock");
    is_held(&replica, &waited);
    assert!(waited.renew().await.is_ok());
    assert!(waited.release().await.is_ok());
    let several = in_time(client.acquire_all(["a", "b"]).replicas(1, LONG)).await.expect("the locks");
    assert!(several.renew().await.is_ok());
    for name in ["a", "b"] {
        assert_eq!(replica.holders(name), [several.owner().to_owned()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_are_an_error_and_leave_nothing() {
    let (primary, _replica) = pair();
    let client = client_of(&primary);
    for acquire in [client.try_acquire("job"), client.acquire("job"), client.acquire("job").session()] {
        let outcome = in_time(acquire.lease(Duration::from_secs(600)).replicas(2, SHORT)).await;
        let error = outcome.as_ref().expect_err("an error").to_string();
        assert_eq!(error, "1 of 2 replicas acknowledged in time");
        too_few(outcome, 1);
        freed(&primary, "job");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_replicas_that_is_refused_leaves_nothing() {
    let server = Server::start();
    server
        .client()
        .ok("ACL SETUSER jobs on >secret ~* &* +dlock.acquire +dlock.macquire +dlock.renew +dlock.release +ping");
    let client = Client::open(&format!("redis://jobs:secret@127.0.0.1:{}", server.port())).expect("a URL");
    let several = client.acquire_all(["job", "other"]);
    for acquire in [client.try_acquire("job"), client.acquire("job"), client.acquire("job").session(), several] {
        let outcome = in_time(acquire.lease(Duration::from_secs(600)).replicas(1, SHORT)).await;
        assert!(matches!(&outcome, Err(Error::Refused(why)) if why.code() == Some("NOPERM")), "{outcome:?}");
        assert_eq!(server.holders("job"), [""; 0]);
        assert_eq!(server.holders("other"), [""; 0]);
    }
}

/// The release after the refusal has the time limit of the acquisition, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_replicas_that_is_refused_ends_in_time_without_an_answer_to_the_release() {
    let server = Server::start();
    server.client().ok("ACL SETUSER jobs on >secret ~* &* +dlock.acquire +dlock.release +ping");
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url().replace("redis://", "redis://jobs:secret@")).expect("a URL");
    let limit = Duration::from_millis(500);
    for acquire in [client.acquire("job").wait(limit), client.try_acquire("job").outage(limit)] {
        proxy.keep_from("DLOCK.RELEASE");
        let began = Stopwatch::start();
        let outcome = in_time(acquire.replicas(1, SHORT)).await;
        assert!(matches!(&outcome, Err(Error::Refused(_))), "{outcome:?}");
        began.is_between(Duration::ZERO, limit + SHORT + Duration::from_millis(250), "a refusal");
        proxy.deliver();
        freed(&server, "job");
    }
}

/// The server hangs as soon as it has granted the lock, or the release does not arrive.
#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_are_the_error_even_if_an_answer_after_the_grant_is_missing() {
    let limit = Duration::from_secs(1);
    for (hangs, waits) in [(true, false), (true, true), (false, false), (false, true)] {
        let server = Server::start();
        let (proxy, mut other) = (Proxy::to(&server), server.client());
        let client = Client::open(&proxy.url()).expect("a URL");
        let acquire = client.acquire("job").replicas(2, LONG);
        let acquire = if waits { acquire.wait(limit) } else { acquire.no_wait().outage(limit) };
        if waits {
            other.int("DLOCK.ACQUIRE job other PX 60000");
        }
        proxy.keep_from("DLOCK.RELEASE");
        let began = Stopwatch::start();
        let acquiring = tokio::spawn(acquire.into_future());
        if waits {
            server.left_waiting(1);
            other.int("DLOCK.RELEASE job other");
        }
        soon("the lock is granted", || !server.holders("job").is_empty());
        if hangs {
            server.freeze();
        }
        too_few(in_time(acquiring).await.expect("a task"), 0);
        began.is_between(limit / 2, limit + Duration::from_millis(250), "the error");
        server.thaw();
        proxy.deliver();
        freed(&server, "job");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_does_not_wait_for_replicas() {
    let (primary, _replica) = pair();
    let client = client_of(&primary);
    let _held = in_time(client.acquire("job")).await.expect("a lock");
    let began = Instant::now();
    crate::contention(in_time(client.try_acquire("job").replicas(2, LONG)).await);
    assert!(began.elapsed() < LONG / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_acknowledged_renewals_count() {
    let (primary, replica) = pair();
    let client = client_of(&primary);
    let lease = Duration::from_millis(1500);
    for session in [false, true] {
        let acquire = client.acquire("job").lease(lease).replicas(1, Duration::from_millis(200));
        let acquire = if session { acquire.session() } else { acquire };
        let guard = in_time(acquire).await.expect("a lock");
        replica.freeze();
        let outcome = in_time(guard.renew()).await;
        assert!(matches!(outcome, Err(Error::TooFewReplicas { .. })), "{outcome:?}");
        in_time(guard.lost()).await;
        assert_eq!(guard.remaining(), Duration::ZERO);
        replica.thaw();
        replica.wait_synced(&primary);
        drop(guard);
        freed(&primary, "job");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_after_a_failure_get_their_own_answers() {
    let (primary, _replica) = pair();
    let client = client_of(&primary);
    primary.client().ok("SET text x");
    let before = connections(&primary);
    for _ in 0..3 {
        let waits = || client.acquire("text").wait(Duration::from_millis(600));
        for acquire in [client.try_acquire("text"), waits(), waits().session()] {
            let outcome = in_time(acquire.replicas(1, LONG)).await;
            assert!(matches!(&outcome, Err(Error::Contention)), "{outcome:?}");
            let guard = in_time(client.try_acquire("job").replicas(1, LONG)).await.expect("a lock");
            is_held(&primary, &guard);
            assert_eq!(in_time(client.info("job")).await.expect("an answer").expect("held").token, Some(guard.token()));
            assert!(guard.release().await.is_ok());
        }
    }
    soon("connections with an unread reply are closed", || connections(&primary) <= before + 2);
}

/// Returns how many requests for a lock the server has got, with those that it did not execute.
fn requests(client: &mut dlock_testkit::Client) -> u64 {
    let stats = client.text("INFO commandstats");
    let stats = stats.lines().find_map(|line| line.strip_prefix("cmdstat_dlock.acquire:")).unwrap_or_default();
    let fields = stats.split(',').filter_map(|field| field.split_once('='));
    fields
        .filter(|(name, _)| ["calls", "rejected_calls"].contains(name))
        .filter_map(|(_, n)| n.parse::<u64>().ok())
        .sum()
}

/// A connection whose command was answered without a grant is closed, or the next request takes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_asks_again_and_again_keeps_few_connections() {
    let primary = Server::start();
    let client = client_of(&primary);
    let mut other = primary.client();
    let cases =
        [("a key of another type", "SET job x", "DEL job"), ("a replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")];
    for (case, begin, end) in cases {
        for replicas in [None, Some(1)] {
            other.run(begin);
            let (before, asked) = (connections(&primary), requests(&mut other));
            let acquire = client.acquire("job").session();
            let acquire = replicas.map_or(acquire.clone(), |number| acquire.replicas(number, SHORT));
            let waiting = tokio::spawn(acquire.into_future());
            soon("the client has asked several times", || requests(&mut other) >= asked + 8);
            // The server may notice late that a connection is closed.
            let what = format!("few connections: {case}, {replicas:?}, {before} before");
            soon(&what, || connections(&primary) <= before + 3);
            other.run(end);
            match replicas {
                None => assert!(in_time(waiting).await.expect("a task").expect("a lock").release().await.is_ok()),
                Some(_) => assert!(in_time(waiting).await.expect("a task").is_err(), "there is no replica"),
            }
            freed(&primary, "job");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_to_a_dropped_acquisition_are_not_taken_for_others() {
    let (primary, _replica) = pair();
    let client = client_of(&primary);
    let names: Vec<String> = (0..8).map(|number| format!("held:{number}")).collect();
    let mut tokens = Vec::new();
    for name in &names {
        tokens.push(primary.client().int(format!("DLOCK.ACQUIRE {name} other PX 600000")) as u64);
    }
    for round in 0..200_u64 {
        let acquire = client.acquire(format!("job:{round}")).lease(Duration::from_secs(600));
        let acquire = match round % 3 {
            0 => acquire.replicas(1, LONG),
            1 => acquire.no_wait(),
            _ => acquire.session(),
        };
        let dropped = tokio::time::timeout(Duration::from_micros(round * 20), acquire);
        let looks = client.info(&names[round as usize % names.len()]);
        let (dropped, look) = tokio::join!(dropped, in_time(looks));
        let look = look.expect("an answer").expect("held");
        assert_eq!(look.token, Some(tokens[round as usize % names.len()]), "the answer to another request");
        drop(dropped);
    }
    in_time(client.settled()).await;
    for round in 0..200 {
        freed(&primary, &format!("job:{round}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirected_connection_with_an_unread_reply_delays_no_later_request() {
    let (cluster, home, other) = Cluster::of_two("job");
    let client = Client::open(&format!("redis://127.0.0.1:{}", cluster.nodes[other].port())).expect("a URL");
    // The first node redirects the request, and then waits for replicas that it does not have.
    let waiting = tokio::spawn(client.acquire("job").replicas(2, Duration::from_secs(4)).into_future());
    soon("the lock is granted elsewhere", || !cluster.nodes[home].holders("job").is_empty());
    let here = (0..).map(|number| format!("other:{number}")).find(|key| cluster.home_of(key) == other).expect("a key");
    let began = Instant::now();
    let guard = in_time(client.try_acquire(&here)).await.expect("a lock");
    assert!(guard.release().await.is_ok());
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    too_few(in_time(waiting).await.expect("a task"), 0);
    freed(&cluster.nodes[home], "job");
}

/// The client renews a grant after a wait without its token. A copy of this renewal may arrive late.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_of_a_grant_that_comes_late_is_counted() {
    let (primary, _replica) = pair();
    let network = Proxy::to(&primary);
    let client = Client::open(&network.url()).expect("a URL");
    let mut other = primary.client();
    let lease = Duration::from_secs(2);
    other.int("DLOCK.ACQUIRE job other PX 60000");
    network.strand("RENEW", "WAIT");
    let acquire = client.acquire("job").lease(lease).no_renewal().replicas(1, LONG);
    let waiting = tokio::spawn(acquire.into_future());
    primary.left_waiting(1);
    other.int("DLOCK.RELEASE job other");
    let guard = in_time(waiting).await.expect("a task").expect("a lock");
    in_time(guard.extend(LONG)).await.expect("held");
    network.deliver();
    soon("the late renewal has cut the lease", || {
        dlock_testkit::lock_info(&mut other, "job").is_none_or(|lock| lock.ttl < 3000)
    });
    assert!(guard.remaining() <= lease, "{:?} remain", guard.remaining());
    other.int("DLOCK.ACQUIRE job next PX 60000 BLOCK 20000");
    assert!(!guard.is_held());
}
