//! Copies of a request, and grants, that arrive late.

use std::time::Duration;

use dlock_client::Client;
use dlock_testkit::Server;
use dlock_testkit::proxy::Proxy;

use crate::{in_queue, in_time};

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
