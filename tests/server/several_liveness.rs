//! Liveness: clients take sets of locks in any order, and many of them die. Every other client gets its locks, no two
//! clients hold what excludes each other, and no request is overtaken more often than the requests ahead of it explain.
//!
//! `DLOCK_LIVENESS_SECONDS` lets the test run for longer than the few seconds of `make test`. `DLOCK_SEED` repeats the
//! choices of a run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::support::random::{Random, seeded};
use crate::support::replica::counter;
use crate::support::wait::PATIENCE;
use crate::support::{Client, Server, int_of, soon};

const CLIENTS: usize = 12;
const KEYS: usize = 8;
/// The most keys of one request.
const MOST: u64 = 4;
/// How many permits of one key may be held.
const LIMIT: i64 = 2;
/// How long the test takes in `make test`.
const SECONDS: u64 = 8;
/// How many grants that touch a client's keys may come between its request and its grant. A request of each other
/// client may be ahead in the queues, and also requests that arrive while this one is on its way.
const OVERTAKEN: usize = 4 * CLIENTS;

/// The observations of all clients.
#[derive(Default)]
struct Board {
    /// The holds of each key: -1 for an exclusive one, otherwise the number of permits.
    inside: BTreeMap<u64, i64>,
    /// The keys of every grant, as bits.
    grants: Vec<u64>,
    /// The number of grants, by client.
    entries: [usize; CLIENTS],
    deaths: usize,
    most_overtaken: usize,
}

struct Field {
    server: Server,
    board: Mutex<Board>,
    is_over: AtomicBool,
}

impl Field {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().expect("no other client has failed")
    }

    /// Notes a grant, and asserts that the client may have it. `seen`: the number of grants before its request.
    #[track_caller]
    fn enters(&self, number: usize, want: &Want, seen: usize) {
        let mut board = self.board();
        for key in &want.keys {
            let inside = board.inside.entry(*key).or_default();
            if want.is_permit {
                assert!((0..LIMIT).contains(inside), "client {number} gets a permit of {key} beside {inside}");
                *inside += 1;
            } else {
                assert_eq!(*inside, 0, "client {number} gets {key} beside others");
                *inside = -1;
            }
        }
        let overtaken = board.grants[seen..].iter().filter(|keys| **keys & want.bits() != 0).count();
        assert!(overtaken <= OVERTAKEN, "client {number} was overtaken {overtaken} times");
        board.most_overtaken = board.most_overtaken.max(overtaken);
        board.grants.push(want.bits());
        board.entries[number] += 1;
    }

    /// Notes that a client no longer uses its locks. Called before the client releases any of them.
    fn leaves(&self, want: &Want) {
        let mut board = self.board();
        for key in &want.keys {
            let inside = board.inside.get_mut(key).expect("the client has entered");
            *inside += if want.is_permit { -1 } else { 1 };
        }
    }
}

/// The locks that a client asks for, or the permit.
struct Want {
    keys: Vec<u64>,
    is_permit: bool,
}

impl Want {
    /// Draws some of the keys in any order, or a permit of one key.
    fn drawn(random: &mut Random) -> Self {
        if random.one_in(4) {
            return Self { keys: vec![random.below(KEYS as u64)], is_permit: true };
        }
        let mut left: Vec<u64> = (0..KEYS as u64).collect();
        let count = random.within(1..MOST + 1);
        let keys = (0..count).map(|_| left.swap_remove(random.below(left.len() as u64) as usize)).collect();
        Self { keys, is_permit: false }
    }

    fn bits(&self) -> u64 {
        self.keys.iter().map(|key| 1 << key).sum()
    }

    fn request(&self, owner: &str) -> String {
        let keys = self.keys.iter().map(|key| format!("k{key}")).collect::<Vec<_>>().join(" ");
        let options = "SESSION PX 60000 BLOCK 0";
        match (self.is_permit, self.keys.len()) {
            (true, _) => format!("DLOCK.SACQUIRE {keys} {owner} {LIMIT} {options}"),
            (false, count) => format!("DLOCK.MACQUIRE {count} {keys} {owner} {options}"),
        }
    }
}

/// Plays a client, which takes and releases locks. Now and then it dies, while it waits or while it holds them.
fn play(field: &Field, number: usize, seed: u64) {
    let mut random = Random::of(seed, &format!("client {number}"));
    let mut connection: Option<Client> = None;
    for round in 0.. {
        if field.is_over.load(Ordering::Relaxed) {
            return;
        }
        let client = connection.get_or_insert_with(|| field.server.client());
        let want = Want::drawn(&mut random);
        let owner = format!("{number}-{round}");
        let seen = field.board().grants.len();
        client.send(want.request(&owner));
        if random.one_in(8) {
            // The client dies, and what it got meanwhile ends with its session.
            std::thread::sleep(Duration::from_micros(random.below(4000)));
            connection = None;
            field.board().deaths += 1;
            continue;
        }
        let reply = client.poll(PATIENCE).unwrap_or_else(|| panic!("client {number} does not get in"));
        let token = int_of(&reply);
        field.enters(number, &want, seen);
        std::thread::sleep(Duration::from_micros(random.below(1500)));
        field.leaves(&want);
        if random.one_in(8) {
            connection = None;
            field.board().deaths += 1;
            continue;
        }
        let releases = want.keys.iter().map(|key| format!("DLOCK.RELEASE k{key} {owner} TOKEN {token}"));
        for reply in client.pipeline(&releases.collect::<Vec<_>>()) {
            assert_eq!(reply.as_ref().map(int_of), Ok(1), "client {number} releases what it has");
        }
    }
}

#[test]
fn everybody_gets_in() {
    let seed = seeded(u64::from(std::process::id())).number();
    let seconds = std::env::var("DLOCK_LIVENESS_SECONDS").map_or(SECONDS, |text| text.parse().expect("a number"));
    let time = Duration::from_secs(seconds);
    let field = &Field { server: Server::start(), board: Mutex::default(), is_over: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let players: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || play(field, number, seed))).collect();
        let start = Instant::now();
        while start.elapsed() < time && !players.iter().any(|player| player.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        field.is_over.store(true, Ordering::Relaxed);
    });
    let mut client = field.server.client();
    soon("nothing is left", || client.int("DBSIZE") == 0);
    assert_eq!(["waiters", "queues", "sessions"].map(|name| counter(&mut client, name)), [0; 3]);
    assert_eq!(counter(&mut client, "deadlocks"), 0);
    let board = field.board();
    let Board { entries, deaths, most_overtaken, .. } = &*board;
    eprintln!("entries {entries:?}, {deaths} deaths, overtaken {most_overtaken} times at most");
    // Each client got a quarter of the mean number of grants or more. How many depends on the machine.
    let total: usize = entries.iter().sum();
    assert!(entries.iter().all(|count| *count > 0 && count * CLIENTS * 4 > total), "{entries:?}");
    assert!(*deaths > CLIENTS, "{deaths} deaths");
}
