//! `dlock-stress`: a real server with the module, held against a model, or worked for long.
//!
//! | file | knows |
//! |---|---|
//! | `model/` | what the contract says of a server: locks, lines, sessions |
//! | `step`, `encode` | what can happen, how it is drawn, and which words say it |
//! | `round` | how a step is played on both |
//! | `judge` | whether what the server shows is what the model has |
//! | `differential` | rounds of steps, each with a seed that repeats it |
//! | `soak` | millions of operations, after which no memory is missing |
//! | `wire`, `server` | connections, the server's process |

mod differential;
mod encode;
mod judge;
mod model;
mod round;
mod server;
mod soak;
mod step;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((command, options)) if command == "differential" => differential::run(options),
        Some((command, options)) if command == "soak" => soak::run(options),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// The value of an option, a number.
fn option(options: &[String], name: &str) -> Result<Option<u64>, String> {
    let Some(at) = options.iter().position(|option| option == name) else { return Ok(None) };
    let value = options.get(at + 1).and_then(|value| value.parse().ok());
    value.map(Some).ok_or_else(|| format!("{name} needs a number\n\n{USAGE}"))
}

const USAGE: &str = "usage: dlock-stress differential [--seconds N] [--seed N] [--rounds N] [--share PERCENT]
       dlock-stress soak [--operations N] [--seed N]

  differential   random commands over several connections, each reply held against a model

  soak           mixed commands with waiters and sessions, after which the server's memory is what it was

  --seconds N      how long (10)
  --seed N         the seed of the first round; the next has the next (by the clock)
  --rounds N       at most so many: 1 repeats a seed
  --share PERCENT  how much of the time to be busy (100)
  --operations N   of soak: how many (10000000)

The server is $DLOCK_SERVER, the module $DLOCK_MODULE.";
