//! The measurements of time, one after the other.

use super::{attacks, contended, freedom, growth, kept, machine, memory, pairs, readers, several, stalls};
use crate::command_line::Times;
use crate::command_line::selected;
use crate::error::Error;
use crate::ledger::{self, Figure, Ledger};
use crate::page::tables;
use crate::rows::{self, ROWS};
use crate::server::Programs;
use crate::targets;
use crate::waiting;

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
    println!("\nTargets\n\n{}", rows::text(&targets::judge(&ROWS, &ledger)));
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

const PARTS: [Part; 11] = [
    Part {
        name: "pairs",
        title: "Pairs without persistence: per second, and as ratios to SET NX PX + script (medians)",
        measure: pairs::measure,
        table: tables::pairs,
    },
    Part {
        name: "readers",
        title: "Time of an operation beside other readers, us (ratio to the same beside one; medians)",
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
        title: "Keeping 10,000 locks of one client alive, cost per second",
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
    Part {
        name: "growth",
        title: "Server CPU per operation, by the number of locks, waiters or leases",
        measure: growth::measure,
        table: tables::growth,
    },
];

/// Measures a hand-off in the longest queue, as a ratio to one in the shortest.
fn hand_off_cpu(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    let ratios = waiting::cpu_by_length(programs, rounds)?;
    ledger.note("hand-off-cpu-ratio/10000".into(), Figure::of_rounds(&ratios));
    Ok(())
}

const ROUNDS: usize = 9;
