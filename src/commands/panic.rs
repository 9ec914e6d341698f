//! `DLOCK.PANIC key [AFTER reply|part|block | IN entry skipped | REFUSE once-in]`, only in debug builds: shows that a
//! panic does not end the server.
//!
//! `IN`: a call of this entry of the module panics, after `skipped` others. `REFUSE` panics nowhere: from then on, the
//! server refuses to open a key for writing once in this many times, at random; 0: never.

use std::cell::Cell;
use std::rc::Rc;

use crate::error::Error;
use crate::ffi::blocking::{Blocked, Ticket, block};
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use crate::ffi::meddler::refuse;
use crate::ffi::planned::panic_in;
use dlock_core::spec::{KeyUse, Keys, Spec};

/// Panics before the reply, after it or a part of it, when the client is blocked, or in a later call of the server.
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
        let words: Vec<&[u8]> = arguments.after_key().collect();
        if let [b"IN", entry, skipped] = words[..] {
            panic_in(entry, String::from_utf8_lossy(skipped).parse().unwrap_or(0));
            context.reply_status("OK");
            return Ok(());
        }
        if let [b"REFUSE", once_in] = words[..] {
            refuse(String::from_utf8_lossy(once_in).parse().unwrap_or(0));
            context.reply_status("OK");
            return Ok(());
        }
        match words.get(1).copied() {
            Some(b"reply") => context.reply_status("OK"),
            Some(b"part") => {
                context.reply_map(2);
                context.reply_integer(1);
                context.reply_array(2);
                context.reply_integer(2);
            }
            // The server ends the wait after a millisecond.
            Some(b"block") => block(context, &arguments.key()?, 1, &Rc::new(Nobody(Cell::new(None)))),
            _ => {}
        }
        panic!("DLOCK.PANIC was sent");
    }
}

/// The ticket of a client that waits for no lock.
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
