//! How the server's CPU time grows: for a pair, with the number of held locks; for a hand-off, with the number of
//! waiting clients; for the end of a lease, with the number of leases that end in one millisecond. Each is measured
//! with locks, and with strings or lists.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use super::memory::used;
use super::pairs::{LEASE, fill};
use crate::connection::Connection;
use crate::contenders::{self, SET_SCRIPT};
use crate::error::Error;
use crate::figures::Sample;
use crate::ledger::{Figure, Ledger};
use crate::mode::Mode;
use crate::owners;
use crate::resp::{Expect, Reply, Request};
use crate::server::{Programs, RunsOn};
use crate::waiting::{Open, Resource, Ring, unix_time};

/// A cost that may grow.
pub struct Growth {
    /// For figures.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    pub sizes: [usize; 3],
    pub runs_on: RunsOn,
    measure: fn(&Programs, &Scale) -> Result<Grown, Error>,
}

/// The extent of a measurement.
struct Scale {
    /// From the least to the most.
    sizes: Vec<usize>,
    runs_on: RunsOn,
    rounds: usize,
    /// How many pairs, or passes of a ring, make a round.
    operations: usize,
    end: Instant,
}

impl Scale {
    fn of(growth: &Growth, rounds: usize) -> Self {
        let end = Instant::now() + LIMIT;
        Self { sizes: growth.sizes.into(), runs_on: growth.runs_on, rounds, operations: OPERATIONS, end }
    }

    /// Fails when the time is over, so that nothing here waits without an end.
    fn check(&self) -> Result<(), Error> {
        let is_over = Instant::now() > self.end;
        if is_over { Err(Error::Server(format!("not done within {} s", LIMIT.as_secs()))) } else { Ok(()) }
    }

    fn most(&self) -> usize {
        self.sizes.last().copied().unwrap_or_default()
    }
}

pub static GROWTHS: [Growth; 6] = [
    Growth {
        name: "locks",
        label: "pair beside n held locks",
        sizes: LOCKS,
        runs_on: RunsOn::Module,
        measure: |programs, scale| pairs(programs, scale, "acquire-px", acquire),
    },
    Growth {
        name: "strings",
        label: "SET NX PX + script beside n strings",
        sizes: LOCKS,
        runs_on: RunsOn::PlainServer,
        measure: |programs, scale| pairs(programs, scale, SET_SCRIPT, set),
    },
    Growth {
        name: "waiters",
        label: "hand-off with n waiters",
        sizes: WAITERS,
        runs_on: RunsOn::Module,
        measure: |programs, scale| hand_offs(programs, scale, Resource::Lock),
    },
    Growth {
        name: "blpop",
        label: "LPUSH + BLPOP with n clients",
        sizes: WAITERS,
        runs_on: RunsOn::PlainServer,
        measure: |programs, scale| hand_offs(programs, scale, Resource::Element),
    },
    Growth {
        name: "ends",
        label: "end of one of n leases",
        sizes: ENDS,
        runs_on: RunsOn::Module,
        measure: |programs, scale| ends(programs, scale, acquire),
    },
    Growth {
        name: "string-ends",
        label: "end of one of n strings",
        sizes: ENDS,
        runs_on: RunsOn::PlainServer,
        measure: |programs, scale| ends(programs, scale, set),
    },
];

/// The costs of an operation by size, in each round. For the largest size, also the bytes of a key or a waiter, and
/// the longest stall of each round.
struct Grown {
    microseconds: Vec<Vec<f64>>,
    bytes: Option<f64>,
    stalls: Vec<f64>,
}

pub fn measure(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    for growth in &GROWTHS {
        eprintln!("  {}", growth.label);
        note(ledger, growth, &Scale::of(growth, rounds.min(ROUNDS)), programs)?;
    }
    Ok(())
}

fn note(ledger: &mut Ledger, growth: &Growth, scale: &Scale, programs: &Programs) -> Result<(), Error> {
    let failed = |source| Error::Contender { name: growth.name, source: Box::new(source) };
    let grown = (growth.measure)(programs, scale).map_err(failed)?;
    for (size, times) in scale.sizes.iter().zip(grown.microseconds) {
        ledger.note(format!("growth/{}/{size}", growth.name), Figure::of_rounds(&Sample::new(times)));
    }
    if let Some(bytes) = grown.bytes {
        ledger.note(format!("growth-bytes/{}", growth.name), Figure::once(bytes));
    }
    if !grown.stalls.is_empty() {
        ledger.note(format!("growth-stall/{}", growth.name), Figure::of_rounds(&Sample::new(grown.stalls)));
    }
    Ok(())
}

