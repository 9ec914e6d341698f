//! `dlock-bench waiting`: the cost of waiting in the queue, beside waiting for an element of a list, and of sessions.
//!
//! Every part starts servers of its own. Both sides of a comparison are measured in turns, on the same server where
//! that is possible, so that a busy machine slows both alike; a ratio is the median of the ratios of the rounds.

mod burst;
mod cpu;
mod hand_off;
mod join;
mod lease_end;
mod ring;
mod sessions;

use std::fs;

use crate::command_line::{Waiting, selected};
use crate::connection::Connection;
use crate::error::Error;
use crate::figures::{Sample, Sheet};
use crate::mode::Mode;
use crate::resp::Reply;
use crate::server::{Clock, MAX_CLIENTS, Programs, RunsOn, Server};

pub use lease_end::unix_time;
pub use ring::{Resource, Ring};

/// Server CPU of a hand-off with 10,000 waiters as a ratio to one with 10, of each round.
pub fn cpu_by_length(programs: &Programs, rounds: usize) -> Result<Sample, Error> {
    cpu::ratio_by_length(programs, rounds)
}

pub fn run(options: &Waiting) -> Result<(), Error> {
    let parts = selected(&PARTS, |part| part.name, &options.only)?;
    check_open_files()?;
    let programs = Programs::find(&options.place)?;
    let mut sheet = Sheet::default();
    println!("Waiting in line, {}", programs.open()?.server.version()?);
    for part in parts {
        sheet.head(part.title);
        (part.measure)(&programs, &mut sheet)?;
    }
    println!();
    sheet.verdict()
}

struct Part {
    name: &'static str,
    title: &'static str,
    measure: fn(&Programs, &mut Sheet) -> Result<(), Error>,
}

const PARTS: [Part; 6] = [
    Part {
        name: "hand-off",
        title: "Hand-off: release sent to next grant received, beside LPUSH to BLPOP",
        measure: hand_off::measure,
    },
    Part { name: "cpu", title: "Server CPU a hand-off (release, grant, join again)", measure: cpu::measure },
    Part { name: "join", title: "Server CPU of joining the line", measure: join::measure },
    Part { name: "lease-end", title: "Lease end: deadline to next grant received", measure: lease_end::measure },
    Part { name: "burst", title: "10,000 locks with a waiter each end within a second", measure: burst::measure },
    Part {
        name: "sessions",
        title: "100,000 session holds of 1,000 connections, lease 3000 ms",
        measure: sessions::measure,
    },
];

impl Programs {
    /// Returns a fresh server with the module and no limit on waiters, and a client beside the crowd.
    pub fn open(&self) -> Result<Open, Error> {
        let mut open = self.open_in(Mode::NoPersistence, RunsOn::Module)?;
        match open.control.call(&[b"CONFIG", b"SET", b"dlock.max-waiters", b"0"])? {
            Reply::Simple(_) => Ok(open),
            other => Err(Error::Reply(format!("CONFIG SET dlock.max-waiters got {other:?}"))),
        }
    }

    /// Returns a fresh server, and a client.
    pub fn open_in(&self, mode: Mode, runs_on: RunsOn) -> Result<Open, Error> {
        let server = self.start(runs_on, mode, Clock::Usual, Vec::new())?;
        Ok(Open { control: server.connect()?, server })
    }
}

/// A server that was started, and a connection to it beside the crowd.
pub struct Open {
    pub control: Connection,
    pub server: Server,
}

impl Open {
    pub fn crowd(&self, size: usize) -> Result<Vec<Connection>, Error> {
        (0..size).map(|_| self.server.connect()).collect()
    }
}

/// Clients and server each need a file a connection. The server inherits the limit.
pub fn check_open_files() -> Result<(), Error> {
    let limits = fs::read_to_string("/proc/self/limits").map_err(Error::io("reading the limits of this process"))?;
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    let needed = MAX_CLIENTS + 100;
    match limit.and_then(|limit| limit.parse::<usize>().ok()) {
        Some(limit) if limit < needed => Err(Error::Usage(format!(
            "{needed} open files are needed and {limit} allowed: `ulimit -n {needed}` (make bench and make bench-waiting do that)"
        ))),
        Some(_) | None => Ok(()),
    }
}
