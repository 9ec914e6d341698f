//! The times, as tables for the terminal.

use std::fmt::Write;

use super::attacks::ATTACKS;
use super::contended::{WAITERS, Way};
use super::freedom::{self, ENDS, TIES};
use super::kept::{self, KEEPINGS};
use super::pairs::PIPELINES;
use super::several::Means;
use super::stalls::CASES;
use super::team::Keys;
use crate::contenders::{self, Contender};
use crate::instr::grouped;
use crate::ledger::{Figure, Ledger};
use crate::server::Mode;

/// Returns a row a contender, a column a case; modes one below the other.
pub fn pairs(ledger: &Ledger) -> String {
    let mut text = String::new();
    let contenders: Vec<Contender> = contenders::all().into_iter().filter(|contender| contender.is_timed).collect();
    for mode in Mode::ALL {
        let cases: Vec<(usize, Keys)> =
            Keys::ALL.into_iter().flat_map(|keys| PIPELINES.map(|pipeline| (pipeline, keys))).collect();
        let heads = cases.iter().map(|(pipeline, keys)| format!("{} keys, pipeline {pipeline}", keys.name()));
        push_row(&mut text, mode.label(), heads);
        for contender in &contenders {
            let cells = cases.iter().map(|(pipeline, keys)| {
                let name = format!("pairs-ratio/{}/{pipeline}/{}/{}", mode.name(), keys.name(), contender.name);
                ledger.figure(&name).map_or(String::new(), spread)
            });
            push_row(&mut text, contender.label, cells);
        }
        text.push('\n');
    }
    text
}

pub fn readers(ledger: &Ledger) -> String {
    let mut text = String::new();
    push_row(&mut text, "", ["1", "100", "10,000"].map(|others| format!("{others} others")));
    for (name, label) in READER_ROWS {
        let cells = [1, 100, 10_000]
            .map(|others| ledger.figure(&format!("readers-ratio/{name}/{others}")).map_or(String::new(), spread));
        push_row(&mut text, label, cells);
    }
    text
}

pub fn contended(ledger: &Ledger) -> String {
    let mut text = String::new();
    for (sort, label) in HAND_OFF_ROWS {
        push_row(&mut text, label, WAITERS.map(|waiters| format!("{waiters} waiters")));
        for way in Way::ALL {
            let cells = WAITERS.map(|waiters| {
                let figure = ledger.figure(&format!("{sort}/{waiters}/{}", way.name()));
                figure.map_or(String::new(), |figure| {
                    if sort == "hand-off-ratio" { spread(figure) } else { short(figure.median) }
                })
            });
            push_row(&mut text, way.label(), cells);
        }
        text.push('\n');
    }
    text
}

pub fn several(ledger: &Ledger) -> String {
    let mut text = String::new();
    push_row(&mut text, "", SEVERAL_COLUMNS.map(|(_, label)| label.to_owned()));
    for means in Means::ALL {
        let cells = SEVERAL_COLUMNS
            .map(|(sort, _)| ledger.figure(&format!("{sort}/{}", means.name())).map_or(String::new(), spread));
        push_row(&mut text, means.label(), cells);
    }
    text
}

pub fn stalls(ledger: &Ledger) -> String {
    let mut text = String::new();
    for case in &CASES {
        let figure = ledger.figure(&format!("stall/{}", case.name)).map(spread);
        let _ = writeln!(text, "{:<64}{:>24}", case.label, figure.unwrap_or_default());
    }
    text
}

pub fn attacks(ledger: &Ledger) -> String {
    let mut text = String::new();
    for attack in &ATTACKS {
        let figure = |sort: &str| ledger.figure(&format!("{sort}/{}", attack.name)).map(spread).unwrap_or_default();
        let _ = writeln!(text, "{:<64}{:>24}{:>24}", attack.label, figure("attack-held"), figure("attack-ping"));
    }
    text
}

pub fn kept(ledger: &Ledger) -> String {
    let mut text = String::new();
    for keeping in &KEEPINGS {
        let _ = write!(text, "{:<44}", keeping.label);
        for (sort, label) in kept::COLUMNS {
            let figure = ledger.figure(&format!("{sort}/{}", keeping.name)).map(spread).unwrap_or_default();
            let _ = write!(text, "  {label} {figure}");
        }
        text.push('\n');
    }
    text
}

pub fn freedom(ledger: &Ledger) -> String {
    let mut text = String::new();
    push_row(&mut text, "", ENDS.map(|(_, label)| label.to_owned()));
    for tie in &TIES {
        let figure = |end: &str| ledger.figure(&format!("freedom/{}/{end}", tie.name));
        push_row(&mut text, tie.name, ENDS.map(|(end, _)| figure(end).map(freedom::shown).unwrap_or_default()));
    }
    text
}

pub fn hand_off_cpu(ledger: &Ledger) -> String {
    let ratio = ledger.figure("hand-off-cpu-ratio/10000").map_or(String::new(), spread);
    format!("10,000 waiters / 10: {ratio}\n")
}

pub fn memory(ledger: &Ledger) -> String {
    let mut text = String::new();
    for (name, label) in MEMORY_ROWS {
        push_row(&mut text, label, ledger.figure(&format!("memory/{name}")).map(|figure| short(figure.median)));
    }
    text
}

fn push_row(text: &mut String, label: &str, cells: impl IntoIterator<Item = String>) {
    let cells: String = cells.into_iter().map(|cell| format!("{cell:>24}")).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{label:<40}{cells}");
}

/// `1.52 (1.49 to 1.55)`.
pub fn spread(figure: Figure) -> String {
    let decimals = if figure.most >= 100.0 { 0 } else { 2 };
    let Figure { median, least, most } = figure;
    format!("{median:.decimals$} ({least:.decimals$} to {most:.decimals$})")
}

/// As many decimals as it needs.
pub fn short(value: f64) -> String {
    if value >= 1000.0 {
        return grouped(value);
    }
    let decimals = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

pub const READER_ROWS: [(&str, &str); 3] =
    [("rlock", "RLOCK + RELEASE"), ("renew", "RENEW"), ("redisson-read", "Redisson read lock")];

pub const SEVERAL_COLUMNS: [(&str, &str); 4] = [
    ("several-rate", "per second"),
    ("several-rate-ratio/of", "rate / ordered"),
    ("several-longest", "longest wait, ms"),
    ("several-longest-ratio/of", "longest wait / back off"),
];

pub const HAND_OFF_ROWS: [(&str, &str); 7] = [
    ("hand-off-ratio", "median, as a ratio to BLPOP"),
    ("hand-off-p50", "p50, microseconds"),
    ("hand-off-p99", "p99, microseconds"),
    ("hand-off-p99.9", "p99.9, microseconds"),
    ("hand-off-rate", "hand-offs a second"),
    ("hand-off-commands", "client commands a hand-off"),
    ("hand-off-bytes", "client bytes a hand-off"),
];

pub const MEMORY_ROWS: [(&str, &str); 8] = [
    ("set-del", "string key with a UUID, of a million"),
    ("acquire", "held lock with the same owner, of a million"),
    ("reader", "one more reader of a lock"),
    ("session", "what a session adds to a held lock"),
    ("waiter-used", "waiter, used_memory"),
    ("waiter-resident", "waiter, resident"),
    ("blpop-used", "client in BLPOP, used_memory"),
    ("blpop-resident", "client in BLPOP, resident"),
];
