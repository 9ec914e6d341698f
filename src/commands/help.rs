//! `DLOCK.HELP`
//!
//! Replies with the syntax of every command for clients, each with one sentence.

use super::{Acquire, Check, Info, Log, Macquire, Racquire, Release, Renew, Rlock, Sacquire, Session, Wlock};
use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use crate::ffi::spec::{Keys, Spec};

/// Shows the syntax of the commands.
pub struct Help;

const SHOWN: [&Spec; 13] = [
    &Acquire::SPEC,
    &Racquire::SPEC,
    &Rlock::SPEC,
    &Wlock::SPEC,
    &Sacquire::SPEC,
    &Macquire::SPEC,
    &Release::SPEC,
    &Renew::SPEC,
    &Check::SPEC,
    &Info::SPEC,
    &Session::SPEC,
    &Log::SPEC,
    &Help::SPEC,
];

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
        context.reply_array(1 + 2 * SHOWN.len());
        context.reply_status("DLOCK.<command> <arg> ... Commands are:");
        for spec in SHOWN {
            context.reply_status(&spec.syntax());
            context.reply_status(&format!("    {}", spec.summary));
        }
        Ok(())
    }
}
