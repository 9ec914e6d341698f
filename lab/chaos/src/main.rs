//! `dlock-chaos`: locks under faults. Worker processes contend for locks while servers are killed and fail over,
//! clients die, stop and are cut off, writes are paused, memory runs out and clocks jump; then their histories are checked.
//!
//! | file | knows |
//! |---|---|
//! | `run` | the whole run and its report |
//! | `scenario` | how one scenario runs and ends |
//! | `plan` | which faults come when: the seed decides |
//! | `faults` | what is done to servers, and the servers |
//! | `slots`, `traveler` | two nodes of a cluster, and the slot that travels; an owner whose locks travel with it |
//! | `deleted` | locks that another module deletes while a client waits for them |
//! | `workers`, `worker`, `workload` | worker processes; how one asks; what it does with locks |
//! | `attackers` | clients that keep the server busy |
//! | `observer` | which named session has which hold |
//! | `counters` | what the locks protect |
//! | `history` | what workers write down |
//! | `words` | the words of a command |
//! | `check` | what histories must not show |
//! | `lin` | whether the contract explains a history of two locks |
//! | `queue`, `circle` | the order of a queue that nothing disturbs, and deadlocks |

mod attackers;
mod check;
mod circle;
mod control;
mod counters;
mod deleted;
mod failure;
mod faults;
mod history;
mod lin;
mod observer;
mod plan;
mod queue;
mod run;
mod scenario;
mod slots;
mod time;
mod traveler;
mod words;
mod worker;
mod workers;
mod workload;

use std::process::ExitCode;

use clap::Parser;

use failure::Result;
use run::{Options, Verdict};
use worker::Job;

/// Locks under faults: who held what and when is recorded, and checked. The server is $DLOCK_SERVER, the module
/// $DLOCK_MODULE. Ends with 1 after a violation, with 2 if there is no verdict.
#[derive(Parser)]
#[command(name = "dlock-chaos")]
enum Command {
    /// Every scenario, or one, and histories of two locks.
    Run(Options),
    /// Histories of two locks only.
    Histories(Options),
    /// Runs a process that contends for locks.
    #[command(hide = true)]
    Worker(Job),
}

fn main() -> ExitCode {
    match go(Command::parse()) {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Violated) => ExitCode::from(VIOLATED),
        Err(failure) => {
            eprintln!("dlock-chaos: {failure}");
            ExitCode::from(2)
        }
    }
}

/// The exit code if something is wrong with the locks, and not with the run.
const VIOLATED: u8 = 1;

fn go(command: Command) -> Result<Verdict> {
    match command {
        Command::Worker(job) => workload::run(job).map(|()| Verdict::Good),
        Command::Run(options) => run::run(&options),
        Command::Histories(options) => {
            let tally = run::histories(options.seed(), options.seconds * 1000)?;
            println!("{}", run::line_of_histories(&tally));
            tally.violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
            Ok(if tally.violations.is_empty() { Verdict::Good } else { Verdict::Violated })
        }
    }
}
