//! A thousand clients that connect, wait and vanish at random, while others lock and release and a few do their worst.

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use crate::support::random::{Random, seeded};
use crate::support::replica::{counter, info_field};
use crate::support::state::{assert_same_but_for_grace, state};
use crate::support::{Client, Server, req, soon};

const CROWDS: u64 = 10;
/// Clients of each crowd at a time.
const CROWD: usize = 100;
const KEYS: u64 = 12;
/// The longest of the short leases, in ms. Others outlive the test.
const SHORT: u64 = 150;

/// The observations of all clients together.
#[derive(Default)]
struct Seen {
    owners: AtomicU64,
    /// The requests for locks that did not come from guests.
    others: AtomicU64,
    tokens: Mutex<HashSet<i64>>,
    nils: AtomicI64,
    errors: Mutex<BTreeSet<String>>,
}

/// A client that has sent its request, with its key and its owner.
struct Guest {
    client: Client,
    key: String,
    owner: String,
}

fn duration() -> Duration {
    let seconds = std::env::var("DLOCK_CHAOS_SECONDS").map_or(10, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

#[test]
fn nothing_is_lost_in_the_chaos() {
    let (mut server, replica) = Server::conf("appendonly yes\nappendfsync no\ndlock.max-waiters 0").with_replica();
    let mut client = server.client();
    let seen = Seen::default();
    let end = Instant::now() + duration();
    std::thread::scope(|scope| {
        for number in 0..CROWDS {
            let (server, seen) = (&server, &seen);
            scope.spawn(move || crowd(server, seen, seeded(100 + number), end));
        }
        scope.spawn(|| do_the_worst(&server, &seen, seeded(7), end));
    });
    client.ok("CLIENT UNPAUSE");
    server.left_waiting(0);
    assert_eq!(["queues", "sessions"].map(|name| counter(&mut client, name)), [0, 0]);
    report_and_add_up(&mut client, &seen);
    // The short leases end first. Primary, replica and AOF then have the same locks, though keys were renamed and
    // databases swapped.
    client.pass_ms(SHORT.cast_signed() + 100);
    client.pipeline(&(0..KEYS).map(|n| format!("EXISTS k{n}")).collect::<Vec<_>>());
    replica.wait_synced(&server);
    let expected = state(&mut client);
    assert_same_but_for_grace("replica", &expected, &state(&mut replica.client()));
    only_what_belongs_there(&server);
    server.crash();
    assert_same_but_for_grace("file", &expected, &state(&mut server.client()));
    every_lock_is_free(&server);
}

fn crowd(server: &Server, seen: &Seen, mut random: Random, end: Instant) {
    let mut guests: Vec<Guest> = Vec::new();
    while Instant::now() < end {
        if guests.len() < CROWD {
            guests.push(guest(server, seen, &mut random));
        }
        let at = random.below(guests.len() as u64) as usize;
        let vanishes = random.one_in(4);
        let Some(reply) = guests[at].client.poll(Duration::from_millis(1)) else {
            if vanishes {
                drop(guests.swap_remove(at));
            }
            continue;
        };
        let Guest { mut client, key, owner } = guests.swap_remove(at);
        match reply {
            Value::Int(token) => {
                assert!(seen.tokens.lock().unwrap().insert(token), "{token} was given out twice");
                // Some keep what they have, until its lease is over or for good.
                match random.below(4) {
                    0 => {}
                    1 => drop(client.ask(format!("DLOCK.RENEW {key} {owner} PX {}", 1 + random.below(SHORT)))),
                    _ => drop(client.ask(format!("DLOCK.RELEASE {key} {owner} TOKEN {token}"))),
                }
            }
            Value::Nil => drop(seen.nils.fetch_add(1, Ordering::Relaxed)),
            Value::ServerError(error) => drop(seen.errors.lock().unwrap().insert(error.code().to_owned())),
            reply => panic!("a token, nil or an error, not {reply:?}"),
        }
    }
}

/// Connects a client and sends its request, with an owner of its own.
fn guest(server: &Server, seen: &Seen, random: &mut Random) -> Guest {
    let mut client = server.client();
    let key = format!("k{}", random.below(KEYS));
    let owner = format!("o{}", seen.owners.fetch_add(1, Ordering::Relaxed));
    let command = random.pick(&["ACQUIRE", "WLOCK", "RLOCK", "RLOCK"]);
    let lease = if random.one_in(20) { 9_000_000 } else { 1 + random.below(SHORT) };
    let block = match random.below(4) {
        0 => String::new(),
        1 => "BLOCK 0".to_owned(),
        _ => format!("BLOCK {}", 1 + random.below(300)),
    };
    client.send(format!("DLOCK.{command} {key} {owner} PX {lease} {block}"));
    Guest { client, key, owner }
}

fn do_the_worst(server: &Server, seen: &Seen, mut random: Random, end: Instant) {
    let mut client = server.client();
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(random.below(40)));
        let [key, other] = [0, 1].map(|_| format!("k{}", random.below(KEYS)));
        let request: Cmd = match random.below(16) {
            0 => req!["CLIENT", "PAUSE", 20 + random.below(100), "ALL"],
            1 | 2 => req!["CLIENT", "PAUSE", 20 + random.below(200), "WRITE"],
            3 => req!["FLUSHALL", random.pick(&["SYNC", "ASYNC"])],
            4 => req!["SET", key, "another type", "PX", 1 + random.below(50)],
            5 if key != other => req!["RENAME", key, other],
            6 => req!["SWAPDB", 0, 1],
            7 => req!["PEXPIRE", key, random.below(30)],
            8 => req!["PERSIST", key],
            9 => req!["CLIENT", "UNBLOCK", client.id() + random.below(2000).cast_signed(), "ERROR"],
            10 => req!["UNLINK", key],
            11 => {
                seen.others.fetch_add(1, Ordering::Relaxed);
                let script =
                    "redis.call('DEL', KEYS[1]) return redis.call('DLOCK.ACQUIRE', KEYS[1], 'script', 'PX', 50)";
                req!["EVAL", script, 1, key]
            }
            12 => {
                seen.others.fetch_add(1, Ordering::Relaxed);
                let requests =
                    [req!["MULTI"], req!["DEL", &key], req!["DLOCK.RLOCK", &key, "m", "PX", 40], req!["EXEC"]];
                requests.iter().for_each(|request| client.send(request));
                requests.iter().for_each(|_| drop(client.read()));
                continue;
            }
            _ => req!["DEL", key],
        };
        let _ = client.attempt(request);
        // Lapsed locks are read, even during a pause.
        for n in 0..KEYS {
            let _ = client.attempt(format!("DLOCK.INFO k{n} FULL COUNT 0"));
            let _ = client.attempt(format!("DLOCK.CHECK k{n} 5"));
        }
    }
}

