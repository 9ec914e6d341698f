//! `DLOCK.HELP`
//!
//! Replies with the syntax of every command for clients, each with one sentence.

use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use dlock_core::spec::{HELP, Spec, help};

/// Shows the syntax of the commands.
pub struct Help;

impl Command for Help {
    type Error = Error;
    const SPEC: Spec = HELP;

    fn run(context: &mut Context<'_>, _: &Arguments<'_>) -> Result<(), Error> {
        let lines = help();
        context.reply_array(lines.len());
        lines.for_each(|line| context.reply_status(&line));
        Ok(())
    }
}
