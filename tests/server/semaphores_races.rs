//! Two hundred workers and eight numbers, while clients and servers die, sessions end and caps are reached: two workers
//! never have the same number at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;

use crate::support::{Client, Server, int_of, soon, text_of};

const WORKERS: usize = 200;
const SLOTS: i64 = 8;
const LEASE: Duration = Duration::from_millis(400);

/// A time during which a worker could be sure of a number.
#[derive(Clone, Debug)]
struct Use {
    slot: i64,
    token: i64,
    from: Instant,
    until: Instant,
}

/// The state that the workers share.
struct Pool {
    /// The port of the primary.
    port: AtomicU16,
    is_over: AtomicBool,
    uses: Mutex<Vec<Use>>,
}

/// Takes a number again and again, on a new connection where the last one failed.
fn work(pool: &Pool, worker: usize) {
    let mut round = worker;
    while !pool.is_over.load(SeqCst) {
        // A server that is gone is asked again.
        let Ok(mut client) = Client::connect(pool.port.load(SeqCst)) else {
            thread::yield_now();
            continue;
        };
        while !pool.is_over.load(SeqCst) && use_one(pool, &mut client, round).is_some() {
            round += 1;
        }
        round += 1;
    }
}

/// Takes a number, and releases it in one of several ways. The use counts if a replica has the grant. `None`: a new
/// connection is needed.
fn use_one(pool: &Pool, client: &mut Client, round: usize) -> Option<()> {
    let (session, is_capped) = (if round.is_multiple_of(4) { "SESSION" } else { "" }, round % 4 < 2);
    let cap = if is_capped { format!("MAXHOLD {}", LEASE.as_millis()) } else { String::new() };
    let ask = format!("DLOCK.SACQUIRE pool * {SLOTS} SLOT PX {} BLOCK 300 {session} {cap}", LEASE.as_millis());
    let Value::Array(grant) = client.ask(ask)? else { return Some(()) };
    let (owner, token, slot) = (text_of(&grant[0]), int_of(&grant[1]), int_of(&grant[2]));
    assert!((0..SLOTS).contains(&slot), "{grant:?}");
    let is_kept = matches!(client.ask("WAIT 1 200")?, Value::Int(1..));
    let from = Instant::now();
    let left = match client.ask(format!("DLOCK.CHECK pool {token}"))? {
        // The server counts whole milliseconds: the last may have begun.
        Value::Int(left) => Duration::from_millis(u64::try_from(left - 1).unwrap_or(0)),
        _ => Duration::ZERO,
    };
    let (until, checked) = (from + left, Instant::now());
    let is_renewed = is_capped && round.is_multiple_of(5);
    if is_renewed {
        // The hold is renewed until the cap ends it, so that a renewal meets that millisecond.
        renew_to_the_end(client, &owner, token, checked + left + Duration::from_millis(3))?;
    } else {
        thread::sleep(Duration::from_millis(round as u64 * 7 % 40).min(left));
    }
    let end = Instant::now().min(until);
    if is_kept && from < end {
        pool.uses.lock().expect("no worker panics").push(Use { slot, token, from, until: end });
    }
    match round % 3 {
        // The connection ends: a session ends with it.
        0 => None,
        _ => client.ask(format!("DLOCK.RELEASE pool {owner} TOKEN {token}")).map(drop),
    }
}

/// Renews a hold as far as its cap lets it, until it has ended, which must be before `latest`.
fn renew_to_the_end(client: &mut Client, owner: &str, token: i64, latest: Instant) -> Option<()> {
    loop {
        let sent = Instant::now();
        match client.ask(format!("DLOCK.RENEW pool {owner} PX 60000 TOKEN {token}"))? {
            Value::Nil => return Some(()),
            renewed => assert_eq!(renewed, Value::Int(0), "the cap cuts each renewal"),
        }
        assert!(sent <= latest, "renewed {:?} after its cap", sent - latest);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_two_workers_have_one_number_while_clients_and_servers_die() {
    let (mut primary, mut replica) = Server::start().with_replica();
    let pool =
        Pool { port: AtomicU16::new(primary.port()), is_over: AtomicBool::new(false), uses: Mutex::new(Vec::new()) };
    let counted = || pool.uses.lock().expect("no worker panics").len();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let pool = &pool;
            scope.spawn(move || work(pool, worker));
        }
        for _ in 0..2 {
            let before = counted();
            soon("the workers work", || counted() > before + 100);
            // The primary dies; its replica takes over, and gets one of its own.
            primary.kill9();
            replica.promote();
            pool.port.store(replica.port(), SeqCst);
            let next = replica.replica();
            primary = std::mem::replace(&mut replica, next);
        }
        let before = counted();
        soon("the workers work", || counted() > before + 100);
        pool.is_over.store(true, SeqCst);
    });
    let mut uses = pool.uses.into_inner().expect("no worker panicked");
    assert!(uses.iter().any(|one| one.slot == SLOTS - 1), "the last number was never used");
    uses.sort_by_key(|one| (one.slot, one.from));
    for pair in uses.windows(2) {
        let [first, second] = pair else { continue };
        let follows = first.until <= second.from && first.token < second.token;
        assert!(first.slot != second.slot || follows, "{first:?} and {second:?}");
    }
}