/// Measures pairs of free locks beside the held ones. A round uses as many names as there are held locks, but no more
/// than it makes pairs, and the next round goes on behind them.
fn pairs(programs: &Programs, scale: &Scale, contender: &str, take: Take) -> Result<Grown, Error> {
    let all = contenders::all();
    let found = all.iter().find(|found| found.name == contender);
    let contender = found.ok_or_else(|| Error::Reply(format!("there is no contender {contender}")))?;
    let mut sides: Vec<(usize, Connection, Open)> = Vec::new();
    let mut bytes = None;
    for size in &scale.sizes {
        scale.check()?;
        let mut open = programs.open_in(Mode::NoPersistence, scale.runs_on)?;
        let before = used(&mut open.control)?;
        fill(&mut open.control, *size, |key, owner| take(key, owner, &[b"PX", LEASE]))?;
        bytes = Some((used(&mut open.control)? - before) / *size as f64);
        sides.push((*size, open.server.connect_locally()?, open));
    }
    let microseconds = in_turns(scale, &mut sides, |round, (size, connection, open)| {
        let names = scale.operations.min(*size);
        let first = round * names % *size;
        let load = (contender.prepare)(connection, first..first + names)?;
        let before = open.control.cpu_seconds()?;
        load.run(connection, scale.operations)?;
        Ok((open.control.cpu_seconds()? - before) * 1e6 / scale.operations as f64)
    })?;
    Ok(Grown { microseconds, bytes, stalls: Vec::new() })
}

/// Measures hand-offs in one queue. The bytes are those of a client that waits, with its connection.
fn hand_offs(programs: &Programs, scale: &Scale, resource: Resource) -> Result<Grown, Error> {
    let mut sides: Vec<(Ring, Open)> = Vec::new();
    let mut bytes = None;
    for size in &scale.sizes {
        scale.check()?;
        let mut open = match scale.runs_on {
            RunsOn::Module => programs.open()?,
            RunsOn::PlainServer => programs.open_in(Mode::NoPersistence, RunsOn::PlainServer)?,
        };
        let before = used(&mut open.control)?;
        let crowd = open.crowd(size + 1)?;
        let mut ring = Ring::form(crowd, resource, &owners::key(0), 0, &mut open.control)?;
        bytes = Some((used(&mut open.control)? - before) / (size + 1) as f64);
        pass(&mut ring, scale.operations)?;
        sides.push((ring, open));
    }
    let microseconds = in_turns(scale, &mut sides, |_, (ring, open)| {
        let before = open.control.cpu_seconds()?;
        let passes = pass(ring, scale.operations)?;
        Ok((open.control.cpu_seconds()? - before) * 1e6 / passes as f64)
    })?;
    Ok(Grown { microseconds, bytes, stalls: Vec::new() })
}

/// Makes that many passes, or as many as there is time for: some servers take milliseconds for an element when
/// thousands wait. Returns how many.
fn pass(ring: &mut Ring, at_most: usize) -> Result<usize, Error> {
    let began = Instant::now();
    let mut passes = 0;
    while passes < at_most && (passes == 0 || began.elapsed() < PASSING) {
        ring.pass()?;
        passes += 1;
    }
    Ok(passes)
}

/// Measures the ends of leases for which nobody waits: the server finds out by itself.
fn ends(programs: &Programs, scale: &Scale, take: Take) -> Result<Grown, Error> {
    let mut sizes = scale.sizes.clone();
    let microseconds = in_turns(scale, &mut sizes, |_, size| {
        let mut open = programs.open_in(Mode::NoPersistence, scale.runs_on)?;
        take_until_their_end(open.server.address(), *size, take)?;
        let before = open.control.cpu_seconds()?;
        wait_for_ends(scale, &mut open.control, *size)?;
        Ok((open.control.cpu_seconds()? - before) * 1e6 / *size as f64)
    })?;
    let stalls = (0..scale.rounds).map(|_| stall(programs, scale, take)).collect::<Result<_, _>>()?;
    Ok(Grown { microseconds, bytes: None, stalls })
}

/// Returns the longest wait of a `PING`, in milliseconds, while the largest number of leases end.
fn stall(programs: &Programs, scale: &Scale, take: Take) -> Result<f64, Error> {
    scale.check()?;
    let setup = match scale.runs_on {
        RunsOn::Module => programs.testkit(),
        RunsOn::PlainServer => programs.testkit().without_module(),
    };
    let server = setup.start();
    let address = (Ipv4Addr::LOCALHOST, server.port()).into();
    let mut control = Connection::open(address)?;
    take_until_their_end(address, scale.most(), take)?;
    let mut ended = Ok(());
    let longest = server.longest_turn(|| ended = wait_for_ends(scale, &mut control, scale.most()));
    ended.map(|()| longest.as_secs_f64() * 1e3)
}

