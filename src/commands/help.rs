//! `DLOCK.HELP`
//!
//! Replies with the syntax of every command for clients, each with one sentence.

use super::COMMANDS;
use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use crate::ffi::spec::{Keys, Spec};

/// Shows the syntax of the commands.
pub struct Help;

impl Command for Help {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.HELP",
        flags: "allow-loading allow-stale fast",
        categories: "dlock fast",
        keys: Keys::None,
        arity: 1,
        summary: "Shows the syntax of every command.",
        complexity: "O(1)",
        arguments: &[],
    };

    fn run(context: &mut Context<'_>, _: &Arguments<'_>) -> Result<(), Error> {
        context.reply_array(1 + 2 * COMMANDS.len());
        context.reply_status("DLOCK.<command> <arg> ... Commands are:");
        for command in COMMANDS {
            context.reply_status(&command.spec.syntax());
            context.reply_status(&format!("    {}", command.spec.summary));
        }
        Ok(())
    }
}
