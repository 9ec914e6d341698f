//! Copies of a request, and grants, that arrive late.

use std::time::Duration;

use dlock_client::{Acquire, Client, Error, Guard, LockMode, Session};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::redis::Value;
use dlock_testkit::{Server, Stopwatch, soon};

use crate::{freed, in_queue, in_time, not_yet};

pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Returns a guard whose request had its connection broken before the server read it.
pub(crate) async fn stranded(proxy: &Proxy, acquire: Acquire) -> Guard {
    proxy.strand("REQUEST", "REQUEST");
    in_time(acquire.lease(LONG)).await.expect("a lock")
}

/// Lets the server read the stranded request.
pub(crate) fn arrives(server: &Server, proxy: &Proxy, command: &str) {
    let mut watch = server.client();
    let before = watch.calls(command);
    proxy.deliver();
    soon("the late one has arrived", || watch.calls(command) > before);
}

/// The server reads the first copy of a request after the lock was released. It takes the lock for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_arrives_after_the_release_leaves_no_hold() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let session = in_time(Session::open(&client, Duration::from_secs(20))).await.expect("a session");
    let kinds = [
        ("dlock.acquire", client.acquire("job")),
        ("dlock.acquire", client.acquire("job").wait(LONG).no_renewal()),
        ("dlock.acquire", client.acquire("job").in_session(&session)),
        ("dlock.rlock", client.read("job")),
        ("dlock.wlock", client.write("job")),
        ("dlock.sacquire", client.semaphore("job", 1).acquire()),
        ("dlock.macquire", client.acquire_all(["job", "other"])),
    ];
    for (command, acquire) in kinds {
        for drops in [false, true] {
            let guard = stranded(&proxy, acquire.clone()).await;
            if drops {
                drop(guard);
            } else {
                in_time(guard.release()).await.expect("held");
            }
            freed(&server, "job");
            arrives(&server, &proxy, command);
            freed(&server, "job");
            freed(&server, "other");
            in_time(client.settled()).await;
        }
    }
}

/// An upgrade has the owner of its reader. The release of a late copy must not release the next upgrade.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_upgrade_leaves_no_hold_and_ends_no_other() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let reader = in_time(client.read("doc").lease(LONG)).await.expect("a lock");
    let writer = stranded(&proxy, reader.upgrade().expect("a reader")).await;
    in_time(writer.release()).await.expect("held");
    arrives(&server, &proxy, "dlock.wlock");
    soon("others may read", || server.client().run("DLOCK.RLOCK doc other PX 600000") != Value::Nil);
    server.client().int("DLOCK.RELEASE doc other");
    let next = in_time(reader.upgrade().expect("a reader")).await.expect("nobody else reads");
    in_time(client.settled()).await;
    in_time(next.renew()).await.expect("held");
}

/// The late copy would bind the hold of the upgrade to its own connection, whose end releases the hold.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_whose_connection_breaks_is_not_counted_as_held_when_it_is_not() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let reader = in_time(client.read("doc").lease(LONG)).await.expect("a lock");
    proxy.strand("SESSION", "SESSION");
    let upgrade = in_time(reader.upgrade().expect("a reader").session().wait(Duration::from_secs(3))).await;
    proxy.deliver();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    if let Ok(guard) = upgrade {
        let info = in_time(client.info("doc")).await.expect("an answer").expect("a reader");
        assert!(!guard.is_held() || info.mode == LockMode::Both, "{:?}", info.mode);
    }
    in_time(client.settled()).await;
    let next = in_time(reader.upgrade().expect("a reader").session()).await.expect("nobody else reads");
    in_time(next.renew()).await.expect("held");
}

/// A reader that was a writer has its owner, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_copy_of_a_writer_that_became_a_reader_leaves_no_hold_and_ends_no_other() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    for (command, acquire) in [("dlock.acquire", client.acquire("doc")), ("dlock.wlock", client.write("doc"))] {
        let reader = in_time(stranded(&proxy, acquire.clone()).await.downgrade()).await.expect("held");
        arrives(&server, &proxy, command);
        soon("others may read", || server.client().run("DLOCK.RLOCK doc other PX 600000") != Value::Nil);
        server.client().int("DLOCK.RELEASE doc other");
        in_time(reader.release()).await.expect("held");
        let reader = in_time(stranded(&proxy, acquire).await.downgrade()).await.expect("held");
        let next = in_time(reader.upgrade().expect("a reader")).await.expect("nobody else reads");
        in_time(client.settled()).await;
        in_time(next.renew()).await.expect("held");
        arrives(&server, &proxy, command);
        in_time(next.release()).await.expect("held");
        in_time(reader.release()).await.expect("held");
        freed(&server, "doc");
    }
}

