//! How long it takes to get a lock, against Redlock in the same run. `make bench-quorum`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, Guard};
use tokio::runtime;
use tokio::sync::Barrier;
use tokio::time::sleep;

use crate::redlock::Redlock;
use crate::urls;
use dlock_testkit::random::seeded;
use dlock_testkit::{Server, thread_time};

const LEASE: Duration = Duration::from_secs(4);
const TIMEOUT: Duration = Duration::from_millis(100);
const HELD: Duration = Duration::from_millis(5);
const CONTENDERS: u64 = 8;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "timings: make bench-quorum"]
async fn figures() {
    let servers: Vec<Server> = (0..5).map(|_| Server::start()).collect();
    wait_until_they_count(&urls(&servers)).await;
    let mut missed = 0;
    println!("64 clients on 64 locks, one thread           pairs a second     CPU µs a pair   RENEW a pair");
    for count in [1, 3] {
        pairs::<Quorum>("quorum", &servers[..count]);
        pairs::<Redlock>("Redlock", &servers[..count]);
    }
    println!("µs to get the lock                      servers      median         p99");
    for count in [1, 3, 5] {
        let urls = &urls(&servers)[..count];
        line("alone, quorum", count, &mut alone::<Quorum>(urls).await);
        line("alone, without waiting", count, &mut alone::<WithoutWaiting>(urls).await);
        line("alone, Redlock", count, &mut alone::<Redlock>(urls).await);
    }
    for count in [1, 3, 5] {
        let urls = &urls(&servers)[..count];
        line("8 now and then, quorum", count, &mut contended::<Quorum>(urls, Come::NowAndThen).concat());
        line("8 now and then, Redlock", count, &mut contended::<Redlock>(urls, Come::NowAndThen).concat());
        let ours = lines_of_rounds("8 at once, quorum", count, &contended::<Quorum>(urls, Come::AtOnce));
        let theirs = lines_of_rounds("8 at once, Redlock", count, &contended::<Redlock>(urls, Come::AtOnce));
        missed += u32::from(ours * 10 > theirs);
    }
    for (at, which) in ["the gate server", "another"].iter().enumerate() {
        let mut took = with_one_stopped(&servers[..3], at).await;
        let name = format!("1 of 3 stopped: {which}");
        line(&name, 3, &mut took);
        let p99 = took[took.len() * 99 / 100];
        missed += u32::from(p99 > TIMEOUT + Duration::from_millis(20));
    }
    assert_eq!(missed, 0, "8 at once: a tenth of Redlock's median; 1 of 3 stopped: p99 at most {TIMEOUT:?} and 20 ms");
}

fn open(urls: &[String]) -> Client {
    Client::quorum(urls, LEASE).server_timeout(TIMEOUT).open().expect("a quorum")
}

async fn wait_until_they_count(urls: &[String]) {
    let client = open(urls);
    while let Err(Error::TooFew(_)) = client.try_acquire("counted").lease(LEASE).await {
        sleep(Duration::from_millis(50)).await;
    }
    // The slowest server counts, too, after this time.
    sleep(Duration::from_secs(1)).await;
}

/// Prints a line, and returns the median.
fn line(what: &str, servers: usize, took: &mut [Duration]) -> Duration {
    let (median, p99) = (median(took), took[took.len() * 99 / 100]);
    println!("{what:40}{servers:7}{:12}{:12}   of {}", median.as_micros(), p99.as_micros(), took.len());
    median
}

/// Prints two lines for rounds, each with the waits of all contenders, and returns the median of the rounds' medians.
/// The contenders get the lock one after the other, so the median of all waits would lie in the gap between the longest
/// wait of those that come fourth and the shortest of those that come fifth.
fn lines_of_rounds(what: &str, servers: usize, rounds: &[Vec<Duration>]) -> Duration {
    let mut medians: Vec<Duration> = rounds.iter().map(|round| median(&mut round.clone())).collect();
    line(&format!("{what}, all"), servers, &mut rounds.concat());
    line(&format!("{what}, a round's median"), servers, &mut medians)
}

fn median(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    // The median of an even number is between the two in the middle.
    let half = took.len() / 2;
    (took[half - 1] + took[half]) / 2
}

/// A client that takes the lock again and again.
trait Taker: Sized + Send + 'static {
    type Held: Send;
    fn connect(urls: &[String], seed: u64) -> impl std::future::Future<Output = Self> + Send;
    fn acquire(&mut self, name: &str) -> impl std::future::Future<Output = Self::Held> + Send;
    fn release(&mut self, held: Self::Held) -> impl std::future::Future<Output = ()> + Send;
}

struct Quorum(Client);

impl Taker for Quorum {
    type Held = Guard;

    async fn connect(urls: &[String], _seed: u64) -> Self {
        Self(open(urls))
    }

    async fn acquire(&mut self, name: &str) -> Guard {
        self.0.acquire(name).lease(LEASE).await.expect("a lock")
    }

    async fn release(&mut self, held: Guard) {
        held.release().await.expect("held");
    }
}

/// Asks all servers at once, without the queue of the gate server.
struct WithoutWaiting(Client);

impl Taker for WithoutWaiting {
    type Held = Guard;

    async fn connect(urls: &[String], _seed: u64) -> Self {
        Self(open(urls))
    }

    async fn acquire(&mut self, name: &str) -> Guard {
        self.0.try_acquire(name).lease(LEASE).await.expect("a lock")
    }

