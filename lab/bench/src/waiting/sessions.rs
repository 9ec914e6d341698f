//! 100,000 session holds, kept alive by the server while a `PING` loop and a replica look on.

use std::thread;
use std::time::{Duration, Instant};

use super::Open;
use crate::connection::Connection;
use crate::error::Error;
use crate::figures::{Sample, Sheet};
use crate::follower::Follower;
use crate::owners;
use crate::pings;
use crate::resp::{Expect, Reply, Request};
use crate::server::{Programs, Server};

pub fn measure(programs: &Programs, sheet: &mut Sheet) -> Result<(), Error> {
    let mut open = programs.open()?;
    let _follower = Follower::attach(&open.server)?;
    let mut crowd = open.crowd(CONNECTIONS)?;
    let Open { server, control } = &mut open;
    let idle = Window::watch(server, control, IDLE)?;
    take(&mut crowd)?;
    let sessions = control.info_number("dlock", "dlock_sessions")?;
    if sessions != holds() {
        return Err(Error::Reply(format!("{sessions} sessions instead of {}", holds())));
    }
    // The renewals need this time to spread over the lease.
    thread::sleep(WARM_UP);
    let window = Window::watch(server, control, LENGTH)?;
    let sessions = control.info_number("dlock", "dlock_sessions")?;
    let lapses = control.info_number("dlock", "dlock_lapses")?;
    let released = release(&mut crowd)?;
    sheet.note("PING, no session", &pings::summary(&idle.pings));
    sheet.note("PING, with the sessions", &pings::summary(&window.pings));
    sheet.note("processor, PING loop and no session", &format!("{:.3} cores", idle.cores));
    sheet.note("processor, with the sessions", &format!("{:.3} cores", window.cores));
    sheet.note("processor that others had while the server was ready", &format!("{:.3} cores", window.held_up));
    sheet.note("replicated", &format!("{:.0} bytes a second", window.replicated));
    sheet.note("at the end", &format!("{sessions} sessions, {lapses} lapses, {released} released by their owners"));
    sheet.judge("holds lost", holds() - released.min(sessions) + lapses, 0.0, "");
    sheet.judge("PING, p99.9", window.pings.per_mille(999), PING_AT_MOST, " ms");
    sheet.judge("processor for the renewals", window.cores - idle.cores, CORES_AT_MOST, " cores");
    Ok(())
}

/// The server's work in an interval.
struct Window {
    pings: Sample,
    /// Processor time of the server, in seconds per second.
    cores: f64,
    /// The time for which the server was ready and had no processor, in seconds per second.
    held_up: f64,
    /// Bytes per second.
    replicated: f64,
}

impl Window {
    fn watch(server: &Server, control: &mut Connection, length: Duration) -> Result<Self, Error> {
        let offset = |control: &mut Connection| control.info_number("replication", "master_repl_offset");
        let (start, cpu, bytes) = (Instant::now(), control.cpu_seconds()?, offset(control)?);
        let held_up = control.seconds_held_up()?;
        let ((), pings) = pings::beside(server, PING_REST, || {
            thread::sleep(length);
            Ok(())
        })?;
        let elapsed = start.elapsed().as_secs_f64();
        Ok(Self {
            pings,
            cores: (control.cpu_seconds()? - cpu) / elapsed,
            held_up: (control.seconds_held_up()? - held_up) / elapsed,
            replicated: (offset(control)? - bytes) / elapsed,
        })
    }
}

fn take(crowd: &mut [Connection]) -> Result<(), Error> {
    let lease = LEASE.to_string();
    for (number, connection) in crowd.iter_mut().enumerate() {
        let owner = owners::owner(number);
        let takes: Vec<Request> = keys(number)
            .map(|key| {
                Request::new(&[b"DLOCK.ACQUIRE", &key, &owner, b"PX", lease.as_bytes(), b"SESSION"], Expect::Positive)
            })
            .collect();
        connection.exchange(&takes.iter().collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Returns how many of the holds their owners could release: the ones that were still there.
fn release(crowd: &mut [Connection]) -> Result<f64, Error> {
    let mut released = 0.0;
    for (number, connection) in crowd.iter_mut().enumerate() {
        let owner = owners::owner(number);
        for key in keys(number) {
            if connection.call(&[b"DLOCK.RELEASE", &key, &owner])? == Reply::Integer(1) {
                released += 1.0;
            }
        }
    }
    Ok(released)
}

fn keys(connection: usize) -> impl Iterator<Item = Vec<u8>> {
    (connection * HOLDS..(connection + 1) * HOLDS).map(owners::key)
}

fn holds() -> f64 {
    (CONNECTIONS * HOLDS) as f64
}

const CONNECTIONS: usize = 1_000;
/// The holds of each connection.
const HOLDS: usize = 100;
/// In milliseconds.
const LEASE: u64 = 3_000;
/// How long the server is watched without sessions.
const IDLE: Duration = Duration::from_secs(10);
/// How long it is watched with them.
const LENGTH: Duration = Duration::from_secs(60);
const WARM_UP: Duration = Duration::from_secs(4);
const PING_REST: Duration = Duration::from_millis(1);
const PING_AT_MOST: f64 = 5.0;
const CORES_AT_MOST: f64 = 0.5;
