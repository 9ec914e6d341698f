//! Many clients that pause, and servers that are killed, are stopped, and have their clocks set, all at random and
//! within the assumptions of `docs/quorum.md`. `DLOCK_QUORUM_SECONDS` says for how long.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, Guard};
use tempfile::TempDir;
use tokio::runtime;
use tokio::time::sleep;

use crate::{LONGEST, urls};
use dlock_core::Mode;
use dlock_testkit::exclusion::{Hold, Span, violations};
use dlock_testkit::jumping::JumpingClock;
use dlock_testkit::random::{Random, seeded};
use dlock_testkit::wait::PATIENCE;
use dlock_testkit::{Server, Setup};

const CLIENTS: usize = 20;
const SERVERS: usize = 5;
const LEASE: Duration = Duration::from_secs(2);

/// How far a clock is set forward, at most once in two leases. The quorum allows 1 % of [`LEASE`] and 1 ms: 21 ms.
const FORWARD_US: i64 = 15_000;

/// A clock that is this far behind is not set back further: less than the longest lease.
const BEHIND_US: i64 = 10_000_000;

/// The holders, each with the time in which it certainly had the lock.
type Book = Arc<Mutex<Vec<Span>>>;

#[test]
fn twenty_clients_under_kills_pauses_and_clock_steps_never_overlap_and_all_get_the_lock() {
    let seconds = std::env::var("DLOCK_QUORUM_SECONDS").map_or(12, |text| text.parse().expect("a number"));
    let mut random = seeded(9);
    let faulty = Faulty::start(random.number());
    let servers = urls(faulty.servers());
    let (book, over) = (Book::default(), Arc::new(AtomicBool::new(false)));
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let workers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (servers, book, random) = (servers.clone(), book.clone(), Random::seeded(random.number()));
            thread::spawn(move || Worker { number, book, begin, end, random }.run(&servers))
        })
        .collect();
    let faults = thread::spawn({
        let over = over.clone();
        move || faulty.go_on_until(&over)
    });
    let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("no panic in a client")).collect();
    over.store(true, Ordering::Relaxed);
    let faults = faults.join().expect("servers that start again");
    let book = book.lock().unwrap();
    let times = |number: usize| book.iter().filter(|span| span.hold.owner == number.to_string()).count();
    let entered: Vec<_> = (0..CLIENTS).map(times).collect();
    let (errors, paused) = outcomes.iter().fold((0, 0), |sum, one| (sum.0 + one.errors, sum.1 + one.pauses));
    eprintln!(
        "{faults:?} and {paused} pauses of clients in {seconds} s, {} times in, {errors} errors: {entered:?}",
        book.len()
    );
    assert_eq!(violations(&book), [""; 0]);
    assert!(entered.iter().all(|times| *times > 0), "{entered:?}");
    assert!(
        faults.kills >= 3 && faults.stops >= 3 && faults.forward >= 3 && faults.back >= 3 && paused >= 3,
        "{faults:?}"
    );
}

/// A client in a thread of its own, so that it can be paused as a whole.
struct Worker {
    number: usize,
    book: Book,
    begin: Instant,
    end: Instant,
    random: Random,
}

/// How often a client failed to get or to release the lock, and how often it was paused.
#[derive(Default)]
struct Outcome {
    errors: u64,
    pauses: u64,
}

impl Worker {
    fn run(mut self, servers: &[String]) -> Outcome {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (end, pauses) = (self.end, Random::seeded(self.random.number()));
        runtime.block_on(async {
            let pauser = tokio::spawn(pause_now_and_then(pauses, end));
            let errors = self.work(servers).await;
            Outcome { errors, pauses: pauser.await.expect("pauses") }
        })
    }

    async fn work(&mut self, servers: &[String]) -> u64 {
        let client = Client::quorum(servers, LONGEST).persistent().server_timeout(LEASE / 8);
        let client = client.open().expect("a quorum");
        let mut errors = 0;
        while Instant::now() < self.end || !self.all_were_in() && Instant::now() < self.end + PATIENCE {
            match client.acquire("job").lease(LEASE).wait(LEASE * 3).await {
                Ok(guard) => {
                    self.hold(&guard).await;
                    errors += u64::from(guard.release().await.is_err());
                }
                Err(Error::Contention | Error::TooFew(_)) => errors += 1,
                Err(error) => panic!("{error}"),
            }
        }
        errors
    }

    /// Returns whether every client has had the lock. On a busy machine, some need more time.
    fn all_were_in(&self) -> bool {
        let book = self.book.lock().unwrap();
        book.iter().map(|span| &span.hold.owner).collect::<BTreeSet<_>>().len() == CLIENTS
    }

