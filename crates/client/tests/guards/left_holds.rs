//! Holds that stay on the server although their guard has ended: the release was refused, or had no answer. An upgrade
//! has the owner of its reader, so it could enter the hold that the last one has left. The cap, the session and the late
//! commands of that hold must not end the upgrade.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, Guard, Session};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::skip::skipped;
use dlock_testkit::{Server, Stopwatch, soon};
use tokio::time::sleep;

use crate::capped::left_on_server;
use crate::late::{LONG, arrives, stranded};
use crate::{freed, in_queue, in_time, server_and_client};

fn clients(server: &Server) -> (Proxy, Client) {
    let proxy = Proxy::to(server);
    let client = Client::open(&proxy.url()).expect("a URL");
    (proxy, client)
}

async fn reader(client: &Client) -> Guard {
    in_time(client.read("doc").lease(LONG)).await.expect("a lock")
}

async fn upgrade(reader: &Guard) -> Guard {
    in_time(reader.upgrade().expect("a reader")).await.expect("nobody else reads")
}

/// Lets the server refuse all writes, or execute them again.
fn refuses(server: &Server, refuses: bool) {
    server.client().ok(format!("CONFIG SET min-replicas-to-write {}", u8::from(refuses)));
}

/// Releases a guard, which the server refuses.
async fn refused(server: &Server, guard: Guard) {
    refuses(server, true);
    let released = in_time(guard.release()).await;
    assert!(matches!(released, Err(Error::Refused(_))), "{released:?}");
    refuses(server, false);
}

/// Strands the next command that names the token of the guard.
fn strands(proxy: &Proxy, guard: &Guard) {
    let token: &'static str = Box::leak(guard.token().to_string().into_boxed_str());
    proxy.strand(token, token);
}

/// Fails if the guard says that the lock is held for longer than the server has the hold.
#[track_caller]
fn not_longer(server: &Server, guard: &Guard, what: &str) {
    let has = left_on_server(&mut server.client(), guard);
    let left = guard.remaining();
    assert!(left <= has && !left.is_zero(), "{what}: {left:?} are left, on the server {has:?}");
}

/// The renewal by which the last hold stays for a while arrives late, after its repeat.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_renewal_of_a_hold_that_stays_ends_no_later_upgrade() {
    const STAY: Duration = Duration::from_secs(2);
    for kind in ["release_after", "at_least", "at_least, dropped", "at_least, downgraded"] {
        let server = Server::start();
        let (proxy, client) = clients(&server);
        let reader = match kind {
            "at_least, downgraded" => {
                let writer = in_time(client.write("doc").lease(LONG).at_least(STAY)).await.expect("a lock");
                strands(&proxy, &writer);
                in_time(writer.downgrade()).await.expect("held")
            }
            _ => {
                let reader = reader(&client).await;
                let acquire = reader.upgrade().expect("a reader");
                let acquire = if kind == "release_after" { acquire } else { acquire.at_least(STAY) };
                let writer = in_time(acquire).await.expect("nobody else reads");
                strands(&proxy, &writer);
                match kind {
                    "release_after" => in_time(writer.release_after(STAY)).await.expect("held"),
                    "at_least" => in_time(writer.release()).await.expect("held"),
                    _ => drop(writer),
                }
                in_time(client.settled()).await;
                reader
            }
        };
        let next = upgrade(&reader).await;
        arrives(&server, &proxy, "dlock.renew");
        not_longer(&server, &next, kind);
        sleep(STAY).await;
        not_longer(&server, &next, kind);
    }
}

/// A renewal by a short lease gets no answer, and arrives late: the lock stays as long as it should all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_renewal_does_not_shorten_the_time_that_a_lock_stays() {
    const LATEST: Duration = Duration::from_secs(1);
    for _ in 0..10 {
        let server = Server::start();
        let (proxy, client) = clients(&server);
        let guard = in_time(client.acquire("job").lease(3 * LATEST)).await.expect("a lock");
        strands(&proxy, &guard);
        let began = Instant::now();
        let _ = in_time(guard.renew()).await;
        let staying = tokio::spawn(guard.release_after(LONG));
        sleep(LATEST / 4).await;
        arrives(&server, &proxy, "dlock.renew");
        let arrived = began.elapsed();
        in_time(staying).await.expect("no panic").expect("held");
        // A late machine may deliver when no client expects it any more.
        if arrived < LATEST {
            let left = server.client().int("PTTL job");
            assert!(left > 60_000, "{left} ms are left");
            return;
        }
    }
    skipped("in no run did the machine deliver within a second");
}

