//! Releases that arrive late. An upgrade has the owner of its reader, and a re-entry the token of the hold, so the
//! release of one upgrade could end the next.

use std::future::IntoFuture;
use std::time::Duration;

use dlock_client::{Client, Error, Guard, Session};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::redis::Value;
use dlock_testkit::{Server, lock_info, soon};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::late::{LONG, arrives, stranded};
use crate::{freed, in_queue, in_time};

/// How late a release arrives whose connection broke.
const LATE: Duration = Duration::from_millis(400);

fn clients(server: &Server) -> (Proxy, Client) {
    let proxy = Proxy::to(server);
    let client = Client::open(&proxy.url()).expect("a URL");
    (proxy, client)
}

async fn reader(client: &Client) -> Guard {
    in_time(client.read("doc").lease(LONG)).await.expect("a lock")
}

/// Begins the next upgrade of a reader.
fn next(reader: &Guard) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(reader.upgrade().expect("a reader").into_future())
}

/// Fails unless the upgrade is granted, and is still held when all releases of the one before have been executed.
async fn is_kept(client: &Client, upgrade: JoinHandle<Result<Guard, Error>>) -> Guard {
    let writer = in_time(upgrade).await.expect("a task").expect("nobody else reads");
    in_time(client.settled()).await;
    in_time(writer.renew()).await.expect("held");
    writer
}

/// Waits until the owner of the reader writes, too.
fn writes(server: &Server) {
    let mut watch = server.client();
    soon("the upgrade is granted", || lock_info(&mut watch, "doc").is_some_and(|info| info.mode == "both"));
}

/// The session repeats the release of an upgrade that the server has refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_a_session_owes_ends_no_later_upgrade() {
    let server = Server::start();
    let (_proxy, client) = clients(&server);
    let session = in_time(Session::open(&client, Duration::from_secs(3))).await.expect("a session");
    for drops in [false, true] {
        let reader = in_time(client.read("doc").in_session(&session)).await.expect("a lock");
        let writer = in_time(reader.upgrade().expect("a reader")).await.expect("nobody else reads");
        let mut admin = server.client();
        admin.ok("CONFIG SET min-replicas-to-write 1");
        if drops {
            drop(writer);
            in_time(client.settled()).await;
        } else {
            let released = in_time(writer.release()).await;
            assert!(matches!(released, Err(Error::Refused(_))), "{released:?}");
        }
        admin.ok("CONFIG SET min-replicas-to-write 0");
        let writer = in_time(next(&reader)).await.expect("a task").expect("nobody else reads");
        // Two heartbeats follow, with the releases that are owed.
        let beats = admin.calls("dlock.session");
        soon("two heartbeats", || admin.calls("dlock.session") >= beats + 2);
        in_time(writer.renew()).await.expect("held");
        in_time(writer.release()).await.expect("held");
        in_time(reader.release()).await.expect("held");
        freed(&server, "doc");
    }
}

/// The session ends, and with it all that it owes: an upgrade does not wait for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_ended_owes_nothing() {
    let server = Server::start();
    let (_proxy, client) = clients(&server);
    let session = in_time(Session::open(&client, Duration::from_secs(3))).await.expect("a session");
    let reader = in_time(client.read("doc").in_session(&session)).await.expect("a lock");
    let writer = in_time(reader.upgrade().expect("a reader")).await.expect("nobody else reads");
    server.client().ok("CONFIG SET min-replicas-to-write 1");
    assert!(matches!(in_time(writer.release()).await, Err(Error::Refused(_))));
    in_time(session.close()).await.expect("an answer");
    let upgrade = in_time(reader.upgrade().expect("a reader")).await;
    assert!(matches!(upgrade, Err(Error::SessionEnded(_))), "{upgrade:?}");
}

/// The repeat of the release is refused, so that the hold is still there. The next upgrade enters it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_release_whose_repeat_was_refused_ends_no_later_upgrade() {
    let server = Server::start();
    for drops in [false, true] {
        let (proxy, client) = clients(&server);
        let reader = reader(&client).await;
        let writer = in_time(reader.upgrade().expect("a reader")).await.expect("nobody else reads");
        let mut admin = server.client();
        admin.ok("CONFIG SET min-replicas-to-write 1");
        proxy.strand("RELEASE", "RELEASE");
        if drops {
            drop(writer);
            // The repeat follows after 20 ms.
            sleep(LATE / 2).await;
        } else {
            assert!(matches!(in_time(writer.release()).await, Err(Error::Refused(_))));
        }
        admin.ok("CONFIG SET min-replicas-to-write 0");
        let upgrade = next(&reader);
        sleep(LATE).await;
        arrives(&server, &proxy, "dlock.release");
        let writer = is_kept(&client, upgrade).await;
        in_time(writer.release()).await.expect("held");
        in_time(reader.release()).await.expect("held");
        freed(&server, "doc");
    }
}

