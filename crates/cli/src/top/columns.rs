//! Rows in columns that fit the width of a terminal.

use dlock_client::LockInfo;

use crate::log::{COLUMNS, Row};
use crate::output::{ONCE, cut, mode, shown, time};

/// The columns of a lock, in their order.
const HEADINGS: [&str; 8] = ["NAME", "MODE", "OWNER", "AGE", "TTL", "WAITERS", "WAIT", "PERMITS"];

/// The least widths, so that columns stay where they are while times change.
const LEAST: [usize; 8] = [4, 9, 5, 6, 6, 7, 6, 7];

const NAME: usize = 0;
const MODE: usize = 1;
const OWNER: usize = 2;
const PERMITS: usize = 7;

/// The widths of a name and an owner for which other columns are left out.
const ROOM: [usize; 2] = [24, 20];

/// The narrowest name, owner or client.
const NARROW: usize = 8;

/// Returns the heading and a line for each lock. Owners and names may be cut, the number of waiters never is.
pub fn of_locks<'a>(locks: impl IntoIterator<Item = &'a LockInfo>, width: usize) -> (String, Vec<String>) {
    let rows: Vec<_> = locks.into_iter().map(cells).collect();
    let mut widths = LEAST;
    for (column, width) in widths.iter_mut().enumerate() {
        let wide = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        *width = wide.unwrap_or(0).max(*width);
    }
    let has_once = rows.iter().any(|row| row[MODE] == ONCE);
    fit(&mut widths, width, if has_once { ONCE.len() } else { 0 });
    let line = |row: &[String; 8]| {
        let shown = row.iter().zip(&widths).enumerate().filter(|(_, (_, width))| **width > 0);
        let cells = shown.map(|(column, (cell, width))| {
            let cell = if column == OWNER { cut_owner(cell, *width) } else { cut(cell, *width) };
            format!("{cell:<width$}")
        });
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    (line(&HEADINGS.map(str::to_owned)), rows.iter().map(line).collect())
}

/// Makes the columns fit: leaves out the permits, narrows the mode to the width `mode`, and then cuts owners and names.
fn fit(widths: &mut [usize; 8], most: usize, mode: usize) {
    let room = widths[NAME].min(ROOM[0]) + widths[OWNER].min(ROOM[1]);
    if most.saturating_sub(others(widths)) < room {
        widths[PERMITS] = 0;
    }
    if most.saturating_sub(others(widths)) < room {
        widths[MODE] = mode;
    }
    let space = most.saturating_sub(others(widths));
    widths[OWNER] = widths[OWNER].min(space.saturating_sub(widths[NAME]).max(NARROW).max(space / 3));
    widths[NAME] = widths[NAME].min(space.saturating_sub(widths[OWNER]).max(NARROW));
}

/// Returns the width of everything but the name and the owner.
fn others(widths: &[usize; 8]) -> usize {
    let columns = widths.iter().filter(|width| **width > 0).count();
    widths.iter().sum::<usize>() - widths[NAME] - widths[OWNER] + columns.saturating_sub(1) * GAP.len()
}

fn cells(lock: &LockInfo) -> [String; 8] {
    let first = lock.holds.first();
    let owner = first.map_or("-".to_owned(), |hold| shown(&hold.owner));
    let owner = if lock.holders > 1 { format!("{owner} +{}", lock.holders - 1) } else { owner };
    let age = first.map_or("-".to_owned(), |hold| time(hold.age));
    let wait = lock.queue.first().map_or("-".to_owned(), |waiter| time(waiter.waiting));
    let (mode, permits) = (mode(lock), lock.count.to_string());
    [shown(&lock.name), mode, owner, age, time(lock.ttl), lock.waiters.to_string(), wait, permits]
}

/// Cuts an owner, but not the number of others behind it.
fn cut_owner(owner: &str, most: usize) -> String {
    match owner.rsplit_once(" +") {
        Some((first, others)) if owner.chars().count() > most => {
            let rest = format!(" +{others}");
            format!("{}{rest}", cut(first, most.saturating_sub(rest.chars().count())))
        }
        _ => cut(owner, most),
    }
}

/// Returns the heading and the lines of the log, in columns of fixed width.
pub fn of_log(rows: &[Row], width: usize) -> Vec<String> {
    // The time has no date, and the column of tokens is left out.
    const CLOCK: usize = "07:05:21.123".len();
    const FIXED: [usize; COLUMNS] = [CLOCK, 11, 0, 0, 6, 6, 0, 0];
    let gaps = 6 * GAP.len();
    let space = width.saturating_sub(FIXED.iter().sum::<usize>() + gaps);
    let name = (space * 3 / 10).max(NARROW);
    let widths = [CLOCK, 11, name, name, 6, 6, 0, space.saturating_sub(2 * name).max(NARROW)];
    let line = |row: &Row| {
        let cells = row.iter().zip(widths).filter(|(_, width)| *width > 0);
        let cells = cells.map(|(cell, width)| format!("{:<width$}", cut(cell, width)));
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    let heading = ["TIME (UTC)", "EVENT", "LOCK", "OWNER", "WAITED", "HELD", "", "CLIENT"].map(str::to_owned);
    let clock = |row: &Row| {
        let mut row = row.clone();
        row[0] = row[0].split(' ').next_back().unwrap_or_default().to_owned();
        row
    };
    std::iter::once(line(&heading)).chain(rows.iter().map(|row| line(&clock(row)))).collect()
}

const GAP: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_a_terminal_and_waiters_are_never_cut() {
        for width in [60, 70, 80, 110, 200] {
            for (name, owner) in [(4, 4), (20, 32), (60, 90)] {
                let mut widths = LEAST;
                (widths[NAME], widths[OWNER]) = (name, owner);
                fit(&mut widths, width, ONCE.len());
                let total = others(&widths) + widths[NAME] + widths[OWNER];
                assert!(total <= width, "{width}: {widths:?} need {total}");
                assert_eq!(widths[5], 7, "{width}: {widths:?}");
            }
        }
    }

    #[test]
    fn the_number_of_other_owners_is_kept() {
        assert_eq!(cut_owner("alice-in-the-far-east:17 +2", 12), "alice-in… +2");
        assert_eq!(cut_owner("alice", 12), "alice");
    }
}