    async fn release(&mut self, held: Guard) {
        held.release().await.expect("held");
    }
}

impl Taker for Redlock {
    type Held = (String, String);

    async fn connect(urls: &[String], seed: u64) -> Self {
        Redlock::open(urls, LEASE, TIMEOUT, seed).await
    }

    async fn acquire(&mut self, name: &str) -> (String, String) {
        let name = format!("redlock {name}");
        let value = self.lock(&name).await;
        (name, value)
    }

    async fn release(&mut self, (name, value): (String, String)) {
        self.unlock(&name, &value).await;
    }
}

/// Each client takes and releases a lock of its own, for two seconds. All run in one thread, whose CPU time is printed.
fn pairs<T: Taker>(what: &str, servers: &[Server]) {
    let urls = urls(servers);
    let renewals = || servers.iter().map(|server| server.client().calls("dlock.renew")).sum::<i64>();
    let work = move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut takers = Vec::new();
            for number in 0..64 {
                let mut taker = T::connect(&urls, number).await;
                let held = taker.acquire(&format!("lock {number}")).await;
                taker.release(held).await;
                takers.push(taker);
            }
            let (begin, ran) = (Instant::now(), thread_time::so_far());
            let work = takers.into_iter().enumerate().map(|(number, mut taker)| {
                tokio::spawn(async move {
                    let (name, mut pairs) = (format!("lock {number}"), 0);
                    while begin.elapsed() < Duration::from_secs(2) {
                        let held = taker.acquire(&name).await;
                        taker.release(held).await;
                        pairs += 1;
                    }
                    pairs
                })
            });
            let mut pairs: u64 = 0;
            for work in work.collect::<Vec<_>>() {
                pairs += work.await.expect("a client");
            }
            (pairs, begin.elapsed(), thread_time::so_far() - ran)
        })
    };
    let before = renewals();
    let (pairs, took, ran) = std::thread::spawn(work).join().expect("clients");
    let rate = pairs as f64 / took.as_secs_f64();
    let renewed = (renewals() - before) as f64 / pairs as f64;
    println!(
        "{what:20}{:7} servers{rate:24.0}{:18.1}{renewed:15.3}",
        servers.len(),
        ran.as_secs_f64() * 1e6 / pairs as f64
    );
}

async fn alone<T: Taker>(urls: &[String]) -> Vec<Duration> {
    let mut taker = T::connect(urls, 0).await;
    let mut took = Vec::new();
    for _ in 0..500 {
        let began = Instant::now();
        let held = taker.acquire("quorum").await;
        took.push(began.elapsed());
        taker.release(held).await;
    }
    took
}

/// When the contenders come.
#[derive(Clone, Copy)]
enum Come {
    /// All at the same time, and again when all have had the lock.
    AtOnce,
    /// Each at a random time, up to 100 ms after it left.
    NowAndThen,
}

/// Returns all waits, round by round. Each contender is a thread with a runtime of its own, as it would be a process:
/// nobody waits for another's task.
fn contended<T: Taker>(urls: &[String], come: Come) -> Vec<Vec<Duration>> {
    let barrier = Arc::new(Barrier::new(CONTENDERS as usize));
    let contender = |number: u64| {
        let (urls, barrier) = (urls.to_vec(), barrier.clone());
        move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(contend::<T>(&urls, number, come, &barrier))
        }
    };
    let contenders: Vec<_> = (0..CONTENDERS).map(|number| std::thread::spawn(contender(number))).collect();
    let took: Vec<_> = contenders.into_iter().map(|contender| contender.join().expect("a contender")).collect();
    // The first round makes the connections.
    (1..ROUNDS).map(|round| took.iter().map(|took| took[round]).collect()).collect()
}

async fn contend<T: Taker>(urls: &[String], number: u64, come: Come, barrier: &Barrier) -> Vec<Duration> {
    let mut taker = T::connect(urls, number).await;
    let mut random = seeded(number);
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        match come {
            Come::AtOnce => _ = barrier.wait().await,
            Come::NowAndThen => sleep(Duration::from_millis(random.below(100))).await,
        }
        let began = Instant::now();
        let held = taker.acquire("quorum").await;
        took.push(began.elapsed());
        hold();
        taker.release(held).await;
    }
    took
}

/// Works for 5 ms, exactly: the timers of tokio go by whole milliseconds, and a sleep is late by a tenth of one.
fn hold() {
    let end = Instant::now() + HELD;
    std::thread::sleep(HELD - LATE);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// New clients, each of which connects before the server stops, and has to find out by itself.
async fn with_one_stopped(servers: &[Server], at: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    for _ in 0..10 {
        let client = open(&urls(servers));
        client.acquire("stopped").lease(LEASE).await.expect("a lock").release().await.expect("held");
        servers[at].freeze();
        for _ in 0..10 {
            let began = Instant::now();
            let guard = client.acquire("stopped").lease(LEASE).await.expect("a lock");
            took.push(began.elapsed());
            guard.release().await.expect("held");
        }
        servers[at].thaw();
        // The stopped server answers the commands that it was sent, before it is stopped again.
        let mut watch = servers[at].client();
        dlock_testkit::soon("it is free there", || dlock_testkit::lock_info(&mut watch, "stopped").is_none());
    }
    took
}

const ROUNDS: usize = 61;
/// By how much a sleep may be late.
const LATE: Duration = Duration::from_micros(150);
