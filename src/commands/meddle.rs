//! `DLOCK.MEDDLE key [AT event] [command …]`, only in debug builds: plays another module, whose callback runs a command.

use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use crate::ffi::meddler::meddle_at_an_event;
use dlock_core::spec::{KeyUse, Keys, Spec};

/// Runs a command, or deletes a key, when another key has an event: when it expires, or at the event named.
pub struct Meddle;

impl Command for Meddle {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.MEDDLE",
        flags: "write",
        categories: "dlock write",
        keys: Keys::First(KeyUse::Remove),
        arity: -2,
        summary: "Deletes the key, or runs a command, when another key has an event, as another module's callback does.",
        complexity: "O(1)",
        arguments: &[],
    };

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        meddle_at_an_event(context, arguments);
        context.reply_status("OK");
        Ok(())
    }
}
