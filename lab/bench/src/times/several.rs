//! 32 clients that each need 2 of 16 locks at the same time, again and again.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::random::Random;

use super::note_rounds;
use crate::connection::Connection;
use crate::contenders::{COMPARE_AND_DELETE, script};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::owners;
use crate::resp::{Expect, Reply, Request};
use crate::server::Programs;
use crate::waiting::Open;

/// How a client gets two locks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Means {
    /// `MACQUIRE BLOCK`.
    Together,
    /// `ACQUIRE BLOCK` of one, then of the other, all in the same order.
    Ordered,
    /// `SET NX PX` of one and of the other. A client that gets only one releases it and tries again after a pause.
    BackOff,
}

impl Means {
    pub const ALL: [Self; 3] = [Self::Together, Self::Ordered, Self::BackOff];

    /// For figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Together => "macquire",
            Self::Ordered => "ordered",
            Self::BackOff => "try",
        }
    }

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Together => "MACQUIRE BLOCK",
            Self::Ordered => "ACQUIRE BLOCK, one after the other, ordered",
            Self::BackOff => "SET NX PX, try and back off",
        }
    }
}

pub fn measure(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    let open = programs.open()?;
    let mut results = Means::ALL.map(|means| (means, Vec::new(), Vec::new()));
    for round in 0..=rounds {
        for (means, rates, longest) in &mut results {
            let outcome = contend(&open, *means, WINDOW)?;
            // The first round is to warm up.
            if round > 0 {
                rates.push(outcome.rate);
                longest.push(outcome.longest);
            }
        }
    }
    let [_, ordered, back_off] = &results;
    for (means, rates, longest) in &results {
        note_rounds(ledger, ["several-rate", "several-rate-ratio"], means.name(), rates, &ordered.1);
        note_rounds(ledger, ["several-longest", "several-longest-ratio"], means.name(), longest, &back_off.2);
    }
    Ok(())
}

struct Outcome {
    /// Times that a client has had both locks, a second.
    rate: f64,
    /// From the first request to both locks, in milliseconds.
    longest: f64,
}

fn contend(open: &Open, means: Means, time: Duration) -> Result<Outcome, Error> {
    let over = AtomicBool::new(false);
    let clients = (0..CLIENTS).map(|n| Client::connect(open, means, n)).collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let done: Vec<Result<Vec<f64>, Error>> = thread::scope(|scope| {
        let started: Vec<_> = clients.into_iter().map(|client| scope.spawn(|| client.work(&over))).collect();
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        started.into_iter().map(|client| client.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let elapsed = start.elapsed().as_secs_f64();
    let waits: Vec<f64> = done.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    Ok(Outcome { rate: waits.len() as f64 / elapsed, longest: waits.into_iter().fold(0.0, f64::max) })
}

struct Client {
    connection: Connection,
    means: Means,
    owner: Vec<u8>,
    delete: Vec<u8>,
    random: Random,
}

impl Client {
    fn connect(open: &Open, means: Means, number: usize) -> Result<Self, Error> {
        let mut connection = open.server.connect()?;
        let delete = script(&mut connection, COMPARE_AND_DELETE)?;
        Ok(Self { connection, means, owner: owners::owner(number), delete, random: Random::seeded(number as u64) })
    }

    /// Returns how long it took to get both locks each time, in milliseconds.
    fn work(mut self, over: &AtomicBool) -> Result<Vec<f64>, Error> {
        let mut waits = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let keys = self.choose();
            let keys = [keys[0].as_slice(), keys[1].as_slice()];
            let start = Instant::now();
            self.enter(keys)?;
            waits.push(start.elapsed().as_secs_f64() * 1e3);
            thread::sleep(HELD);
            self.leave(&keys)?;
        }
        Ok(waits)
    }

    /// Two locks, in their order.
    fn choose(&mut self) -> [Vec<u8>; 2] {
        let (one, step) = (self.draw(LOCKS), 1 + self.draw(LOCKS - 1));
        let other = (one + step) % LOCKS;
        [one.min(other), one.max(other)].map(owners::key)
    }

    fn draw(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).unwrap_or(0)
    }

    fn enter(&mut self, keys: [&[u8]; 2]) -> Result<(), Error> {
        let owner = self.owner.clone();
        let [first, second] = keys;
        match self.means {
            Means::Together => {
                let request: [&[u8]; 8] = [b"DLOCK.MACQUIRE", b"2", first, second, &owner, b"PX", LEASE, b"BLOCK"];
                self.ask(&[&request[..], &[b"0"]].concat(), Expect::Positive)
            }
            Means::Ordered => keys.into_iter().try_for_each(|key| {
                self.ask(&[b"DLOCK.ACQUIRE", key, &owner, b"PX", LEASE, b"BLOCK", b"0"], Expect::Positive)
            }),
            Means::BackOff => loop {
                if self.set(first)? {
                    if self.set(second)? {
                        return Ok(());
                    }
                    self.leave(&[first])?;
                }
                let pause = 1 + self.draw(PAUSE_AT_MOST_MS);
                thread::sleep(Duration::from_millis(u64::try_from(pause).unwrap_or(1)));
            },
        }
    }

    fn ask(&mut self, words: &[&[u8]], expect: Expect) -> Result<(), Error> {
        self.connection.exchange(&[&Request::new(words, expect)])
    }

    fn set(&mut self, key: &[u8]) -> Result<bool, Error> {
        match self.connection.call(&[b"SET", key, &self.owner, b"NX", b"PX", LEASE])? {
            Reply::Simple(_) => Ok(true),
            Reply::Nil => Ok(false),
            other => Err(Error::Reply(format!("SET NX got {other:?}"))),
        }
    }

    /// Releases the locks in one batch.
    fn leave(&mut self, keys: &[&[u8]]) -> Result<(), Error> {
        let request = |key: &&[u8]| match self.means {
            Means::Together | Means::Ordered => Request::new(&[b"DLOCK.RELEASE", key, &self.owner], Expect::Integer(1)),
            Means::BackOff => Request::new(&[b"EVALSHA", &self.delete, b"1", key, &self.owner], Expect::Integer(1)),
        };
        let requests: Vec<Request> = keys.iter().map(request).collect();
        self.connection.exchange(&requests.iter().collect::<Vec<_>>())
    }
}

const CLIENTS: usize = 32;
const LOCKS: usize = 16;
/// How long a client needs them.
const HELD: Duration = Duration::from_millis(1);
/// The pause of a client that tries again, at random.
const PAUSE_AT_MOST_MS: usize = 10;
const WINDOW: Duration = Duration::from_millis(700);
const LEASE: &[u8] = b"3600000";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Place;

    #[test]
    fn by_every_means_clients_get_both_locks() {
        let programs = Programs::find(&Place::default()).expect("a server and the module");
        let mut open = programs.open().expect("a server that runs");
        for means in Means::ALL {
            // A busy machine may let no client have its turn in a tenth of a second.
            let mut outcomes =
                [100, 1000, 10_000].map(Duration::from_millis).into_iter().map(|window| contend(&open, means, window));
            let has_locks = |outcome: Outcome| outcome.rate > 0.0 && outcome.longest > 0.0;
            assert!(outcomes.any(|outcome| has_locks(outcome.expect("locks"))), "{means:?}");
            assert_eq!(open.control.call(&[b"DBSIZE"]).expect("a number"), Reply::Integer(0), "{means:?}");
        }
    }
}
