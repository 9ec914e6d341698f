//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser};

use crate::error::Error;
use crate::mode::Mode;

/// Measures what a lock costs the server, beside its rivals. Ends with 1 if a ratio of `instr` has moved too far from
/// the kept one, if a figure of `waiting` is over its limit, or after an error; with 2 after wrong arguments.
#[derive(Debug, Parser, PartialEq)]
#[command(name = "dlock-bench")]
pub enum Subcommand {
    /// Count the server's instructions for each command (callgrind).
    Instr(Instr),
    /// Time every contender in one interleaved run.
    Times(Times),
    /// Write docs/benchmarks.md and its plots from the figures that are kept.
    Page,
    /// Time waiting in the queue, beside BLPOP: hand-off, lease end and CPU with up to 10,000 waiters. Keep 100,000
    /// session holds alive.
    Waiting(Waiting),
}

#[derive(Args, Debug, Default, PartialEq)]
pub struct Place {
    /// The server to run; $DLOCK_SERVER, then redis-server on the PATH, if not given.
    #[arg(long, value_name = "PATH")]
    pub server: Option<PathBuf>,
    /// The module to load; $DLOCK_MODULE, then target/release/libdlock.so, if not given.
    #[arg(long, value_name = "PATH")]
    pub module: Option<PathBuf>,
}

#[derive(Args, Debug, PartialEq)]
pub struct Instr {
    #[command(flatten)]
    pub place: Place,
    /// Measure this contender and what it is compared with; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Measure in this mode; may be repeated (default: all modes).
    #[arg(long = "mode")]
    pub modes: Vec<Mode>,
    /// Keep the figures in lab/bench/figures/ instead of comparing with those.
    #[arg(long)]
    pub keep: bool,
}

#[derive(Args, Debug, PartialEq)]
pub struct Times {
    #[command(flatten)]
    pub place: Place,
    /// Measure this part; may be repeated.
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
    /// How many rounds (default: 9); the figures of fewer are not kept.
    #[arg(long, value_parser = at_least_one)]
    pub rounds: Option<usize>,
    /// Keep the figures in lab/bench/figures/.
    #[arg(long)]
    pub keep: bool,
}

#[derive(Args, Debug, PartialEq)]
pub struct Waiting {
    #[command(flatten)]
    pub place: Place,
    /// Measure this part; may be repeated.
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "a number, 1 or more".to_owned())
}

/// Returns the parts that `--only` names, or all.
pub fn selected<'a, P>(parts: &'a [P], name: fn(&P) -> &str, only: &[String]) -> Result<Vec<&'a P>, Error> {
    if let Some(unknown) = only.iter().find(|asked| parts.iter().all(|part| name(part) != asked.as_str())) {
        let known: Vec<&str> = parts.iter().map(name).collect();
        return Err(Error::Usage(format!("no part `{unknown}`; there are: {}", known.join(", "))));
    }
    Ok(parts.iter().filter(|part| only.is_empty() || only.iter().any(|asked| asked == name(part))).collect())
}
