//! The command line, parsed by hand: a handful of options does not earn a dependency.

use std::path::PathBuf;

use crate::error::Error;
use crate::server::Mode;

/// What the user asked for.
#[derive(Debug, PartialEq)]
pub enum Subcommand {
    Instr(Options),
    Waiting(Options),
    Sessions(Options),
    Times(Options),
    Page(Options),
    Help,
}

/// Options that every measuring subcommand understands.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    /// The server to run; `DLOCK_SERVER`, then `redis-server` on the `PATH`, if not given.
    pub server: Option<PathBuf>,
    /// The module to load; `DLOCK_MODULE`, then the release build, if not given.
    pub module: Option<PathBuf>,
    /// Names of contenders or parts; all of them if empty.
    pub only: Vec<String>,
    /// Of `instr`; all of them if empty.
    pub modes: Vec<Mode>,
    /// Of `instr` and `times`: keep the figures instead of comparing with those that are kept.
    pub keep: bool,
    /// Of `times`; its own default if not given.
    pub rounds: Option<usize>,
    /// Of `instr` only.
    pub format: Format,
    /// How long `sessions` looks on; its own default if not given.
    pub seconds: Option<u64>,
}

/// How the result is printed.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub enum Format {
    #[default]
    Table,
    Json,
}

pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Subcommand, Error> {
    let mut args = args.into_iter();
    match args.next().as_deref() {
        Some("instr") => parse_options(args, Subcommand::Instr),
        Some("waiting") => parse_options(args, Subcommand::Waiting),
        Some("sessions") => parse_options(args, Subcommand::Sessions),
        Some("times") => parse_options(args, Subcommand::Times),
        Some("page") => parse_options(args, Subcommand::Page),
        Some("help" | "--help" | "-h") => Ok(Subcommand::Help),
        Some(other) => Err(usage(&format!("unknown subcommand `{other}`"))),
        None => Err(usage("a subcommand is missing")),
    }
}

fn parse_options(
    mut args: impl Iterator<Item = String>,
    subcommand: fn(Options) -> Subcommand,
) -> Result<Subcommand, Error> {
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let (name, attached) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let mut value = || {
            attached
                .clone()
                .or_else(|| args.next())
                .filter(|value| !value.is_empty())
                .ok_or_else(|| usage(&format!("`{name}` needs a value")))
        };
        match name {
            "--server" => options.server = Some(value()?.into()),
            "--module" => options.module = Some(value()?.into()),
            "--only" => options.only.push(value()?),
            "--mode" => options.modes.push(mode(&value()?)?),
            "--keep" if attached.is_none() => options.keep = true,
            "--json" if attached.is_none() => options.format = Format::Json,
            "--seconds" => options.seconds = Some(seconds(&value()?)?),
            "--rounds" => {
                let rounds = value()?.parse().ok().filter(|rounds| *rounds > 0);
                options.rounds = Some(rounds.ok_or_else(|| usage("`--rounds` needs a number, 1 or more"))?);
            }
            "--help" | "-h" => return Ok(Subcommand::Help),
            _ => return Err(usage(&format!("unknown option `{arg}`"))),
        }
    }
    Ok(subcommand(options))
}

fn mode(text: &str) -> Result<Mode, Error> {
    Mode::ALL
        .into_iter()
        .find(|mode| mode.name() == text)
        .ok_or_else(|| usage(&format!("no mode `{text}`; there are: {}", Mode::ALL.map(Mode::name).join(", "))))
}

fn seconds(text: &str) -> Result<u64, Error> {
    text.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(|| usage("`--seconds` needs a number, 1 or more"))
}

fn usage(problem: &str) -> Error {
    Error::Usage(format!("{problem}\n\n{USAGE}"))
}

pub const USAGE: &str = "\
usage: dlock-bench instr|times|page|waiting|sessions [options]

  instr           count the server's instructions for each command (callgrind)
  times           time every contender in one interleaved run
  page            write docs/benchmarks.md and its plots from the figures that are kept
  waiting         time waiting in line, beside BLPOP: hand-off, lease end, CPU and memory with up to 10,000 waiters
  sessions        keep 100,000 session holds alive

Exit 1 if a limit is passed or a target missed by too much.

  --server PATH   server to run        (default: $DLOCK_SERVER, then redis-server on the PATH)
  --module PATH   module to load       (default: $DLOCK_MODULE, then target/release/libdlock.so)
  --only NAME     instr: measure this one and what it is compared with; times, waiting: this part; may be repeated
  --mode MODE     instr: only none, aof or replica; may be repeated
  --keep          instr, times: keep the figures in lab/bench/figures/; instr then does not compare with those
  --rounds N      times: rounds (default: 9; figures of fewer are not kept)
  --json          instr: print JSON instead of a table
  --seconds N     sessions: how long to look on (default: 60)";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Subcommand, Error> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_take_their_value_attached_or_behind() {
        let expected = Options {
            server: Some("s".into()),
            module: Some("m".into()),
            only: vec!["check".into(), "info".into()],
            modes: vec![Mode::Aof],
            keep: true,
            rounds: Some(9),
            format: Format::Json,
            seconds: Some(7),
        };
        let line =
            "instr --server s --module=m --only check --only=info --mode aof --keep --rounds 9 --json --seconds=7";
        assert_eq!(parsed(line).ok(), Some(Subcommand::Instr(expected)));
    }

    #[test]
    fn what_is_not_understood_is_a_usage_error() {
        for line in [
            "",
            "ins",
            "instr --server",
            "instr --only=",
            "instr --mode fast",
            "instr --json=1",
            "instr -x",
            "sessions --seconds 0",
        ] {
            assert!(matches!(parsed(line), Err(Error::Usage(_))), "{line}");
        }
    }
}
