//! Rolling restarts of servers that keep nothing on disk, while a guard lives and others take locks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, Guard};
use dlock_core::Mode;
use dlock_testkit::Server;
use dlock_testkit::exclusion::{Hold, Span, violations};

use crate::{in_time, urls};

/// The longest lease, and the one that all use.
const LEASE: Duration = Duration::from_secs(2);

/// How far apart the restarts are: the longest lease, the drift, one second and a third of a lease, and some time for a
/// busy machine.
const APART: Duration = LEASE.saturating_add(Duration::from_millis(22 + 1000 + 667 + 300));

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_three_keeps_a_lock_that_is_renewed() {
    roll(3, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: make quorum-restarts"]
async fn rolling_restarts_of_three_and_of_five_keep_a_lock_that_is_renewed() {
    roll(3, 5).await;
    roll(5, 3).await;
}

fn client(servers: &[Server]) -> Client {
    Client::quorum(urls(servers), LEASE).server_timeout(LEASE / 4).open().expect("a quorum")
}

async fn acquired(client: &Client) -> Guard {
    loop {
        match in_time(client.acquire("kept").lease(LEASE)).await {
            Ok(guard) => return guard,
            Err(Error::TooFew(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Restarts each server, one after the other, in each round.
async fn roll(count: usize, rounds: usize) {
    let mut servers: Vec<Server> = (0..count).map(|_| Server::start()).collect();
    let (keeper, other) = (client(&servers), client(&servers));
    let guard = acquired(&keeper).await;
    // Servers that have just started do not count. After this time, all of them do.
    tokio::time::sleep(APART).await;
    let (book, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let begin = Instant::now();
    let load: Vec<_> =
        (0..4).map(|number| tokio::spawn(work(number, client(&servers), book.clone(), over.clone(), begin))).collect();
    for _ in 0..rounds {
        for (at, server) in servers.iter_mut().enumerate() {
            server.kill9();
            server.boot();
            tokio::time::sleep(APART).await;
            assert!(guard.remaining() > Duration::ZERO, "lost after the restart of server {at}");
            let refused = in_time(other.try_acquire("kept").lease(LEASE)).await;
            assert!(matches!(refused, Err(Error::Contention | Error::TooFew(_))), "{refused:?}");
        }
    }
    over.store(true, Ordering::Relaxed);
    for worker in load {
        in_time(worker).await.expect("a worker");
    }
    let token = guard.token();
    in_time(guard.release()).await.expect("held all the time");
    assert!(acquired(&other).await.token() > token);
    let book = book.lock().unwrap();
    eprintln!("{count} servers, {} restarts, {} other locks", rounds * count, book.len());
    assert_eq!(violations(&book), [""; 0]);
    assert!(book.len() > 20 * rounds);
}

/// Takes another lock again and again, in competition.
async fn work(number: usize, client: Client, book: Arc<Mutex<Vec<Span>>>, over: Arc<AtomicBool>, begin: Instant) {
    let since = |time: Instant| time.duration_since(begin).as_nanos() as u64;
    while !over.load(Ordering::Relaxed) {
        let guard = match client.acquire("other").lease(LEASE).wait(LEASE).await {
            Ok(guard) => guard,
            Err(Error::Contention | Error::TooFew(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        let (from, until) = (since(Instant::now()), since(Instant::now() + guard.remaining()));
        let hold = Hold { token: guard.token(), key: "other".into(), owner: number.to_string(), mode: Mode::Exclusive };
        tokio::time::sleep(Duration::from_millis(2)).await;
        book.lock().unwrap().push(Span { hold, from, until: until.min(since(Instant::now())) });
        // The lock may be lost with a server that has just been restarted.
        let _ = guard.release().await;
    }
}
