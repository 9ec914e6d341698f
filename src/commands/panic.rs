//! `DLOCK.PANIC key [AFTER reply|part|block]`, only in debug builds: shows that a panic does not end the server.

use std::cell::Cell;
use std::rc::Rc;

use crate::error::Error;
use crate::ffi::blocking::{Blocked, Ticket, block};
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use crate::ffi::spec::{KeyUse, Keys, Spec};

/// Panics: before the reply, after it, after a part of it, or when the client is blocked.
pub struct Panic;

impl Command for Panic {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.PANIC",
        flags: "readonly",
        categories: "dlock read",
        keys: Keys::First(KeyUse::Read),
        arity: -2,
        summary: "Panics, to show what happens then.",
        complexity: "O(1)",
        arguments: &[],
    };

    #[allow(clippy::panic, reason = "the purpose of the command")]
    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        match arguments.after_key().nth(1) {
            Some(b"reply") => context.reply_status("OK"),
            Some(b"part") => {
                context.reply_map(2);
                context.reply_integer(1);
                context.reply_array(2);
                context.reply_integer(2);
            }
            Some(b"block") => block(context, &arguments.key()?, 1, &Rc::new(Nobody(Cell::new(None)))),
            _ => {}
        }
        panic!("DLOCK.PANIC was sent");
    }
}

/// A client that waits for nothing.
struct Nobody(Cell<Option<Blocked>>);

impl Ticket for Nobody {
    fn blocked(&self) -> &Cell<Option<Blocked>> {
        &self.0
    }

    fn answer(&self, context: &mut Context<'_>) {
        context.reply_nil();
    }

    fn gone(&self) {}
}
