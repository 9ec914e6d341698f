//! `dlock-bench times`: every contender timed in one interleaved run, on servers of its own.
//!
//! The contenders of a comparison run in turns, so that a busy machine slows all sides alike; a ratio is taken within a
//! round, and of the rounds the median, the least and the most are given.

pub mod attacks;
mod contended;
pub mod freedom;
pub mod kept;
mod machine;
mod memory;
mod pairs;
mod readers;
pub mod several;
pub mod stalls;
mod team;

use crate::command_line::{Times, selected};
use crate::error::Error;
use crate::figures::Sample;
use crate::ledger::{self, Figure, Ledger};
use crate::page::tables;
use crate::server::Programs;
use crate::targets::{self, ROWS};
use crate::waiting;

pub use contended::{WAITERS, Way};
pub use pairs::PIPELINES;
pub use team::Keys;

pub fn run(options: &Times) -> Result<(), Error> {
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let parts = selected(&PARTS, |part| part.name, &options.only)?;
    waiting::check_open_files()?;
    let programs = Programs::find(&options.place)?;
    let mut ledger = Ledger::default();
    machine::describe(&programs, rounds, &mut ledger)?;
    println!("{}, {}, {rounds} rounds", ledger.fact("server"), ledger.fact("machine"));
    for part in parts {
        eprintln!("timing {}", part.name);
        (part.measure)(&programs, rounds, &mut ledger)?;
        println!("\n{}\n", part.title);
        print!("{}", (part.table)(&ledger));
    }
    println!("\nTargets\n\n{}", targets::text(&targets::judge(&ROWS, &ledger)));
    if options.keep && rounds < ROUNDS {
        println!("Not kept: that takes {ROUNDS} rounds.");
    } else if options.keep {
        let path = ledger::path("times", ledger.fact("server"));
        ledger.keep(&path)?;
        println!("kept in {}", path.display());
    }
    Ok(())
}

struct Part {
    name: &'static str,
    title: &'static str,
    measure: fn(&Programs, usize, &mut Ledger) -> Result<(), Error>,
    table: fn(&Ledger) -> String,
}

const PARTS: [Part; 10] = [
    Part {
        name: "pairs",
        title: "Pairs a second, as a ratio to SET NX PX + script: median (least to most of the rounds)",
        measure: pairs::measure,
        table: tables::pairs,
    },
    Part {
        name: "readers",
        title: "Cost beside other readers, as a ratio to the same beside one",
        measure: readers::measure,
        table: tables::readers,
    },
    Part { name: "contended", title: "One lock that all want", measure: contended::measure, table: tables::contended },
    Part {
        name: "several",
        title: "32 clients that each need 2 of 16 locks",
        measure: several::measure,
        table: tables::contention,
    },
    Part { name: "stalls", title: "Longest stall of a PING, ms", measure: stalls::measure, table: tables::stalls },
    Part {
        name: "attacks",
        title: "Session locks that others hold through an attack, and the longest PING, ms",
        measure: attacks::measure,
        table: tables::attacks,
    },
    Part {
        name: "kept",
        title: "10,000 locks of one client that are kept alive, a second",
        measure: kept::measure,
        table: tables::kept,
    },
    Part {
        name: "freedom",
        title: "Time to freedom: from the end of the holder to the next grant",
        measure: freedom::measure,
        table: tables::freedom,
    },
    Part { name: "cpu", title: "Server CPU a hand-off", measure: hand_off_cpu, table: tables::hand_off_cpu },
    Part { name: "memory", title: "Memory, bytes each", measure: memory::measure, table: tables::memory },
];

/// Of the longest line to the shortest.
fn hand_off_cpu(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    let ratios = waiting::cpu_by_length(programs, rounds)?;
    ledger.note("hand-off-cpu-ratio/10000".into(), Figure::of_rounds(&ratios));
    Ok(())
}

/// The figures of one contender over the rounds, and their ratios to another's in the same round.
fn note_rounds(ledger: &mut Ledger, [sort, ratio_sort]: [&str; 2], name: &str, own: &[f64], others: &[f64]) {
    let mut note = |sort: &str, values: Vec<f64>| {
        // A round in which nothing was handed over has no median.
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        if !values.is_empty() {
            ledger.note(format!("{sort}/{name}"), Figure::of_rounds(&Sample::new(values)));
        }
    };
    note(sort, own.to_vec());
    note(ratio_sort, own.iter().zip(others).map(|(own, other)| own / other).collect());
}

const ROUNDS: usize = 9;
