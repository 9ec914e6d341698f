//! Locks for people and for programs.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use dlock_client::{HoldInfo, LockInfo, WaiterInfo};
use serde_json::{Value, json};

/// A lock as JSON. Times are in milliseconds; bytes that are no UTF-8 are replaced.
pub fn lock(lock: &LockInfo) -> Value {
    json!({
        "name": text(&lock.name),
        "mode": lock.mode.as_str(),
        "holders": lock.holders,
        "count": lock.count,
        "token": lock.token,
        "ttl": millis(lock.ttl),
        "waiters": lock.waiters,
        "holds": lock.holds.iter().map(hold).collect::<Vec<_>>(),
        "queue": lock.queue.iter().map(waiter).collect::<Vec<_>>(),
    })
}

fn hold(hold: &HoldInfo) -> Value {
    json!({
        "owner": text(&hold.owner),
        "mode": hold.mode.as_str(),
        "count": hold.count,
        "token": hold.token,
        "age": millis(hold.age),
        "ttl": millis(hold.ttl),
        "session": hold.session,
    })
}

fn waiter(waiter: &WaiterInfo) -> Value {
    json!({
        "owner": text(&waiter.owner),
        "mode": waiter.mode.as_str(),
        "waiting": millis(waiter.waiting),
        "client": waiter.client,
        "permits": waiter.permits,
        "limit": waiter.limit,
        "keys": waiter.keys,
    })
}

/// Prints a line. A reader that has gone (`head`) is no failure.
pub fn print(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Whether to print for people.
pub fn for_people(json: bool) -> bool {
    !json && io::stdout().is_terminal()
}

/// What bytes look like on a terminal: nothing in them is obeyed by it.
pub fn shown(bytes: &[u8]) -> String {
    text(bytes).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `850ms`, `12.3s`, `4m05s`, `3h07m`, `2d04h`.
pub fn time(duration: Duration) -> String {
    let (ms, s) = (duration.as_millis(), duration.as_secs());
    match s {
        0 => format!("{ms}ms"),
        1..60 => format!("{}.{}s", s, ms % 1000 / 100),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86400, s % 86400 / 3600),
    }
}

/// Rows in columns: as wide as they need, two blanks between.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// One lock a line, with a heading.
pub fn table(locks: &[LockInfo]) -> Vec<String> {
    let heading = ["NAME", "MODE", "OWNER", "AGE", "TTL", "WAITERS"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heading).chain(locks.iter().map(row)).collect();
    columns(&rows)
}

fn row(lock: &LockInfo) -> [String; 6] {
    let first = lock.holds.first();
    let owner = first.map(|hold| shown(&hold.owner)).unwrap_or_default();
    let owner = if lock.holders > 1 { format!("{owner} +{}", lock.holders - 1) } else { owner };
    let age = first.map(|hold| time(hold.age)).unwrap_or_default();
    [shown(&lock.name), lock.mode.to_string(), owner, age, time(lock.ttl), lock.waiters.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_exact_as_they_are_long() {
        let shown = [850, 12_340, 245_000, 11_220_000, 187_200_000].map(|ms| time(Duration::from_millis(ms)));
        assert_eq!(shown, ["850ms", "12.3s", "4m05s", "3h07m", "2d04h"]);
    }

    #[test]
    fn names_do_not_move_the_cursor() {
        assert_eq!(shown(b"a\x1b[2J\n\xff"), "a\u{fffd}[2J\u{fffd}\u{fffd}");
    }
}
