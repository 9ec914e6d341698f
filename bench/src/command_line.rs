//! The command line, parsed by hand: four options do not earn a dependency.

use std::path::PathBuf;

use crate::error::Error;

/// What the user asked for.
#[derive(Debug, PartialEq)]
pub enum Subcommand {
    Instr(Options),
    Help,
}

/// Options that every measuring subcommand understands.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    /// The server to run; `DLOCK_SERVER`, then `redis-server` on the `PATH`, if not given.
    pub server: Option<PathBuf>,
    /// The module to load; `DLOCK_MODULE`, then the release build, if not given.
    pub module: Option<PathBuf>,
    /// Names of contenders; all of them if empty.
    pub only: Vec<String>,
    pub format: Format,
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
        Some("instr") => parse_options(args),
        Some("help" | "--help" | "-h") => Ok(Subcommand::Help),
        Some(other) => Err(usage(&format!("unknown subcommand `{other}`"))),
        None => Err(usage("a subcommand is missing")),
    }
}

fn parse_options(mut args: impl Iterator<Item = String>) -> Result<Subcommand, Error> {
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
            "--json" if attached.is_none() => options.format = Format::Json,
            "--help" | "-h" => return Ok(Subcommand::Help),
            _ => return Err(usage(&format!("unknown option `{arg}`"))),
        }
    }
    Ok(Subcommand::Instr(options))
}

fn usage(problem: &str) -> Error {
    Error::Usage(format!("{problem}\n\n{USAGE}"))
}

pub const USAGE: &str = "\
usage: dlock-bench instr [options]

  instr           count the server's instructions for each command (callgrind); exit 1 if a limit is passed

  --server PATH   server to run        (default: $DLOCK_SERVER, then redis-server on the PATH)
  --module PATH   module to load       (default: $DLOCK_MODULE, then target/release/libdlock.so)
  --only NAME     measure this one and what it is compared with; may be repeated
  --json          print JSON instead of a table";

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
            format: Format::Json,
        };
        let line = "instr --server s --module=m --only check --only=info --json";
        assert_eq!(parsed(line).ok(), Some(Subcommand::Instr(expected)));
    }

    #[test]
    fn what_is_not_understood_is_a_usage_error() {
        for line in ["", "ins", "instr --server", "instr --only=", "instr --json=1", "instr -x"] {
            assert!(matches!(parsed(line), Err(Error::Usage(_))), "{line}");
        }
    }
}
