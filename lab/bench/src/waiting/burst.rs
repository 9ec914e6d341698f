//! Many locks with a waiter each, all of whose leases end within one second, and a `PING` loop beside.

use std::thread;
use std::time::Duration;

use super::Open;
use super::lease_end::unix_time;
use super::ring::Resource;
use crate::connection::Connection;
use crate::error::Error;
use crate::figures::{Sample, Sheet};
use crate::load::PIPELINE;
use crate::owners;
use crate::pings;
use crate::resp::{Expect, Request};
use crate::server::Programs;

pub fn measure(programs: &Programs, sheet: &mut Sheet) -> Result<(), Error> {
    let mut open = programs.open()?;
    let mut crowd: Vec<Waiter> =
        open.crowd(LOCKS)?.into_iter().enumerate().map(|(number, c)| Waiter::new(number, c)).collect();
    let (_, idle) = pings::beside(&open.server, REST, || {
        thread::sleep(Duration::from_secs(3));
        Ok(())
    })?;
    sheet.note("PING, nothing else going on", &pings::summary(&idle));
    let mut worst = Vec::new();
    for _ in 0..ROUNDS {
        let first_end = enter_queue(&mut crowd, &mut open)?;
        let held_up = open.control.seconds_held_up()?;
        let (late, times) = pings::beside(&open.server, REST, || look_on(&mut crowd, first_end))?;
        sheet.note("PING beside the lease ends", &pings::summary(&times));
        sheet.note(
            "late, as read by one thread",
            &format!("median {:.3} ms, worst {:.3} ms", late.median(), late.most()),
        );
        let held_up = open.control.seconds_held_up()? - held_up;
        sheet.note("others had the processor while the server was ready", &format!("{:.1} ms", held_up * 1e3));
        worst.push(times.per_mille(999));
        for waiter in &mut crowd {
            waiter.connection.exchange(&[&waiter.release])?;
        }
    }
    sheet.judge(&format!("PING, p99.9 (median of {ROUNDS} rounds)"), Sample::new(worst).median(), AT_MOST, " ms");
    Ok(())
}

struct Waiter {
    number: usize,
    connection: Connection,
    wait: Request,
    release: Request,
}

impl Waiter {
    fn new(number: usize, connection: Connection) -> Self {
        let (key, owner) = (owners::key(number), owners::owner(number));
        Self { number, connection, wait: Resource::Lock.wait(&key, &owner), release: Resource::Lock.give(&key, &owner) }
    }

    /// Returns when the lease ends that it waits for.
    fn deadline(&self, first_end: Duration) -> Duration {
        let share = u32::try_from(self.number).unwrap_or(0);
        let spread = Duration::from_secs(1) * share / u32::try_from(LOCKS).unwrap_or(1);
        first_end + Duration::from_millis(u64::try_from(spread.as_millis()).unwrap_or(0))
    }
}

/// Takes the locks and has a client wait for each. Returns when the first lease ends (unix time).
fn enter_queue(crowd: &mut [Waiter], open: &mut Open) -> Result<Duration, Error> {
    let now = u64::try_from(unix_time()?.as_millis()).unwrap_or(u64::MAX);
    let first_end = Duration::from_millis(now) + LINING_UP;
    let takes: Vec<Request> = crowd
        .iter()
        .map(|waiter| {
            let deadline = waiter.deadline(first_end).as_millis().to_string();
            let key = owners::key(waiter.number);
            Request::new(&[b"DLOCK.ACQUIRE", &key, b"holder", b"PXAT", deadline.as_bytes()], Expect::Positive)
        })
        .collect();
    for batch in takes.chunks(PIPELINE) {
        open.control.exchange(&batch.iter().collect::<Vec<_>>())?;
    }
    for waiter in crowd {
        waiter.connection.send(&waiter.wait.bytes)?;
    }
    open.control.settle()?;
    if unix_time()? + Duration::from_secs(1) > first_end {
        return Err(Error::Server("this machine is too slow: the leases end before all wait".into()));
    }
    Ok(first_end)
}

/// Sleeps until shortly before the leases end and reads all grants. Returns how late they were, in milliseconds.
fn look_on(crowd: &mut [Waiter], first_end: Duration) -> Result<Sample, Error> {
    thread::sleep(first_end.saturating_sub(unix_time()?).saturating_sub(Duration::from_millis(100)));
    let mut late = Vec::with_capacity(crowd.len());
    for waiter in crowd {
        waiter.connection.receive_for(&waiter.wait)?;
        late.push(unix_time()?.saturating_sub(waiter.deadline(first_end)).as_secs_f64() * 1e3);
    }
    Ok(Sample::new(late))
}

const LOCKS: usize = 10_000;
const ROUNDS: usize = 3;
/// From the first lock taken to the first lease end.
const LINING_UP: Duration = Duration::from_secs(6);
/// The pause of the `PING` loop between a reply and the next request.
const REST: Duration = Duration::from_micros(100);
const AT_MOST: f64 = 10.0;
