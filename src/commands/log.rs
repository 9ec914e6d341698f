//! `DLOCK.LOG GET [count] | LEN | RESET | HELP`
//!
//! Replies with the newest entries, how many there are, `OK`, or lines of help.

use dlock_core::args::{Log as Args, Malformed, Subcommand};
use dlock_core::engine::LogEntry;

use crate::error::Error;
use crate::ffi::acl::{User, has_categories};
use crate::ffi::command::{Arguments, Command, ErrorReply};
use crate::ffi::context::Context;
use crate::state::use_engine;
use dlock_core::reply;
use dlock_core::spec::{LOG, Spec};

/// Shows long waits and holds, holds that ended without a release by their owner, and deadlocks.
pub struct Log;

impl Command for Log {
    type Error = Error;
    const SPEC: Spec = LOG;

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        if let Err((error, command)) = run(context, arguments) {
            context.reply_error(&error.text(&command));
        }
        Ok(())
    }
}

/// Runs a subcommand. An error comes with the command it is about.
fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), (Error, String)> {
    let command = Log::SPEC.name.to_owned();
    let mut words = arguments.all();
    let Some(word) = words.next() else { return Err((Malformed::Arity.into(), command)) };
    let Some(subcommand) = Subcommand::of(word) else {
        return Err((Error::Subcommand(Subcommand::unknown(word, &command)), command));
    };
    check_rights(context, subcommand).map_err(|error| (error, command.clone()))?;
    let command = format!("{command}|{}", subcommand.name());
    let log = Args::parse(subcommand, words).map_err(|error| (error.into(), command.clone()))?;
    show(context, log).map_err(|error| (error, command))
}

/// Checks that the user may run the subcommand. On a server without ACL categories of modules, the user needs the right
/// to `SLOWLOG`; if an operator has removed that command, to `ACL LOG` or else to `CONFIG GET`. Refuses if the server
/// has none of these.
fn check_rights(context: &mut Context<'_>, subcommand: Subcommand) -> Result<(), Error> {
    if has_categories() || !context.has_user() {
        return Ok(());
    }
    let same = match subcommand {
        Subcommand::Get | Subcommand::Help => b"GET".as_slice(),
        Subcommand::Len => b"LEN".as_slice(),
        Subcommand::Reset => b"RESET".as_slice(),
    };
    let commands: [&[&[u8]]; 3] = [&[b"SLOWLOG", same], &[b"ACL", b"LOG"], &[b"CONFIG", b"GET", b"dlock.*"]];
    let found = User::of(context).and_then(|user| user.may_run_first(&commands));
    match found {
        Some((_, true)) => Ok(()),
        Some(([b"ACL", ..], false)) => Err(Error::NotForUser("ACL LOG")),
        Some(([b"CONFIG", ..], false)) => Err(Error::NotForUser("CONFIG GET")),
        Some((_, false)) | None => Err(Error::NotForUser("SLOWLOG")),
    }
}

fn show(context: &mut Context<'_>, log: Args) -> Result<(), Error> {
    match log {
        Args::Get(count) => {
            let entries: Vec<LogEntry> = use_engine(|engine| engine.log().entries().take(count).cloned().collect())?;
            context.reply_array(entries.len());
            entries.iter().for_each(|entry| reply::log_entry(context, entry));
        }
        Args::Len => context.reply_integer(use_engine(|engine| engine.log().entry_count())? as u64),
        Args::Reset => {
            use_engine(|engine| engine.log_mut().reset())?;
            context.reply_status("OK");
        }
        Args::Help => {
            context.reply_array(Args::HELP.len());
            Args::HELP.iter().for_each(|line| context.reply_status(line));
        }
    }
    Ok(())
}
