//! `dlock-bench`: what a lock costs the server, measured beside its rivals.
//!
//! | to change | look in |
//! |---|---|
//! | what `instr` measures | `contenders/`, one file a set |
//! | what `times` measures | `times/`, one file a part |
//! | tables and plots of the page of the docs | `page/` |
//! | what `waiting` measures | `waiting/`, one file a part |
//! | how instructions are counted | `callgrind` |
//! | how a server is started and stopped | `server` |
//! | what dlock has promised to cost | `targets` |
//! | what `instr` prints, what it keeps | `instr/table`, `ledger` |
//! | how times are judged and printed | `figures` |
//!
//! A subcommand is a module with a `run` that takes its parsed options ([`command_line`]).

mod callgrind;
mod command_line;
mod connection;
mod contenders;
mod error;
mod figures;
mod follower;
mod instr;
mod ledger;
mod load;
mod mode;
mod order;
mod owners;
mod page;
mod pings;
mod processors;
mod resp;
mod rows;
mod server;
mod shown;
mod targets;
mod times;
mod waiting;

use std::process::ExitCode;

use clap::Parser;

use command_line::Subcommand;
use error::Error;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dlock-bench: {error}");
            match error {
                Error::Usage(_) => ExitCode::from(2),
                Error::Io { .. }
                | Error::Server(_)
                | Error::Reply(_)
                | Error::Lacking(_)
                | Error::Callgrind(_)
                | Error::Contender { .. }
                | Error::OverLimit(_) => ExitCode::FAILURE,
            }
        }
    }
}

fn run() -> Result<(), Error> {
    match Subcommand::parse() {
        Subcommand::Instr(options) => instr::run(&options),
        Subcommand::Waiting(options) => waiting::run(&options),
        Subcommand::Times(options) => times::parts::run(&options),
        Subcommand::Page => page::run(),
    }
}
