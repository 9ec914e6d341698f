//! Server CPU a hand-off, by the length of the line.
//!
//! In a long line every hand-off meets clients that the server has not touched for long: their memory, in the server
//! and in the kernel, has left the caches. Two more figures show how much that is: the same clients passing an element
//! of a list, and the same clients in many short lines that take turns.

use super::ring::{Baton, Ring};
use super::{House, Open};
use crate::connection::Connection;
use crate::error::Error;
use crate::figures::{Sample, Sheet};
use crate::owners;

pub fn measure(house: &House, sheet: &mut Sheet) -> Result<(), Error> {
    let mut open = house.open()?;
    let mut crowds: Vec<Crowd> = Vec::new();
    for waiters in WAITERS {
        crowds.push(Crowd { waiters, members: open.crowd(waiters + 1)?, locks: Vec::new(), lists: Vec::new() });
    }
    let mut short_lines = Vec::new();
    for _ in 0..ROUNDS {
        for crowd in &mut crowds {
            let lock = crowd.in_lines(Baton::Lock, crowd.waiters, &mut open)?;
            crowd.locks.push(lock);
            let list = crowd.in_lines(Baton::Element, crowd.waiters, &mut open)?;
            crowd.lists.push(list);
        }
        if let (Some(short), Some(most)) = (WAITERS.first(), crowds.last_mut()) {
            short_lines.push(most.in_lines(Baton::Lock, *short, &mut open)?);
        }
    }
    report(&crowds, &short_lines, sheet);
    Ok(())
}

fn report(crowds: &[Crowd], short_lines: &[f64], sheet: &mut Sheet) {
    let median = |times: &[f64]| Sample::new(times.iter().copied()).median();
    for crowd in crowds {
        sheet.note(
            &format!("{} waiters", crowd.waiters),
            &format!("lock {:.2} us, list {:.2} us", median(&crowd.locks), median(&crowd.lists)),
        );
    }
    let (Some(few), Some(most)) = (crowds.first(), crowds.last()) else { return };
    sheet.note(
        &format!("the {} in lines of {}", most.waiters, few.waiters),
        &format!("lock {:.2} us", median(short_lines)),
    );
    let ratio = |a: &[f64], b: &[f64]| Sample::new(a.iter().zip(b).map(|(a, b)| a / b)).median();
    let pair = format!("{} / {} waiters", most.waiters, few.waiters);
    sheet.note(&format!("list, {pair}"), &format!("{:.3}", ratio(&most.lists, &few.lists)));
    sheet.note("lock / list, most waiters", &format!("{:.3}", ratio(&most.locks, &most.lists)));
    sheet.note(
        "lock, one long line / short lines of the same clients",
        &format!("{:.3}", ratio(&most.locks, short_lines)),
    );
    sheet.judge(&format!("lock, {pair}"), ratio(&most.locks, &few.locks), AT_MOST, "");
}

/// Connections that line up for one thing and then for another, and what a hand-off among them cost in each round.
struct Crowd {
    waiters: usize,
    members: Vec<Connection>,
    locks: Vec<f64>,
    lists: Vec<f64>,
}

impl Crowd {
    /// Microseconds a hand-off when they stand in lines with that many waiters, which take turns.
    fn in_lines(&mut self, baton: Baton, waiters: usize, open: &mut Open) -> Result<f64, Error> {
        let mut rings = Vec::new();
        while self.members.len() > waiters {
            let number = rings.len();
            let crowd = self.members.split_off(self.members.len() - (waiters + 1));
            let first_owner = number * (waiters + 1);
            rings.push(Ring::form(crowd, baton, &owners::key(number), first_owner, &mut open.control)?);
        }
        pass(&mut rings, WARM_UP)?;
        let before = open.control.cpu_seconds()?;
        pass(&mut rings, PASSES)?;
        let seconds = open.control.cpu_seconds()? - before;
        for ring in rings {
            self.members.extend(ring.dissolve()?);
        }
        Ok(seconds * 1e6 / f64::from(PASSES))
    }
}

fn pass(rings: &mut [Ring], passes: u32) -> Result<(), Error> {
    let turns = rings.len();
    for turn in (0..turns).cycle().take(usize::try_from(passes).unwrap_or(usize::MAX)) {
        if let Some(ring) = rings.get_mut(turn) {
            ring.pass()?;
        }
    }
    Ok(())
}

const WAITERS: [usize; 3] = [10, 1_000, 10_000];
const ROUNDS: usize = 5;
const WARM_UP: u32 = 500;
const PASSES: u32 = 5_000;
const AT_MOST: f64 = 1.2;