/// The release is refused, so that the hold is still there. A renewal of it arrives late.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_renewal_of_a_hold_that_was_not_released_ends_no_later_upgrade() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let reader = reader(&client).await;
    let lease = Duration::from_secs(3);
    let writer = in_time(reader.upgrade().expect("a reader").lease(lease)).await.expect("nobody else reads");
    let mut watch = server.client();
    strands(&proxy, &writer);
    let before = watch.calls("dlock.renew");
    soon("the repeat of the renewal", || watch.calls("dlock.renew") > before);
    refused(&server, writer).await;
    let next = upgrade(&reader).await;
    arrives(&server, &proxy, "dlock.renew");
    not_longer(&server, &next, "a late renewal");
    sleep(lease).await;
    not_longer(&server, &next, "a late renewal");
}

/// The release is refused, and the server learns late that the connection has ended to which the hold is bound.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_connection_ends_no_later_upgrade() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let reader = reader(&client).await;
    let writer = in_time(reader.upgrade().expect("a reader").session()).await.expect("nobody else reads");
    let late = Duration::from_millis(1500);
    proxy.delay_ends(late);
    refused(&server, writer).await;
    let next = upgrade(&reader).await;
    not_longer(&server, &next, "at first");
    sleep(late * 2).await;
    not_longer(&server, &next, "after the end");
}

/// The release is refused, and the hold has a cap.
#[tokio::test(flavor = "multi_thread")]
async fn the_cap_of_a_hold_that_was_not_released_ends_no_later_upgrade() {
    let (server, client) = server_and_client();
    let reader = reader(&client).await;
    let cap = Duration::from_secs(2);
    let writer = in_time(reader.upgrade().expect("a reader").max_hold(cap)).await.expect("nobody else reads");
    refused(&server, writer).await;
    let next = upgrade(&reader).await;
    not_longer(&server, &next, "at first");
    sleep(cap).await;
    not_longer(&server, &next, "after the cap");
}

/// The client has lost its session, and the server keeps it for a while, with the hold.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_ends_no_later_upgrade() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let session = in_time(Session::open(&client, Duration::from_secs(3))).await.expect("a session");
    let reader = reader(&client).await;
    let writer = in_time(reader.upgrade().expect("a reader").in_session(&session)).await.expect("nobody else reads");
    refuses(&server, true);
    let released = in_time(writer.release()).await;
    assert!(matches!(released, Err(Error::Refused(_))), "{released:?}");
    proxy.keep_integers();
    refuses(&server, false);
    in_time(session.lost()).await;
    proxy.cut();
    let next = in_time(reader.upgrade().expect("a reader").no_renewal()).await.expect("nobody else reads");
    not_longer(&server, &next, "at first");
    let mut watch = server.client();
    soon("the session has ended", || dlock_testkit::list_of(&watch.run("DLOCK.SESSION LIST")).is_empty());
    not_longer(&server, &next, "after the end");
}

/// A connection stands still for longer than the client tries to release.
#[tokio::test(flavor = "multi_thread")]
async fn the_releases_on_a_connection_that_stands_still_end_no_later_upgrade() {
    for is_given_up in [false, true] {
        let server = Server::start();
        let (proxy, client) = clients(&server);
        let reader = reader(&client).await;
        if is_given_up {
            server.client().int("DLOCK.RLOCK doc other PX 600000");
            let upgrade = in_queue(&server, reader.upgrade().expect("a reader"));
            proxy.keep_commands();
            upgrade.abort();
            drop(upgrade.await);
        } else {
            let writer = upgrade(&reader).await;
            proxy.keep_from("RELEASE");
            drop(writer);
        }
        in_time(client.settled()).await;
        // The client has tried for 4 s, and has waited for late releases for 1 s.
        sleep(Duration::from_millis(1100)).await;
        server.client().run("DLOCK.RELEASE doc other");
        let next = tokio::spawn(reader.upgrade().expect("a reader").session().into_future());
        sleep(Duration::from_millis(200)).await;
        proxy.deliver();
        let next = in_time(next).await.expect("a task").expect("nobody else reads");
        sleep(Duration::from_millis(500)).await;
        not_longer(&server, &next, if is_given_up { "given up" } else { "dropped" });
    }
}

