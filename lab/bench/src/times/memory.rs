//! The memory of a lock, a waiter, a reader and a session.

use std::thread;
use std::time::Duration;

use super::pairs::{LEASE, MILLION, fill};
use crate::connection::Connection;
use crate::error::Error;
use crate::ledger::{Figure, Ledger};
use crate::load::Load;
use crate::mode::Mode;
use crate::owners;
use crate::resp::{Expect, Request};
use crate::server::{Programs, RunsOn};
use crate::waiting::{Open, Resource, Ring};

pub fn measure(programs: &Programs, _rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    let mut note = |name: &str, bytes: f64| ledger.note(format!("memory/{name}"), Figure::once(bytes));
    note(
        "set-del",
        held(programs, RunsOn::PlainServer, |key, owner| {
            Request::new(&[b"SET", key, owner, b"NX", b"PX", LEASE], Expect::Ok)
        })?,
    );
    note(
        "acquire",
        held(programs, RunsOn::Module, |key, owner| {
            Request::new(&[b"DLOCK.ACQUIRE", key, owner, b"PX", LEASE], Expect::Positive)
        })?,
    );
    note("reader", reader(programs)?);
    note("session", session(programs)?);
    for (name, [used, resident]) in waiters(programs)? {
        note(&format!("{name}-used"), used);
        note(&format!("{name}-resident"), resident);
    }
    Ok(())
}

/// Measures the memory of one held lock, as the mean of a million.
fn held(programs: &Programs, runs_on: RunsOn, take: impl Fn(&[u8], &[u8]) -> Request) -> Result<f64, Error> {
    let mut open = programs.open_in(Mode::NoPersistence, runs_on)?;
    let before = used(&mut open.control)?;
    fill(&mut open.control, MILLION, take)?;
    Ok((used(&mut open.control)? - before) / MILLION as f64)
}

/// Measures one more reader of a lock that many hold.
fn reader(programs: &Programs) -> Result<f64, Error> {
    let mut open = programs.open()?;
    let key = owners::key(0);
    let enter = |n| [Request::new(&[b"DLOCK.RLOCK", &key, &owners::owner(n), b"PX", LEASE], Expect::Positive)];
    Load::new([enter(0)]).run(&mut open.control, 1)?;
    let before = used(&mut open.control)?;
    Load::new((1..=READERS).map(enter)).run(&mut open.control, READERS)?;
    Ok((used(&mut open.control)? - before) / READERS as f64)
}

/// Measures how much more memory a lock needs if it is bound to a connection.
fn session(programs: &Programs) -> Result<f64, Error> {
    let mut open = programs.open()?;
    let mut crowd = open.crowd(CONNECTIONS)?;
    let mut take = |open: &mut Open, kind: &str, options: &[&[u8]]| {
        let before = used(&mut open.control)?;
        for (number, connection) in crowd.iter_mut().enumerate() {
            let first = number * HOLDS;
            let takes = (first..first + HOLDS).map(|n| {
                let (key, owner) = (format!("{kind}:{n:06}").into_bytes(), owners::owner(n));
                let args: [&[u8]; 5] = [b"DLOCK.ACQUIRE", &key, &owner, b"PX", LEASE];
                [Request::new(&[&args[..], options].concat(), Expect::Positive)]
            });
            Load::new(takes).run(connection, HOLDS)?;
        }
        Ok::<_, Error>((used(&mut open.control)? - before) / (CONNECTIONS * HOLDS) as f64)
    };
    // Tables grow in steps: the first locks make room, so that the tables grow alike for both kinds.
    take(&mut open, "room", &[])?;
    let unbound = take(&mut open, "held", &[])?;
    for key in (0..CONNECTIONS * HOLDS).map(|n| format!("held:{n:06}")) {
        open.control.call(&[b"DEL", key.as_bytes()])?;
    }
    Ok(take(&mut open, "sess", &[b"SESSION"])? - unbound)
}

/// `used_memory` and resident bytes of a client that waits, without those of its connection.
fn waiters(programs: &Programs) -> Result<Vec<(&'static str, [f64; 2])>, Error> {
    let queues = [("waiter", Resource::Lock), ("blpop", Resource::Element)];
    let mut opens = Vec::new();
    for (name, resource) in queues {
        let open = programs.open()?;
        let crowd = open.crowd(WAITERS + 1)?;
        opens.push((name, resource, open, crowd));
    }
    // The server gives the buffers of idle clients back once in a while.
    thread::sleep(SETTLING);
    let mut rings = Vec::new();
    for (name, resource, mut open, crowd) in opens {
        let before = used_and_resident(&mut open.control)?;
        let ring = Ring::form(crowd, resource, &owners::key(0), 0, &mut open.control)?;
        rings.push((name, open, ring, before));
    }
    thread::sleep(SETTLING);
    let mut costs = Vec::new();
    for (name, open, _ring, before) in &mut rings {
        let [used, resident] = used_and_resident(&mut open.control)?;
        let [used_before, resident_before] = *before;
        costs.push((*name, [used - used_before, resident - resident_before].map(|bytes| bytes / WAITERS as f64)));
    }
    Ok(costs)
}

fn used_and_resident(control: &mut Connection) -> Result<[f64; 2], Error> {
    Ok([used(control)?, control.info_number("memory", "used_memory_rss")?])
}

pub fn used(control: &mut Connection) -> Result<f64, Error> {
    control.settle()?;
    control.info_number("memory", "used_memory")
}

const READERS: usize = 10_000;
const CONNECTIONS: usize = 100;
/// The holds of each connection.
const HOLDS: usize = 300;
const WAITERS: usize = 5_000;
const SETTLING: Duration = Duration::from_secs(10);
