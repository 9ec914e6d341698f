//! A worker's use of locks: it takes them in every way there is, works under them, and releases them or does not.

mod named;

use rustix::process::Signal;
use rustix::process::set_parent_process_death_signal;

use crate::failure::{Doing, Result};
use crate::history::Reply;
use crate::time::sleep_ms;
use crate::worker::Job;
use crate::worker::Worker;

/// Works until told to finish.
pub fn run(job: Job) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).doing("prctl")?;
    let mut worker = Worker::new(job)?;
    while worker.goes_on()? {
        step(&mut worker)?;
        let pause = worker.random.within(2..26);
        sleep_ms(pause);
    }
    Ok(())
}

/// Does a piece of work, drawn at random.
fn step(worker: &mut Worker) -> Result<()> {
    match worker.random.below(36) {
        0..=8 => exclusive(worker),
        9..=11 => reentrant(worker),
        12..=16 => shared(worker),
        17 | 18 => upgrade(worker),
        19 | 20 => downgrade(worker),
        21 => nested(worker),
        22 => kept_alive(worker),
        23..=27 => permits(worker),
        28..=30 => several(worker),
        31..=34 => named::in_session(worker),
        _ => forgotten(worker),
    }
}

/// The keys of the locks: few, so that there is always a waiter, and all in one slot, as `MACQUIRE` needs them. Permits
/// are taken of the last ones.
pub const KEYS: [&str; 6] = ["{c}k0", "{c}k1", "{c}k2", "{c}k3", "{c}p0", "{c}p1"];

/// The number of locks of which nobody takes permits.
const LOCKS: usize = 4;

/// A lock that was entered.
struct Held {
    key: String,
    owner: String,
    lease: u64,
    token: u64,
}

/// The options of a request beside key, owner and lease.
struct Options {
    text: String,
    has_request: bool,
}

fn exclusive(worker: &mut Worker) -> Result<()> {
    let verb = worker.random.pick(&["ACQUIRE", "RACQUIRE", "WLOCK"]);
    let options = options(worker);
    let (key, owner, lease) = (any_key(worker), worker.fresh_owner(), lease(worker));
    let Some(held) = take_as(worker, verb, (key, owner, lease), "", &options)? else { return Ok(()) };
    write(worker, &held)?;
    release(worker, &held, "")
}

/// Permits: some at once, later one more, given back one by one or all together.
fn permits(worker: &mut Worker) -> Result<()> {
    let options = options(worker);
    let (key, owner, lease) = (semaphore(worker), worker.fresh_owner(), lease(worker));
    let limit = worker.random.pick(&[2, 3, 3, 3, 4]);
    let permits = if worker.random.one_in(3) { worker.random.within(1..limit + 1) } else { 1 };
    let wanted = format!("{limit} PERMITS {permits}");
    let Some(held) = take_as(worker, "SACQUIRE", (key, owner, lease), &wanted, &options)? else { return Ok(()) };
    pause(worker, 20);
    if worker.random.one_in(3) {
        let Held { key, owner, lease, .. } = &held;
        worker.ask(&format!("DLOCK.SACQUIRE {key} {owner} {limit} PX {lease} BLOCK 200"))?;
    }
    check_of(worker, &held)?;
    if permits > 1 {
        worker.ask_until_known(&format!("DLOCK.RELEASE {} {} PERMITS 1 REQUEST part", held.key, held.owner))?;
        pause(worker, 10);
        check_of(worker, &held)?;
    }
    match worker.random.below(12) {
        // Nobody releases the hold: it ends with its session, or with its lease.
        0 if options.text.contains("SESSION") => worker.hang_up(),
        0 => Ok(()),
        _ => release(worker, &held, "ALL"),
    }
}