/// No copy of the release is read before the client tries no more.
#[tokio::test(flavor = "multi_thread")]
async fn releases_that_arrive_after_the_last_try_end_no_later_upgrade() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let reader = reader(&client).await;
    let writer = in_time(reader.upgrade().expect("a reader")).await.expect("nobody else reads");
    proxy.keep_from("RELEASE");
    drop(writer);
    let upgrade = tokio::spawn(reader.upgrade().expect("a reader").session().into_future());
    // The client tries for 4 s.
    sleep(Duration::from_secs(4) + LATE).await;
    arrives(&server, &proxy, "dlock.release");
    let _writer = is_kept(&client, upgrade).await;
}

/// The release of an upgrade that was given up names no token.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_release_of_an_upgrade_that_was_given_up_ends_no_later_one() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let reader = reader(&client).await;
    proxy.delay_replies(Duration::from_millis(200));
    let given_up = next(&reader);
    writes(&server);
    proxy.strand("RELEASE", "RELEASE");
    given_up.abort();
    drop(given_up.await);
    let upgrade = next(&reader);
    let mut watch = server.client();
    soon("the repeat of the release", || watch.calls("dlock.release") > 0);
    sleep(LATE * 2).await;
    arrives(&server, &proxy, "dlock.release");
    let _writer = is_kept(&client, upgrade).await;
}

/// The client releases again after a second, in case the request itself is late. That release arrives late.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_release_of_an_upgrade_that_was_given_up_ends_no_later_one() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let (first, second) = (reader(&client).await, reader(&client).await);
    let given_up = in_queue(&server, first.upgrade().expect("a reader"));
    given_up.abort();
    drop(given_up.await);
    in_time(second.release()).await.expect("held");
    let mut watch = server.client();
    soon("the first releases", || watch.calls("dlock.release") >= 3);
    proxy.strand("RELEASE", "RELEASE");
    let upgrade = next(&first);
    // The last release follows after a second, and its repeat soon after.
    sleep(Duration::from_secs(1) + LATE).await;
    arrives(&server, &proxy, "dlock.release");
    let _writer = is_kept(&client, upgrade).await;
}

/// The cleanup finds the hold of the second copy of a request. The first copy arrives after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_finds_one_copy_of_a_request_waits_for_the_others() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let reader = reader(&client).await;
    proxy.delay_replies(Duration::from_millis(200));
    proxy.strand("REQUEST", "REQUEST");
    let given_up = next(&reader);
    writes(&server);
    given_up.abort();
    drop(given_up.await);
    let mut watch = server.client();
    soon("the hold is released", || lock_info(&mut watch, "doc").is_some_and(|info| info.mode == "shared"));
    sleep(LATE).await;
    arrives(&server, &proxy, "dlock.wlock");
    soon("others may read", || server.client().run("DLOCK.RLOCK doc other PX 600000") != Value::Nil);
}

/// No server answers while the client releases what a late copy of an upgrade may take. The session keeps such a hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_releases_what_a_late_copy_of_an_upgrade_took_in_an_outage() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let session = in_time(Session::open(&client, Duration::from_secs(20))).await.expect("a session");
    let reader = in_time(client.read("doc").in_session(&session)).await.expect("a lock");
    let writer = stranded(&proxy, reader.upgrade().expect("a reader")).await;
    in_time(writer.release()).await.expect("held");
    server.freeze();
    in_time(client.settled()).await;
    server.thaw();
    arrives(&server, &proxy, "dlock.wlock");
    soon("others may read", || server.client().run("DLOCK.RLOCK doc other PX 600000") != Value::Nil);
}

/// The reader that a writer becomes has the writer's owner, whatever happens to its request.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_whose_connection_breaks_is_not_released_while_its_guard_says_that_it_is_held() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let writer = in_time(client.write("doc").session()).await.expect("a lock");
    proxy.strand("RLOCK", "RLOCK");
    let reader = in_time(writer.downgrade()).await;
    sleep(LATE).await;
    proxy.deliver();
    sleep(Duration::from_millis(1500)).await;
    if let Ok(reader) = reader {
        let holders = server.holders("doc");
        assert!(!reader.is_held() || holders == [reader.owner()], "{holders:?}");
    }
}

/// The lock stays for a moment after its release, and a copy of its request arrives when that is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_arrives_after_a_short_stay_leaves_no_hold() {
    let server = Server::start();
    let (proxy, client) = clients(&server);
    let stay = Duration::from_millis(500);
    for drops in [false, true] {
        let acquire = client.acquire("job").at_least(Duration::from_secs(2));
        let guard = stranded(&proxy, acquire).await;
        if drops {
            sleep(Duration::from_secs(2).saturating_sub(stay)).await;
            drop(guard);
        } else {
            in_time(guard.release_after(stay)).await.expect("held");
        }
        assert_eq!(server.holders("job").len(), 1);
        freed(&server, "job");
        arrives(&server, &proxy, "dlock.acquire");
        freed(&server, "job");
        in_time(client.settled()).await;
    }
}