#[track_caller]
fn report_and_add_up(client: &mut Client, seen: &Seen) {
    let [grants, waits, timeouts, refusals, lapses] =
        ["grants", "waits", "wait_timeouts", "refusals", "lapses"].map(|name| counter(client, name));
    let tokens = seen.tokens.lock().unwrap().len() as i64;
    let nils = seen.nils.load(Ordering::Relaxed);
    let errors = seen.errors.lock().unwrap();
    let [guests, others] = [&seen.owners, &seen.others].map(|count| count.load(Ordering::Relaxed).cast_signed());
    eprintln!(
        "{guests} guests, {others} others, {grants} grants ({tokens} seen), {waits} waits, {timeouts} timeouts, {refusals} refusals, \
         {lapses} lapses, errors {errors:?}"
    );
    assert!(tokens <= grants && nils <= timeouts + refusals && waits >= timeouts);
    let asked = guests + others;
    assert!(grants + refusals + timeouts <= asked && waits + refusals <= asked, "{asked} requests");
    let expected = ["UNBLOCKED", "WRONGTYPE"].map(str::to_owned);
    assert!(errors.iter().all(|error| expected.contains(error)), "{errors:?}");
    assert!(waits > 500 && tokens > 200 && timeouts > 10 && lapses > 10, "too little happened to test anything");
    let memory: i64 = info_field(client, "memory", "used_memory").unwrap().parse().unwrap();
    assert!(memory < 30_000_000, "{memory} bytes are used");
}

#[track_caller]
fn only_what_belongs_there(server: &Server) {
    let names = server.aof().into_iter().map(|command| String::from_utf8_lossy(&command[0]).to_uppercase());
    let names: BTreeSet<_> = names.collect();
    let ours = ["DLOCK.APPLY", "DLOCK.RELEASE"];
    let own = ["DEL", "UNLINK", "FLUSHALL", "SET", "RENAME", "SWAPDB", "PEXPIREAT", "PERSIST"];
    let frame = ["SELECT", "MULTI", "EXEC"];
    let known = |name: &String| [ours.as_slice(), &own, &frame].concat().contains(&name.as_str());
    assert!(names.iter().all(known), "{names:?}");
}

/// After the long leases are released, every lock can be taken.
#[track_caller]
fn every_lock_is_free(server: &Server) {
    for db in 0..2 {
        let mut client = server.client();
        client.ok(format!("SELECT {db}"));
        for n in 0..KEYS {
            let key = format!("k{n}");
            let info = crate::support::lock_info(&mut client, &format!("{key} FULL COUNT 0"));
            for hold in info.iter().flat_map(|info| info.holds()) {
                assert_eq!(client.int(req!["DLOCK.RELEASE", &key, &hold.owner, "TOKEN", hold.token]), 1);
            }
            soon("it is free", || client.attempt(format!("DLOCK.ACQUIRE {key} last PX 60000")) != Ok(Value::Nil));
            assert_eq!(client.int(format!("DLOCK.RELEASE {key} last")), 1);
        }
        assert_eq!(client.int("DBSIZE"), 0);
    }
}
