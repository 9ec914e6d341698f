//! `DLOCK.THREAD [command …]`, only in debug builds: runs a command in a thread that has the server's lock, as a module
//! with threads does. Without a command, replies with the reply of the last one.

use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use crate::ffi::meddler::{last_reply, run_in_thread};
use dlock_core::spec::{Keys, Spec};

/// Runs a command in a thread.
pub struct Thread;

impl Command for Thread {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.THREAD",
        // With `write`, a pause would hold it back.
        flags: "",
        categories: "dlock write",
        keys: Keys::None,
        arity: -1,
        summary: "Runs a command in a thread that has the server's lock, as a module with threads does.",
        complexity: "O(1)",
        arguments: &[],
    };

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let words: Vec<Vec<u8>> = arguments.all().map(<[u8]>::to_vec).collect();
        if words.is_empty() {
            match last_reply() {
                Some(reply) => context.reply_bytes(&reply),
                None => context.reply_nil(),
            }
        } else {
            run_in_thread(words);
            context.reply_status("OK");
        }
        Ok(())
    }
}
