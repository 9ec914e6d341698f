//! Many clients, and servers that die at random. `DLOCK_QUORUM_SECONDS` says for how long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock_client::{Client, Error};

use crate::{quorum, servers};
use dlock_core::Mode;
use dlock_testkit::Server;
use dlock_testkit::exclusion::{Hold, Span, violations};
use dlock_testkit::random::seeded;

const CLIENTS: usize = 20;

/// The holders, each with the time from its grant to its release.
type Book = Arc<Mutex<Vec<Span>>>;

#[tokio::test(flavor = "multi_thread")]
async fn twenty_clients_under_random_kills_never_overlap_and_all_get_on() {
    let seconds = std::env::var("DLOCK_QUORUM_SECONDS").map_or(12, |text| text.parse().expect("a number"));
    let servers = servers(5);
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| quorum(&servers).server_timeout(Duration::from_millis(250)).open().expect("a quorum"))
        .collect();
    let (book, over) = (Book::default(), Arc::new(AtomicBool::new(false)));
    let killer = std::thread::spawn({
        let over = over.clone();
        move || kill_at_random(servers, &over)
    });
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let workers: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, client)| tokio::spawn(work(number, client, book.clone(), begin, end)))
        .collect();
    let mut errors = 0;
    for worker in workers {
        errors += worker.await.expect("locks, or that there is none");
    }
    over.store(true, Ordering::Relaxed);
    let kills = killer.join().expect("servers that start again");
    let book = book.lock().unwrap();
    let times = |number: usize| book.iter().filter(|span| span.hold.owner == number.to_string()).count();
    let entered: Vec<_> = (0..CLIENTS).map(times).collect();
    eprintln!("{kills} kills in {seconds} s, {} times in, {errors} errors: {entered:?}", book.len());
    assert_eq!(violations(&book), [""; 0]);
    assert!(entered.iter().all(|times| *times > 0), "{entered:?}");
    assert!(kills >= 5);
}

async fn work(number: usize, client: Client, book: Book, begin: Instant, end: Instant) -> u64 {
    let since = |time: Instant| time.duration_since(begin).as_nanos() as u64;
    let mut errors = 0;
    while Instant::now() < end {
        let guard = match client.acquire("job").lease(Duration::from_secs(3)).wait(Duration::from_secs(5)).await {
            Ok(guard) => guard,
            Err(Error::Contention | Error::TooFew(_)) => {
                errors += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        // One that is held up for a whole lease may find others in.
        let until = since(Instant::now() + guard.remaining());
        let hold = Hold { token: guard.token(), key: "job".into(), owner: number.to_string(), mode: Mode::Exclusive };
        let place = {
            let mut book = book.lock().unwrap();
            book.push(Span { hold, from: since(Instant::now()), until });
            book.len() - 1
        };
        tokio::time::sleep(Duration::from_millis(2)).await;
        book.lock().unwrap()[place].until = until.min(since(Instant::now()));
        errors += u64::from(guard.release().await.is_err());
    }
    errors
}

/// At most two of five are down at any time.
fn kill_at_random(mut servers: Vec<Server>, over: &AtomicBool) -> u64 {
    let mut random = seeded(9);
    let mut kills = 0;
    while !over.load(Ordering::Relaxed) {
        let first = random.below(5) as usize;
        let second = (first + 1 + random.below(4) as usize) % 5;
        let down = if random.one_in(2) { vec![first] } else { vec![first, second] };
        for at in &down {
            servers[*at].kill9();
            kills += 1;
            std::thread::sleep(Duration::from_millis(random.below(100)));
        }
        std::thread::sleep(Duration::from_millis(random.below(300)));
        down.into_iter().for_each(|at| servers[at].boot());
        std::thread::sleep(Duration::from_millis(random.below(400)));
    }
    kills
}
