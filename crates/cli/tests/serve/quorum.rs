//! A quorum of servers that lose their locks, because they are killed and started again: no two clients hold the lock
//! at a time. Clients see a restart by the `run_id` and the age of a server. A server counts when it is older than the
//! longest lease.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock_client::{Client, Error};
use dlock_core::Mode;
use dlock_testkit::Serve;
use dlock_testkit::exclusion::{Hold, Span, violations};
use dlock_testkit::process::free_port;
use dlock_testkit::random::Random;

const LEASE: Duration = Duration::from_millis(800);

fn servers(count: usize) -> Vec<Serve> {
    (0..count).map(|_| Serve::at(Path::new(env!("CARGO_BIN_EXE_dlock")), &[], free_port())).collect()
}

fn client(ports: &[u16]) -> Client {
    let urls: Vec<_> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    Client::quorum(urls, LEASE).server_timeout(LEASE / 4).open().expect("a quorum")
}

#[tokio::test]
async fn kills_of_three_servers_give_no_two_clients_the_lock() {
    chaos(3, Duration::from_secs(9), 58).await;
}

#[tokio::test]
#[ignore = "minutes: make quorum-serve"]
async fn kills_of_three_and_of_five_servers_give_no_two_clients_the_lock() {
    for seed in 0..3 {
        chaos(3, Duration::from_secs(60), seed).await;
        chaos(5, Duration::from_secs(60), seed).await;
    }
}

/// Kills one or two of the servers at a time, and starts them again up to 100 ms later, while four workers contend.
async fn chaos(count: usize, time: Duration, seed: u64) {
    let mut servers = servers(count);
    let ports: Vec<u16> = servers.iter().map(Serve::port).collect();
    let (book, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let begin = Instant::now();
    let kills = std::thread::spawn({
        let over = over.clone();
        move || {
            let (mut random, mut kills) = (Random::seeded(seed), 0);
            // After this time all servers are old enough to count. Ages are whole seconds, up to one too many.
            std::thread::sleep(LEASE + Duration::from_millis(1200));
            while !over.load(Ordering::Relaxed) {
                let first = random.below(count as u64) as usize;
                let victims: Vec<_> = (0..1 + random.below(2) as usize).map(|more| (first + more) % count).collect();
                victims.iter().for_each(|at| servers[*at].kill9());
                std::thread::sleep(Duration::from_millis(random.below(100)));
                victims.iter().for_each(|at| servers[*at].boot());
                kills += victims.len();
                // Sometimes the next servers are killed before the last ones are old enough to count again.
                let pause = if random.one_in(4) { 300 } else { 2300 };
                std::thread::sleep(Duration::from_millis(pause));
            }
            kills
        }
    });
    let workers: Vec<_> =
        (0..4).map(|number| tokio::spawn(work(number, client(&ports), book.clone(), over.clone(), begin))).collect();
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("a worker");
    }
    let kills = kills.join().expect("the thread that kills");
    let book = book.lock().unwrap();
    eprintln!("{count} servers, {kills} kills, {} locks", book.len());
    assert_eq!(violations(&book), [""; 0]);
    assert!(book.len() > 10 && kills > 2, "too little to judge: {} locks, {kills} kills", book.len());
}

/// Takes a lock again and again, in competition, and holds it for a moment.
async fn work(number: u64, client: Client, book: Arc<Mutex<Vec<Span>>>, over: Arc<AtomicBool>, begin: Instant) {
    let since = |time: Instant| time.duration_since(begin).as_nanos() as u64;
    let mut random = Random::seeded(number);
    while !over.load(Ordering::Relaxed) {
        let guard = match client.acquire("contended").lease(LEASE).wait(LEASE).await {
            Ok(guard) => guard,
            Err(Error::Contention | Error::TooFew(_)) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let (from, until) = (since(Instant::now()), since(Instant::now() + guard.remaining()));
        let hold =
            Hold { token: guard.token(), key: "contended".into(), owner: number.to_string(), mode: Mode::Exclusive };
        tokio::time::sleep(Duration::from_millis(1 + random.below(60))).await;
        book.lock().unwrap().push(Span { hold, from, until: until.min(since(Instant::now())) });
        // The release fails if the lock was lost with servers that were killed.
        let _ = guard.release().await;
    }
}
