//! How late the next in the queue gets a lock whose lease ran out.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::ring::Resource;
use crate::error::Error;
use crate::figures::{Sample, Sheet};
use crate::resp::{Expect, Request};
use crate::server::Programs;

/// Measures how long after the absolute deadline of a lease the waiter is granted the lock. Server and bench read the
/// same clock. After each lease, this thread sleeps as long, which shows how late the machine itself is.
pub fn measure(programs: &Programs, sheet: &mut Sheet) -> Result<(), Error> {
    let mut open = programs.open()?;
    let (mut holder, mut waiter) = (open.server.connect()?, open.server.connect()?);
    let wait = Resource::Lock.wait(KEY, b"waiter");
    let release = Resource::Lock.give(KEY, b"waiter");
    let (mut late, mut sleeps_late) = (Vec::with_capacity(ENDS), Vec::with_capacity(ENDS));
    let held_up = open.control.seconds_held_up()?;
    for number in 0..ENDS {
        let lease = SHORTEST + u64::try_from(number * STEP).unwrap_or(0) % SPREAD;
        let deadline = unix_time()? + Duration::from_millis(lease);
        let deadline = Duration::from_millis(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX));
        let text = deadline.as_millis().to_string();
        holder.exchange(&[&Request::new(
            &[b"DLOCK.ACQUIRE", KEY, b"holder", b"PXAT", text.as_bytes()],
            Expect::Positive,
        )])?;
        waiter.send(&wait.bytes)?;
        open.control.settle()?;
        waiter.receive_for(&wait)?;
        let received = unix_time()?;
        match received.checked_sub(deadline) {
            Some(lateness) => late.push(lateness.as_secs_f64() * 1e3),
            None => return Err(Error::Reply(format!("granted {:?} before the deadline", deadline - received))),
        }
        waiter.exchange(&[&release])?;
        let asleep = Instant::now();
        thread::sleep(Duration::from_millis(lease));
        sleeps_late.push(asleep.elapsed().saturating_sub(Duration::from_millis(lease)).as_secs_f64() * 1e3);
        // The next lease starts at another moment between two ticks of the server's timers.
        thread::sleep(Duration::from_micros(u64::try_from(number * 37).unwrap_or(0) % 1000));
    }
    let held_up = open.control.seconds_held_up()? - held_up;
    sheet.note("others had the processor while the server was ready", &format!("{:.1} ms", held_up * 1e3));
    let (late, sleeps_late) = (Sample::new(late), Sample::new(sleeps_late));
    for (label, times) in [("late", &late), ("late, a sleeping thread", &sleeps_late)] {
        let (median, p99, worst) = (times.median(), times.per_mille(990), times.most());
        sheet.note(label, &format!("median {median:.3} ms, p99 {p99:.3} ms, worst {worst:.3} ms of {ENDS}"));
    }
    sheet.judge("late, p99", late.per_mille(990), AT_MOST, " ms");
    Ok(())
}

/// Returns the unix time with fractions of a millisecond. Deadlines are whole milliseconds.
pub fn unix_time() -> Result<Duration, Error> {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|_| Error::Server("the clock is off".into()))
}

const KEY: &[u8] = b"lock:000000";
/// How many leases are measured.
const ENDS: usize = 400;
/// Leases take from `SHORTEST` to less than `SHORTEST + SPREAD` milliseconds. Each is `STEP` longer than the one
/// before, modulo `SPREAD`.
const SHORTEST: u64 = 10;
const SPREAD: u64 = 30;
const STEP: usize = 7;
/// The promise of the module, in milliseconds.
const AT_MOST: f64 = 5.0;
