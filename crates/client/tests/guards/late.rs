//! Copies of a request, and grants, that arrive late.

use std::time::Duration;

use dlock_client::{Acquire, Client, Guard, LockMode, Session};
use dlock_testkit::proxy::Proxy;
use dlock_testkit::redis::Value;
use dlock_testkit::{Server, soon};

use crate::{freed, in_queue, in_time};

const LONG: Duration = Duration::from_secs(600);

/// Returns a guard whose request had its connection broken before the server read it.
async fn stranded(proxy: &Proxy, acquire: Acquire) -> Guard {
    proxy.strand("REQUEST", "REQUEST");
    in_time(acquire.lease(LONG)).await.expect("a lock")
}

/// Lets the server read the stranded request.
fn arrives(server: &Server, proxy: &Proxy, command: &str) {
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
        proxy.deliver();
        in_time(next.release()).await.expect("held");
        in_time(reader.release()).await.expect("held");
        freed(&server, "doc");
    }
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
