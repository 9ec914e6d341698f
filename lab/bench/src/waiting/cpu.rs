//! Server CPU per hand-off, by the length of the queue.
//!
//! In a long queue every hand-off meets clients that the server has not touched for long: their memory, in the server
//! and in the kernel, has left the caches. Two more figures show how much that is: as many clients passing an element of
//! a list, and the same clients in many short queues that take turns.

use std::time::{Duration, Instant};

use super::Open;
use super::ring::{Resource, Ring};
use crate::connection::Connection;
use crate::error::Error;
use crate::figures::{Sample, Sheet};
use crate::owners;
use crate::server::Programs;

pub fn measure(programs: &Programs, sheet: &mut Sheet) -> Result<(), Error> {
    // Some servers take milliseconds for an element when thousands wait, so a list is measured once, on its own server.
    let lists: Vec<f64> = WAITERS.iter().map(|waiters| list(programs, *waiters)).collect::<Result<_, _>>()?;
    let mut open = programs.open()?;
    let mut crowds: Vec<Crowd> = Vec::new();
    for waiters in WAITERS {
        crowds.push(Crowd { waiters, members: open.crowd(waiters + 1)?, locks: Vec::new() });
    }
    let mut short_lines = Vec::new();
    for _ in 0..ROUNDS {
        for crowd in &mut crowds {
            let lock = crowd.in_queues(crowd.waiters, &mut open)?;
            crowd.locks.push(lock);
        }
        if let (Some(short), Some(most)) = (WAITERS.first(), crowds.last_mut()) {
            short_lines.push(most.in_queues(*short, &mut open)?);
        }
    }
    report(&crowds, &short_lines, &lists, sheet);
    Ok(())
}

/// Measures what a hand-off costs with the most waiters, as a ratio to the fewest, once in each round.
pub fn ratio_by_length(programs: &Programs, rounds: usize) -> Result<Sample, Error> {
    let mut open = programs.open()?;
    let mut ratios = Vec::new();
    let crowd =
        |waiters, open: &Open| Ok::<_, Error>(Crowd { waiters, members: open.crowd(waiters + 1)?, locks: vec![] });
    let [fewest, .., most] = WAITERS;
    let (mut few, mut many) = (crowd(fewest, &open)?, crowd(most, &open)?);
    for _ in 0..rounds {
        let cost_of_few = few.in_queues(fewest, &mut open)?;
        ratios.push(many.in_queues(most, &mut open)? / cost_of_few);
    }
    Ok(Sample::new(ratios))
}

/// Measures the microseconds per hand-off of an element of a list.
fn list(programs: &Programs, waiters: usize) -> Result<f64, Error> {
    let mut open = programs.open()?;
    let ring = Ring::form(open.crowd(waiters + 1)?, Resource::Element, &owners::key(0), 0, &mut open.control)?;
    cpu_of_passes(&mut [ring], &mut open)
}

fn report(crowds: &[Crowd], short_lines: &[f64], lists: &[f64], sheet: &mut Sheet) {
    let median = |times: &[f64]| Sample::new(times.iter().copied()).median();
    for (crowd, list) in crowds.iter().zip(lists) {
        sheet.note(
            &format!("{} waiters", crowd.waiters),
            &format!("lock {:.2} us, list {list:.2} us", median(&crowd.locks)),
        );
    }
    let (Some(few), Some(most)) = (crowds.first(), crowds.last()) else { return };
    sheet.note(
        &format!("the {} in lines of {}", most.waiters, few.waiters),
        &format!("lock {:.2} us", median(short_lines)),
    );
    let ratio = |a: &[f64], b: &[f64]| Sample::new(a.iter().zip(b).map(|(a, b)| a / b)).median();
    let pair = format!("{} / {} waiters", most.waiters, few.waiters);
    if let [list_few, .., list_most] = lists {
        sheet.note(&format!("list, {pair}"), &format!("{:.3}", list_most / list_few));
    }
    let lines = ratio(&most.locks, short_lines);
    sheet.note("lock, one long line / short lines of the same clients", &format!("{lines:.3}"));
    sheet.judge(&format!("lock, {pair}"), ratio(&most.locks, &few.locks), AT_MOST, "");
}

/// Connections that wait for locks, and the cost of a hand-off in each round when all wait in one queue.
struct Crowd {
    waiters: usize,
    members: Vec<Connection>,
    locks: Vec<f64>,
}

impl Crowd {
    /// Measures the microseconds per hand-off when they wait in queues with that many waiters, which take turns.
    fn in_queues(&mut self, waiters: usize, open: &mut Open) -> Result<f64, Error> {
        let mut rings = Vec::new();
        while self.members.len() > waiters {
            let number = rings.len();
            let crowd = self.members.split_off(self.members.len() - (waiters + 1));
            let first_owner = number * (waiters + 1);
            rings.push(Ring::form(crowd, Resource::Lock, &owners::key(number), first_owner, &mut open.control)?);
        }
        let microseconds = cpu_of_passes(&mut rings, open)?;
        for ring in rings {
            self.members.extend(ring.dissolve()?);
        }
        Ok(microseconds)
    }
}

/// Measures the microseconds of server CPU per pass.
fn cpu_of_passes(rings: &mut [Ring], open: &mut Open) -> Result<f64, Error> {
    pass(rings, WARM_UP)?;
    let before = open.control.cpu_seconds()?;
    let passes = pass(rings, PASSES)?;
    Ok((open.control.cpu_seconds()? - before) * 1e6 / f64::from(passes))
}

/// Makes that many passes, or as many as there is time for; returns how many. The rings take turns.
fn pass(rings: &mut [Ring], at_most: u32) -> Result<u32, Error> {
    let start = Instant::now();
    let turns = rings.len();
    for (done, turn) in (0..at_most).zip((0..turns).cycle()) {
        if start.elapsed() > TIME {
            return Ok(done);
        }
        if let Some(ring) = rings.get_mut(turn) {
            ring.pass()?;
        }
    }
    Ok(at_most)
}

const WAITERS: [usize; 3] = [10, 1_000, 10_000];
const ROUNDS: usize = 5;
const WARM_UP: u32 = 500;
const PASSES: u32 = 5_000;
/// Longer than the passes take at their usual cost.
const TIME: Duration = Duration::from_secs(10);
const AT_MOST: f64 = 1.2;