/// Several locks at once, in any order: all of them, or none.
fn several(worker: &mut Worker) -> Result<()> {
    let options = options(worker);
    let mut keys = vec![any_key(worker)];
    for _ in 0..worker.random.within(1..3) {
        let key = any_key(worker);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let (owner, lease) = (worker.fresh_owner(), lease(worker));
    let command = format!("DLOCK.MACQUIRE {} {} {owner} PX {lease} {}", keys.len(), keys.join(" "), options.text);
    let reply = if options.has_request { worker.ask_until_known(&command)? } else { worker.ask(&command)? };
    let Some(Reply::Int(token)) = reply else {
        // The owner has none of them.
        for key in keys {
            worker.ask(&format!("DLOCK.RELEASE {key} {owner}"))?;
        }
        return Ok(());
    };
    let hold = |key| Held { key, owner: owner.clone(), lease, token: token.unsigned_abs() };
    let held: Vec<Held> = keys.into_iter().map(hold).collect();
    held.iter().try_for_each(|held| check_of(worker, held))?;
    worker.acknowledge()?;
    for held in &held {
        write(worker, held)?;
    }
    held.iter().try_for_each(|held| release(worker, held, ""))
}

fn reentrant(worker: &mut Worker) -> Result<()> {
    let options = options(worker);
    let Some(held) = take(worker, "RACQUIRE", &options)? else { return Ok(()) };
    let again = enter(worker, "WLOCK", &held.key, &held.owner, held.lease, "REQUEST again")?;
    write(worker, &held)?;
    if again.is_some() {
        let command = format!("DLOCK.RELEASE {} {} REQUEST part", held.key, held.owner);
        worker.ask_until_known(&command)?;
        pause(worker, 5);
        write(worker, &held)?;
    }
    release(worker, &held, "ALL")
}

fn shared(worker: &mut Worker) -> Result<()> {
    let options = options(worker);
    let Some(held) = take(worker, "RLOCK", &options)? else { return Ok(()) };
    pause(worker, 20);
    check_of(worker, &held)?;
    release(worker, &held, "READ")
}

fn upgrade(worker: &mut Worker) -> Result<()> {
    let options = options(worker);
    let Some(read) = take(worker, "RLOCK", &options)? else { return Ok(()) };
    pause(worker, 10);
    let token = enter(worker, "WLOCK", &read.key, &read.owner, read.lease, "BLOCK 800")?;
    if let Some(token) = token {
        write(worker, &Held { token, key: read.key.clone(), owner: read.owner.clone(), lease: read.lease })?;
    }
    leave(worker, &format!("DLOCK.RELEASE {} {} ALL", read.key, read.owner))
}

fn downgrade(worker: &mut Worker) -> Result<()> {
    let options = options(worker);
    let Some(held) = take(worker, "WLOCK", &options)? else { return Ok(()) };
    write(worker, &held)?;
    let read = enter(worker, "RLOCK", &held.key, &held.owner, held.lease, "")?;
    release(worker, &held, "WRITE")?;
    if let Some(token) = read {
        pause(worker, 10);
        let read = Held { token, ..held };
        check_of(worker, &read)?;
        release(worker, &read, "READ")?;
    }
    Ok(())
}

/// Two locks in any order: sooner or later, workers wait for each other in a cycle.
fn nested(worker: &mut Worker) -> Result<()> {
    let (outer, inner) = (lock(worker), lock(worker));
    let (owner, lease) = (worker.fresh_owner(), lease(worker));
    let Some(token) = enter(worker, "RACQUIRE", &outer, &owner, lease, "BLOCK 1000")? else { return Ok(()) };
    pause(worker, 10);
    if inner != outer
        && let Some(token) = enter(worker, "RACQUIRE", &inner, &owner, lease, "BLOCK 0")?
    {
        let held = Held { key: inner, owner: owner.clone(), lease, token };
        write(worker, &held)?;
        release(worker, &held, "")?;
    }
    release(worker, &Held { key: outer, owner, lease, token }, "")
}

/// A lock that is held for longer than its lease: the server renews it, or the worker itself.
fn kept_alive(worker: &mut Worker) -> Result<()> {
    let options = match worker.random.below(2) {
        0 => "BLOCK 1000 SESSION",
        _ => "BLOCK 1000",
    };
    let (key, owner) = (lock(worker), worker.fresh_owner());
    let Some(token) = enter(worker, "ACQUIRE", &key, &owner, 300, options)? else { return Ok(()) };
    let held = Held { key, owner, lease: 300, token };
    for _ in 0..6 {
        pause(worker, 80);
        if options == "BLOCK 1000" {
            renew(worker, &held)?;
        }
        check_of(worker, &held)?;
    }
    write(worker, &held)?;
    if worker.random.one_in(2) { release(worker, &held, "") } else { worker.hang_up() }
}

/// A lock that is never released: its lease ends it.
fn forgotten(worker: &mut Worker) -> Result<()> {
    let verb = if worker.random.one_in(2) { "RLOCK" } else { "ACQUIRE" };
    let (key, owner) = (lock(worker), worker.fresh_owner());
    let lease = worker.random.within(100..501);
    enter(worker, verb, &key, &owner, lease, "BLOCK 500").map(drop)
}

fn options(worker: &mut Worker) -> Options {
    let mut text = match worker.random.below(6) {
        0 => String::new(),
        1 | 2 => "BLOCK 0".to_owned(),
        _ => format!("BLOCK {}", worker.random.within(20..1501)),
    };
    if worker.random.one_in(3) {
        text.push_str(" SESSION");
    }
    let has_request = worker.random.one_in(2);
    if has_request {
        text.push_str(" REQUEST first");
    }
    Options { text, has_request }
}

/// Any lock, even one of which others take permits.
fn any_key(worker: &mut Worker) -> String {
    worker.random.pick(&KEYS).to_owned()
}

fn lock(worker: &mut Worker) -> String {
    worker.random.pick(KEYS.split_at(LOCKS).0).to_owned()
}

fn semaphore(worker: &mut Worker) -> String {
    worker.random.pick(KEYS.split_at(LOCKS).1).to_owned()
}

fn lease(worker: &mut Worker) -> u64 {
    worker.random.within(300..1501)
}

/// Enters a lock as a fresh owner.
fn take(worker: &mut Worker, verb: &str, options: &Options) -> Result<Option<Held>> {
    let (key, owner, lease) = (lock(worker), worker.fresh_owner(), lease(worker));
    take_as(worker, verb, (key, owner, lease), "", options)
}

/// Enters a lock. `wanted` are the words after the owner: the limit, and how many permits.
fn take_as(
    worker: &mut Worker,
    verb: &str,
    (key, owner, lease): (String, String, u64),
    wanted: &str,
    options: &Options,
) -> Result<Option<Held>> {
    let space = if wanted.is_empty() { "" } else { " " };
    let command = format!("DLOCK.{verb} {key} {owner}{space}{wanted} PX {lease} {}", options.text);
    let reply = if options.has_request { worker.ask_until_known(&command)? } else { worker.ask(&command)? };
    let token = entered(worker, &key, reply)?;
    Ok(token.map(|token| Held { key, owner, lease, token }))
}

fn enter(worker: &mut Worker, verb: &str, key: &str, owner: &str, lease: u64, options: &str) -> Result<Option<u64>> {
    let reply = worker.ask(&format!("DLOCK.{verb} {key} {owner} PX {lease} {options}"))?;
    entered(worker, key, reply)
}

/// Asks after a grant how much of the lease is left by the server's clock, and whether the replica has it.
fn entered(worker: &mut Worker, key: &str, reply: Option<Reply>) -> Result<Option<u64>> {
    let Some(Reply::Int(token)) = reply else { return Ok(None) };
    worker.ask(&format!("DLOCK.CHECK {key} {token}"))?;
    worker.acknowledge()?;
    Ok(Some(token.unsigned_abs()))
}

/// Adds one to the counter of a lock held exclusively, as if nobody else could.
fn write(worker: &mut Worker, held: &Held) -> Result<()> {
    let Some(value) = worker.counters.read(&held.key, held.token)? else { return Ok(()) };
    pause(worker, 12);
    if worker.random.one_in(4) {
        renew(worker, held)?;
    }
    if let Some(value) = worker.counters.write(&held.key, held.token, value + 1)? {
        worker.wrote(&held.key, held.token, value)?;
    }
    check_of(worker, held)
}

fn renew(worker: &mut Worker, held: &Held) -> Result<()> {
    let Held { key, owner, lease, token } = held;
    worker.ask(&format!("DLOCK.RENEW {key} {owner} PX {lease} TOKEN {token}"))?;
    worker.acknowledge()
}

fn check_of(worker: &mut Worker, held: &Held) -> Result<()> {
    worker.ask(&format!("DLOCK.CHECK {} {}", held.key, held.token)).map(drop)
}

fn release(worker: &mut Worker, held: &Held, what: &str) -> Result<()> {
    let Held { key, owner, token, .. } = held;
    leave(worker, &format!("DLOCK.RELEASE {key} {owner} {what} TOKEN {token}"))
}

/// Releases. Half of the releases are sent once, the others until an answer tells that they were executed.
fn leave(worker: &mut Worker, command: &str) -> Result<()> {
    if worker.random.one_in(2) {
        worker.ask(command)?;
    } else {
        worker.ask_until_known(&format!("{command} REQUEST last"))?;
    }
    Ok(())
}

fn pause(worker: &mut Worker, most_ms: u64) {
    let ms = worker.random.within(1..most_ms + 1);
    sleep_ms(ms);
}
