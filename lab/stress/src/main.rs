//! `dlock-stress`: a real server with the module, held against a model, or worked for long.
//!
//! | file | knows |
//! |---|---|
//! | `model` | what the contract says of a server: the naive model of the testkit, as clients see it |
//! | `step` | what can happen, how it is drawn, and which words say it |
//! | `round`, `longer` | how a step is played on both |
//! | `judge` | whether what the server shows is what the model has |
//! | `differential` | rounds of steps, each with a seed that repeats it |
//! | `soak` | millions of operations, after which no memory is missing |
//!
//! Anything that the server must never do (end, be silent, reply something that is no reply) is a panic.

#![allow(clippy::expect_used, reason = "a harness that cannot go on has nobody to tell but the one who runs it")]

mod differential;
mod judge;
mod longer;
mod model;
mod round;
mod soak;
mod step;

use std::process::ExitCode;

use clap::Parser;

/// Holds a real server against a model, or works it for long. The server is $DLOCK_SERVER, the module $DLOCK_MODULE.
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