/// Waits until 95 % of that number are gone. The server stops looking for ended keys when those that are left fill less
/// than a hundredth of its table, which has up to four times as many places as there were keys.
fn wait_for_ends(scale: &Scale, connection: &mut Connection, number: usize) -> Result<(), Error> {
    loop {
        match connection.call(&[b"DBSIZE"])? {
            Reply::Integer(left) if usize::try_from(left).is_ok_and(|left| left * 20 <= number) => return Ok(()),
            Reply::Integer(_) => scale.check()?,
            other => return Err(Error::Reply(format!("DBSIZE got {other:?}"))),
        }
        thread::sleep(BETWEEN_LOOKS);
    }
}

/// Takes that many, all with the same end, and returns shortly before it.
fn take_until_their_end(address: SocketAddr, number: usize, take: Take) -> Result<(), Error> {
    for seconds in SECONDS_BEFORE {
        let mut connection = Connection::open(address)?;
        connection.exchange(&[&Request::new(&[b"FLUSHALL"], Expect::Ok)])?;
        let taking = TAKING * u32::try_from(number).unwrap_or(u32::MAX);
        let end = unix_time()? + Duration::from_secs(seconds) + taking;
        let end = Duration::from_millis(u64::try_from(end.as_millis()).unwrap_or(u64::MAX));
        let text = end.as_millis().to_string();
        let taken = fill(&mut connection, number, |key, owner| take(key, owner, &[b"PXAT", text.as_bytes()]));
        // `taken` counts only if the end is still to come: the server refuses one that has passed. The next try leaves
        // more time.
        if let Some(left) = end.checked_sub(unix_time()? + SHORTLY) {
            thread::sleep(left);
            return taken;
        }
    }
    Err(Error::Server("this machine is too slow: the leases end before all are taken".into()))
}

/// Returns the costs of each over the rounds. In every round, each has one turn.
fn in_turns<T>(
    scale: &Scale,
    all: &mut [T],
    mut one: impl FnMut(usize, &mut T) -> Result<f64, Error>,
) -> Result<Vec<Vec<f64>>, Error> {
    let mut costs = vec![Vec::new(); all.len()];
    for round in 0..scale.rounds {
        for (costs, each) in costs.iter_mut().zip(all.iter_mut()) {
            scale.check()?;
            costs.push(one(round, each)?);
        }
    }
    Ok(costs)
}

/// A request that takes a lock: key, owner, until when.
type Take = fn(&[u8], &[u8], &[&[u8]]) -> Request;

fn acquire(key: &[u8], owner: &[u8], end: &[&[u8]]) -> Request {
    let command: &[u8] = b"DLOCK.ACQUIRE";
    Request::new(&[&[command, key, owner], end].concat(), Expect::Positive)
}

fn set(key: &[u8], owner: &[u8], end: &[&[u8]]) -> Request {
    let command: &[u8] = b"SET";
    Request::new(&[&[command, key, owner, b"NX"], end].concat(), Expect::Ok)
}

const LOCKS: [usize; 3] = [1, 10_000, 1_000_000];
const WAITERS: [usize; 3] = [1, 1_000, 10_000];
/// A server without clients does some work all the time. The cost of fewer ends is not distinct from that.
const ENDS: [usize; 3] = [1_000, 10_000, 100_000];
const OPERATIONS: usize = 20_000;
const ROUNDS: usize = 3;
/// The most time for one kind of growth.
const LIMIT: Duration = Duration::from_secs(120);
/// The most time for the passes of one round.
const PASSING: Duration = Duration::from_secs(3);
/// More time than an acquisition needs, even on a busy machine.
const TAKING: Duration = Duration::from_micros(60);
/// The seconds added to the time for all acquisitions. Each is tried if the one before was too short.
const SECONDS_BEFORE: [u64; 3] = [1, 3, 9];
/// How long before the common end `take_until_their_end` returns.
const SHORTLY: Duration = Duration::from_millis(50);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Place;

    #[test]
    fn every_growth_is_measured_at_every_size() {
        thread::scope(|scope| {
            for growth in &GROWTHS {
                scope.spawn(|| measure_few(growth));
            }
        });
    }

    fn measure_few(growth: &Growth) {
        let programs = Programs::find(&Place::default()).expect("a server and the module");
        let is_of_ends = growth.sizes == ENDS;
        let sizes = if is_of_ends { vec![200] } else { vec![1, 10, 30] };
        let scale = Scale { sizes, operations: 100, ..Scale::of(growth, 1) };
        let mut ledger = Ledger::default();
        note(&mut ledger, growth, &scale, &programs).unwrap_or_else(|error| panic!("{error}"));
        let figure = |name: String| ledger.figure(&name).is_some_and(|figure| figure.median > 0.0);
        for size in &scale.sizes {
            assert!(figure(format!("growth/{}/{size}", growth.name)), "{} {size}", growth.name);
        }
        let other = if is_of_ends { "stall" } else { "bytes" };
        assert!(figure(format!("growth-{other}/{}", growth.name)), "{other} of {}", growth.name);
    }
}
