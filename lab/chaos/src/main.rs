//! `dlock-chaos`: locks under faults. Worker processes contend for locks while servers are killed and fail over,
//! clients die and stop, writes are paused, memory runs out and clocks jump; then their histories are checked.
//!
//! ```text
//! dlock-chaos run [--seed N] [--seconds N] [--scene restart|failover|promotion|clock]
//! dlock-chaos histories [--seed N] [--seconds N]
//! ```
//!
//! | file | knows |
//! |---|---|
//! | `run` | the whole run and its report |
//! | `scene` | how one scene goes, and how it comes to rest |
//! | `plan` | which faults come when: the seed decides |
//! | `faults` | what is done to servers, and the servers |
//! | `crew`, `worker`, `errands` | worker processes; how one asks; what it does with locks |
//! | `counters` | what the locks protect |
//! | `history` | what workers write down |
//! | `check` | what histories must not show |
//! | `lin` | whether the core explains a history of one lock |
//! | `line` | the order of a line that nothing disturbs |
//! | `jumping` | a clock that jumps |

mod check;
mod connection;
mod control;
mod counters;
mod crew;
mod errands;
mod failure;
mod faults;
mod history;
mod jumping;
mod lin;
mod line;
mod plan;
mod run;
mod scene;
mod server;
mod time;
mod worker;

use std::process::ExitCode;

use failure::{Doing, Failure, Result};
use plan::Scene;
use run::{Options, Verdict};
use worker::Job;

fn main() -> ExitCode {
    match go() {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Violated) => ExitCode::from(VIOLATED),
        Err(failure) => {
            eprintln!("dlock-chaos: {failure}");
            ExitCode::from(2)
        }
    }
}

/// What the process ends with if something is wrong with the locks, and not with the run.
const VIOLATED: u8 = 1;

fn go() -> Result<Verdict> {
    let mut line = std::env::args_os().skip(1);
    let words = |line: std::iter::Skip<std::env::ArgsOs>| -> Vec<String> {
        line.map(|word| word.to_string_lossy().into_owned()).collect()
    };
    match line.next().unwrap_or_default().to_str() {
        Some("guard") => Err(server::guard(line)),
        Some("worker") => worker::run(Job::parse(&words(line))?).map(|()| Verdict::Good),
        Some("run") => run::run(&options(&words(line))?),
        Some("histories") => {
            let options = options(&words(line))?;
            let tally = run::histories(options.seed, options.seconds * 1000)?;
            println!("{}", run::line_of_histories(&tally));
            tally.violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
            Ok(if tally.violations.is_empty() { Verdict::Good } else { Verdict::Violated })
        }
        _ => Err(Failure(USAGE.into())),
    }
}

fn options(words: &[String]) -> Result<Options> {
    let mut options = Options { seed: run::any_seed(), seconds: 120, scene: None };
    for pair in words.chunks(2) {
        match pair {
            [name, value] if name == "--seed" => options.seed = value.parse().doing(name)?,
            [name, value] if name == "--seconds" => options.seconds = value.parse().doing(name)?,
            [name, value] if name == "--scene" => {
                let scene = Scene::ALL.into_iter().find(|scene| scene.name() == value);
                options.scene = Some(scene.ok_or_else(|| Failure(USAGE.into()))?);
            }
            _ => return Err(Failure(USAGE.into())),
        }
    }
    Ok(options)
}

const USAGE: &str = "usage: dlock-chaos run [--seed N] [--seconds N] [--scene restart|failover|promotion|clock]
       dlock-chaos histories [--seed N] [--seconds N]";
