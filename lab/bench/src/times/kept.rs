//! The cost of keeping 10,000 locks of one client alive: by a renewal for each, or by one heartbeat for all.

use std::thread;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::contenders::{self};
use crate::error::Error;
use crate::figures::Sample;
use crate::ledger::{Figure, Ledger};
use crate::load::Load;
use crate::mode::Mode;
use crate::owners;
use crate::resp::{Expect, Request};
use crate::server::{Programs, RunsOn};

/// A way to keep locks.
pub struct Keeping {
    /// For figures.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    runs_on: RunsOn,
    /// Acquires the locks. Returns what the client sends in a third of a lease.
    prepare: fn(&mut Connection) -> Result<Vec<Load>, Error>,
}

pub static KEEPINGS: [Keeping; 4] = [
    Keeping {
        name: "redisson",
        label: "Redisson's watchdog, a script for each",
        runs_on: RunsOn::PlainServer,
        prepare: |connection| renewals(connection, "redisson-renew"),
    },
    Keeping {
        name: "renew",
        label: "`DLOCK.RENEW` for each",
        runs_on: RunsOn::Module,
        prepare: |connection| renewals(connection, "renew"),
    },
    Keeping { name: "session", label: "`SESSION`", runs_on: RunsOn::Module, prepare: |c| bound(c, &[b"SESSION"]) },
    Keeping { name: "named", label: "`SESSIONID`, one heartbeat", runs_on: RunsOn::Module, prepare: named },
];

/// The values measured of each, for figures and for people.
pub const COLUMNS: [(&str, &str); 3] =
    [("kept-commands", "commands a second"), ("kept-bytes", "bytes a second"), ("kept-cpu", "ms of CPU a second")];

pub fn measure(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    for keeping in &KEEPINGS {
        eprintln!("  {}", keeping.label);
        let windows = (0..rounds.min(ROUNDS)).map(|_| watch(programs, keeping)).collect::<Result<Vec<_>, _>>()?;
        let mut note = |(sort, _): (&str, &str), value: fn(&Window) -> f64| {
            let values = windows.iter().map(value);
            ledger.note(format!("{sort}/{}", keeping.name), Figure::of_rounds(&Sample::new(values)));
        };
        let [commands, bytes, cpu] = COLUMNS;
        note(commands, |window| window.commands);
        note(bytes, |window| window.bytes);
        note(cpu, |window| window.cpu);
    }
    Ok(())
}

/// Counts per second.
struct Window {
    commands: f64,
    /// In both directions.
    bytes: f64,
    /// Milliseconds of the server's processor.
    cpu: f64,
}

fn watch(programs: &Programs, keeping: &Keeping) -> Result<Window, Error> {
    let mut open = programs.open_in(Mode::NoPersistence, keeping.runs_on)?;
    let mut crowd = open.crowd(1)?;
    let Some(client) = crowd.first_mut() else { return Err(Error::Reply("nobody keeps locks".to_owned())) };
    let loads = (keeping.prepare)(client)?;
    // The server's own renewals need this time to spread over the lease.
    thread::sleep(THIRD);
    let (cpu, received, start) = (open.control.cpu_seconds()?, client.received(), Instant::now());
    let (mut commands, mut sent) = (0, 0);
    for load in &loads {
        let batches = load.batches(1);
        for (number, batch) in (0..).zip(&batches) {
            // Spread over the time, as the timers of a client are.
            let due = start + THIRD * number / u32::try_from(batches.len()).unwrap_or(u32::MAX);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            client.exchange(&batch.requests.iter().collect::<Vec<_>>())?;
            commands += batch.requests.len();
            sent += batch.bytes.len();
        }
    }
    thread::sleep((start + THIRD).saturating_duration_since(Instant::now()));
    let (seconds, received) = (start.elapsed().as_secs_f64(), client.received() - received);
    let cpu = open.control.cpu_seconds()? - cpu;
    Ok(Window {
        commands: commands as f64 / seconds,
        bytes: (sent as f64 + received as f64) / seconds,
        cpu: cpu * 1e3 / seconds,
    })
}

fn renewals(connection: &mut Connection, contender: &str) -> Result<Vec<Load>, Error> {
    let all = contenders::all();
    let found = all.iter().find(|found| found.name == contender);
    let found = found.ok_or_else(|| Error::Reply(format!("there is no contender {contender}")))?;
    Ok(vec![(found.prepare)(connection, 0..LOCKS)?])
}

/// Locks that are bound; the client has nothing more to do.
fn bound(connection: &mut Connection, options: &[&[u8]]) -> Result<Vec<Load>, Error> {
    let take = |number| {
        let (key, owner) = (owners::key(number), owners::owner(number));
        let args: [&[u8]; 5] = [b"DLOCK.ACQUIRE", &key, &owner, b"PX", LEASE];
        [Request::new(&[&args[..], options].concat(), Expect::Positive)]
    };
    Load::new((0..LOCKS).map(take)).run(connection, LOCKS)?;
    Ok(Vec::new())
}

fn named(connection: &mut Connection) -> Result<Vec<Load>, Error> {
    connection.call(&[b"DLOCK.SESSION", SESSION, b"PX", LEASE, b"NX"])?;
    bound(connection, &[b"SESSIONID", SESSION])?;
    let beat = Request::new(&[b"DLOCK.SESSION", SESSION, b"PX", LEASE, b"XX"], Expect::Positive);
    Ok(vec![Load::new([[beat]])])
}

pub const LOCKS: usize = 10_000;
/// Milliseconds: the lease of Redisson's watchdog.
const LEASE: &[u8] = b"30000";
/// The part of a lease after which it is renewed.
const THIRD: Duration = Duration::from_secs(10);
const SESSION: &[u8] = b"6f1c2a9e-7b1d-4c58-9a31-0d4f5b8e2c77";
const ROUNDS: usize = 3;
