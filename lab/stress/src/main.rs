//! `dlock-stress`: the program that `make fuzz-server`, `make fuzz-serve`, `make soak` and `make memory` run.

use std::process::ExitCode;

use clap::Parser;
use dlock_stress::{differential, soak};

/// Holds a real server against a model, or loads it for long. The server is $DLOCK_SERVER, the module $DLOCK_MODULE.
#[derive(Parser)]
#[command(name = "dlock-stress")]
enum Job {
    /// Random commands over several connections, each reply held against a model.
    Differential(differential::Options),
    /// Mixed commands with waiters and sessions, after which the server's memory is what it was.
    Soak(soak::Options),
}

fn main() -> ExitCode {
    let done = match Job::parse() {
        Job::Differential(options) => differential::run(&options),
        Job::Soak(options) => soak::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