/// A session owes a release that was refused for a moment. Neither its heartbeats nor calls of `beat` are needed to
/// repeat that.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_does_not_wait_for_the_next_heartbeat() {
    for is_manual in [false, true] {
        let (server, client) = server_and_client();
        let timeout = Duration::from_secs(3600);
        let session = match is_manual {
            true => in_time(Session::open_manual(&client, timeout)).await,
            false => in_time(Session::open(&client, timeout)).await,
        };
        let reader = in_time(client.read("doc").in_session(&session.expect("a session"))).await.expect("a lock");
        for is_given_up in [false, true] {
            if is_given_up {
                server.client().int("DLOCK.RLOCK doc other PX 600000");
                let upgrade = in_queue(&server, reader.upgrade().expect("a reader"));
                refuses(&server, true);
                upgrade.abort();
                drop(upgrade.await);
                in_time(client.settled()).await;
                refuses(&server, false);
                server.client().int("DLOCK.RELEASE doc other");
            } else {
                refused(&server, upgrade(&reader).await).await;
            }
            let next = reader.upgrade().expect("a reader").wait(Duration::from_secs(5));
            let next = in_time(next).await.expect("nobody else reads");
            in_time(next.release()).await.expect("held");
        }
    }
}

/// No server answers, and the release of the last upgrade is open.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_after_one_that_was_not_released_ends_with_its_limit() {
    let (server, client) = server_and_client();
    let session = in_time(Session::open(&client, Duration::from_secs(60))).await.expect("a session");
    let reader = in_time(client.read("doc").in_session(&session)).await.expect("a lock");
    let writer = upgrade(&reader).await;
    refuses(&server, true);
    assert!(in_time(writer.release()).await.is_err());
    server.freeze();
    let limit = Duration::from_secs(2);
    for acquire in [
        reader.upgrade().expect("a reader").outage(limit),
        reader.upgrade().expect("a reader").wait(limit),
        reader.upgrade().expect("a reader").no_wait().outage(limit),
    ] {
        let began = Stopwatch::start();
        let upgrade = in_time(acquire).await;
        assert!(matches!(upgrade, Err(Error::Unreachable(_))), "{upgrade:?}");
        began.is_between(limit, limit + Duration::from_millis(300), "the limit of an upgrade");
    }
    server.thaw();
}

/// A server that refuses writes refuses the cleanup, too. The session would keep what it does not clean up.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_repeats_the_cleanup_of_a_request_that_the_server_refused() {
    for kind in ["given up", "late", "too few replicas"] {
        let server = Server::start();
        let (proxy, client) = clients(&server);
        let session = in_time(Session::open(&client, Duration::from_secs(20))).await.expect("a session");
        let acquire = client.acquire("job").in_session(&session);
        let is_granted = || soon("the grant", || server.holders("job").len() == 1);
        match kind {
            "given up" => {
                proxy.delay_replies(Duration::from_millis(200));
                let given_up = tokio::spawn(acquire.into_future());
                is_granted();
                refuses(&server, true);
                given_up.abort();
                drop(given_up.await);
            }
            "late" => {
                let guard = stranded(&proxy, acquire).await;
                in_time(guard.release()).await.expect("held");
                sleep(Duration::from_millis(200)).await;
                arrives(&server, &proxy, "dlock.acquire");
                refuses(&server, true);
            }
            _ => {
                let waiting = tokio::spawn(acquire.replicas(1, Duration::from_secs(1)).into_future());
                is_granted();
                refuses(&server, true);
                let outcome = in_time(waiting).await.expect("a task");
                assert!(matches!(outcome, Err(Error::TooFewReplicas { .. })), "{outcome:?}");
            }
        }
        in_time(client.settled()).await;
        assert_eq!(server.holders("job").len(), 1, "{kind}");
        refuses(&server, false);
        freed(&server, "job");
        assert!(session.is_open());
    }
}