/// Until no late copy of an upgrade can come, the reader's next upgrade sends nothing. No server has said that the lock
/// is not free.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_soon_after_one_with_a_late_copy_is_not_refused() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    for is_downgrade in [false, true] {
        let reader = if is_downgrade {
            in_time(stranded(&proxy, client.write("doc")).await.downgrade()).await.expect("held")
        } else {
            let reader = in_time(client.read("doc").lease(LONG)).await.expect("a lock");
            in_time(stranded(&proxy, reader.upgrade().expect("a reader")).await.release()).await.expect("held");
            reader
        };
        server.freeze();
        let began = Stopwatch::start();
        let upgrade = in_time(reader.upgrade().expect("a reader").wait(Duration::from_millis(50))).await;
        assert!(matches!(upgrade, Err(Error::Unreachable(_))), "{upgrade:?}");
        began.is_between(Duration::from_millis(50), Duration::from_millis(300), "the wait of an upgrade");
        server.thaw();
        let writer = in_time(reader.upgrade().expect("a reader").no_wait()).await.expect("nobody else reads");
        arrives(&server, &proxy, "dlock.wlock");
        in_time(writer.release()).await.expect("held");
        in_time(reader.release()).await.expect("held");
        freed(&server, "doc");
    }
}

/// An agent without an answer of its servers may have executed the first copy. The end of the connection frees the lock
/// of a session, even if its release is refused.
#[tokio::test(flavor = "multi_thread")]
async fn the_connection_of_a_session_ends_with_its_guard_if_the_release_is_refused() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    server.client().text("ACL SETUSER default -dlock.release");
    for drops in [false, true] {
        proxy.say("SESSION", "-LOADING no majority has answered\r\n");
        let guard = in_time(client.acquire("job").session()).await.expect("a lock");
        if drops {
            drop(guard);
        } else {
            let released = in_time(guard.release()).await;
            assert!(matches!(released, Err(Error::Refused(_))), "{released:?}");
        }
        freed(&server, "job");
        not_yet(client.settled()).await;
        in_time(client.settled()).await;
    }
}

/// The server hangs, so that neither the release of a dropped guard nor that of a late copy has an answer.
#[tokio::test(flavor = "multi_thread")]
async fn the_releases_of_a_dropped_guard_end_in_time() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(&proxy.url()).expect("a URL");
    let guard = stranded(&proxy, client.acquire("job")).await;
    server.freeze();
    drop(guard);
    let began = Stopwatch::start();
    in_time(client.settled()).await;
    began.is_between(Duration::from_secs(3), Duration::from_millis(5500), "the releases in the background");
    server.thaw();
}

/// The first copy of the request arrives late. It takes the place of the repeat, which gets nil.
#[tokio::test(flavor = "multi_thread")]
async fn the_nil_of_a_repeat_is_no_refusal_before_the_wait_is_over() {
    for is_limited in [true, false] {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        let client = Client::open(&proxy.url()).expect("a URL");
        let mut other = server.client();
        other.int("DLOCK.ACQUIRE job other PX 60000");
        let acquire = client.acquire("job").owner_label("me");
        let acquire = if is_limited { acquire.wait(Duration::from_secs(60)) } else { acquire };
        let waiting = in_queue(&server, acquire);
        let list = dlock_testkit::lock_info(&mut other, "job FULL").expect("a lock");
        let owner = String::from_utf8(list.queue.expect("FULL")[0].owner.clone()).expect("text");
        proxy.cut();
        server.left_waiting(0);
        server.left_waiting(1);
        // Stands for the copy that was cut off.
        let mut late = server.client();
        late.send(format!("DLOCK.ACQUIRE job {owner} PX 30000 BLOCK 0 REQUEST 1"));
        late.gives_up();
        server.left_waiting(1);
        other.int("DLOCK.RELEASE job other");
        let guard = in_time(waiting).await.expect("a task").expect("a lock");
        assert!(guard.is_held());
    }
}

/// The program is stopped for longer than a lease each time before it reads.
#[tokio::test(flavor = "current_thread")]
async fn a_program_that_was_stopped_never_gets_a_lock_that_is_over() {
    let server = Server::start();
    let client = crate::client_of(&server);
    let lease = Duration::from_millis(400);
    for round in 0..2 {
        let mut other = server.client();
        other.int(format!("DLOCK.ACQUIRE job other{round} PX 60000"));
        let waiting = tokio::spawn(client.acquire("job").lease(lease).into_future());
        while server.waiting() < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let stops = tokio::spawn(async move {
            for _ in 0..4 {
                std::thread::sleep(lease * 2);
                tokio::task::yield_now().await;
            }
        });
        other.int(format!("DLOCK.RELEASE job other{round}"));
        let guard = in_time(waiting).await.expect("a task").expect("a lock");
        assert!(guard.is_held(), "round {round}");
        in_time(guard.release()).await.expect("held");
        stops.abort();
    }
}