    /// Holds the lock for a moment, or now and then for up to two leases, and records when it was certainly held.
    async fn hold(&mut self, guard: &Guard) {
        let long = LEASE.as_millis() as u64 * 2;
        let time = if self.random.one_in(50) { self.random.below(long) } else { 2 };
        let leave = Instant::now() + Duration::from_millis(time);
        let mut place = None;
        loop {
            // The time is read before the check: if the lock is held at the check, it was held at this time.
            let seen = Instant::now();
            if guard.remaining().is_zero() {
                return;
            }
            let seen_ns = seen.duration_since(self.begin).as_nanos() as u64;
            {
                let mut book = self.book.lock().unwrap();
                let place = *place.get_or_insert_with(|| {
                    let (token, key, owner) = (guard.token(), "job".into(), self.number.to_string());
                    let hold = Hold { token, key, owner, mode: Mode::Exclusive };
                    book.push(Span { hold, from: seen_ns, until: seen_ns });
                    book.len() - 1
                });
                book[place].until = seen_ns + 1;
            }
            if seen >= leave {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Pauses the whole thread now and then. Returns how often.
async fn pause_now_and_then(mut random: Random, end: Instant) -> u64 {
    let mut pauses = 0;
    loop {
        let next = Instant::now() + Duration::from_millis(random.below(40_000));
        if next >= end {
            return pauses;
        }
        tokio::time::sleep_until(next.into()).await;
        let longest = LEASE.as_millis() as u64 * 3 / 2;
        thread::sleep(Duration::from_millis(random.below(longest)));
        pauses += 1;
    }
}

/// Servers with faults.
struct Faulty {
    servers: Vec<Server>,
    clocks: Vec<SteppedClock>,
    random: Random,
    count: Faults,
}

struct SteppedClock {
    clock: JumpingClock,
    /// When it was last set forward.
    forward: Option<Instant>,
    _dir: TempDir,
}

/// How many faults there were.
#[derive(Debug, Default)]
struct Faults {
    kills: u64,
    stops: u64,
    forward: u64,
    back: u64,
}

impl Faulty {
    fn start(seed: u64) -> Self {
        let clock = |_| {
            let dir = tempfile::tempdir().expect("a directory");
            let clock = JumpingClock::build(dir.path()).expect("a C compiler");
            SteppedClock { clock, forward: None, _dir: dir }
        };
        let clocks: Vec<SteppedClock> = (0..SERVERS).map(clock).collect();
        // Redis 7.0 loses its token clock in a rewritten AOF. Then the clocks would have to differ by less than a
        // restart takes.
        let conf = "appendonly yes\nappendfsync always\nauto-aof-rewrite-percentage 0";
        let servers = clocks.iter().map(|of| of.clock.give(Setup::new().conf(conf)).start()).collect();
        Self { servers, clocks, random: Random::seeded(seed), count: Faults::default() }
    }

    fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Causes faults until `over`. At most two of five servers are down or stopped at any time.
    fn go_on_until(mut self, over: &AtomicBool) -> Faults {
        while !over.load(Ordering::Relaxed) {
            let first = self.random.below(SERVERS as u64) as usize;
            let second = (first + 1 + self.random.below(SERVERS as u64 - 1) as usize) % SERVERS;
            let struck = if self.random.one_in(2) { vec![first] } else { vec![first, second] };
            let struck: Vec<(usize, bool)> = struck.into_iter().map(|at| (at, self.strike(at))).collect();
            self.step_a_clock();
            let longest = if self.random.one_in(8) { LEASE.as_millis() as u64 * 3 / 2 } else { 300 };
            self.pass(longest);
            for (at, is_killed) in struck {
                if is_killed { self.servers[at].boot() } else { self.servers[at].thaw() }
            }
            self.step_a_clock();
            self.pass(400);
        }
        self.count
    }

    /// Kills or stops a server. Returns whether it was killed.
    fn strike(&mut self, at: usize) -> bool {
        let kills = self.random.one_in(2);
        if kills {
            self.servers[at].kill9();
            self.count.kills += 1;
        } else {
            self.servers[at].freeze();
            self.count.stops += 1;
        }
        self.pass(100);
        kills
    }

    /// Sets a clock back by a part of a lease, or forward by less than the assumptions allow; or leaves it, if it was
    /// set forward lately or is behind too far.
    fn step_a_clock(&mut self) {
        let at = self.random.below(SERVERS as u64) as usize;
        let stepped = &mut self.clocks[at];
        let may_go_forward = stepped.forward.is_none_or(|last| last.elapsed() > LEASE * 2);
        let micros = match self.random.one_in(2) {
            true if may_go_forward => FORWARD_US,
            false if stepped.clock.offset() > -BEHIND_US => -(1 + self.random.below(300_000) as i64),
            _ => return,
        };
        stepped.clock.jump(micros).expect("a file");
        if micros > 0 {
            stepped.forward = Some(Instant::now());
            self.count.forward += 1;
        } else {
            self.count.back += 1;
        }
    }

    fn pass(&mut self, most_ms: u64) {
        thread::sleep(Duration::from_millis(self.random.below(most_ms)));
    }
}
