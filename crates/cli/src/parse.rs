//! Parses the command line: which options the help of each subcommand shows, and hints for an invalid command line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

use crate::args::Cli;
use crate::servers::QUORUM;
use crate::{exit, help, output, run};

/// Returns the definition of the command line. Options of a quorum are shown by the subcommands that may use one.
pub fn command() -> clap::Command {
    let command = Cli::command().help_template(help::EXAMPLES_FIRST);
    let shared: Vec<_> = command.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let shown = |arg: &clap::Arg| {
        let is_hidden = arg.get_help_heading() != Some(QUORUM) && arg.is_hide_set();
        arg.clone().hide(is_hidden)
    };
    command.mut_subcommands(|subcommand| {
        let subcommand = subcommand.help_template(help::EXAMPLES_FIRST);
        match subcommand.get_name() {
            "run" | "agent" => subcommand.args(shared.iter().map(shown)),
            _ => subcommand,
        }
    })
}

/// Parses the command line. Returns the exit code if it asks for help or the version, or is invalid.
pub fn parse() -> Result<Cli, u8> {
    let parsed = command().try_get_matches();
    let error = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let error = with_usage(without_wrong_tip(error));
    let written = error.print().and_then(|()| std::io::Write::flush(&mut std::io::stdout()));
    if !asked {
        let hint = run::options::flock_hint(std::env::args_os()).or_else(|| name_hint(&error));
        if let Some(hint) = hint {
            output::say(&format!("\n{hint}"));
        }
        return Err(exit::USAGE);
    }
    output::check(written);
    Err(output::finish(0))
}

/// Removes the tip `dlock run -- -x`, which `clap` gives for an option that does not exist: it would run a command
/// under a lock of this name.
fn without_wrong_tip(mut error: clap::Error) -> clap::Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    if usage.contains("dlock run")
        && let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested)
    {
        tips.retain(|tip| !tip.to_string().contains("as a value"));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

/// Shows the usage as the help of the subcommand does: `clap` adds options that the environment sets, such as the
/// server.
fn with_usage(mut error: clap::Error) -> clap::Error {
    let mut command = command();
    command.build();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let name = words.iter().filter_map(|word| word.to_str()).find(|word| command.find_subcommand(word).is_some());
    if let Some(usage) = name.and_then(|name| Some(command.find_subcommand_mut(name)?.render_usage()))
        && error.get(ContextKind::Usage).is_some()
    {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// Explains the name of a lock, if it is missing.
fn name_hint(error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_missing = error.kind() == ErrorKind::MissingRequiredArgument && missing.iter().any(|arg| arg == "<NAME>");
    is_missing.then_some(
        "NAME is the lock. Any name will do: use the same one on all machines. A lock need not be created first.",
    )
}
