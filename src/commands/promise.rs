//! `DLOCK.PROMISE command [argument …]`, only in debug builds: calls a command as one that may block, as another module does.
//! `DLOCK.THREAD` shows its reply.

use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use crate::ffi::meddler::call_as_one_that_may_block;
use dlock_core::spec::{Keys, Spec};

/// Calls a command that may block.
pub struct Promise;

impl Command for Promise {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.PROMISE",
        // With `write`, a pause would hold it back.
        flags: "",
        categories: "dlock write",
        keys: Keys::None,
        arity: -2,
        summary: "Calls a command as one that may block, as another module does.",
        complexity: "O(1)",
        arguments: &[],
    };

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let words: Vec<Vec<u8>> = arguments.all().map(<[u8]>::to_vec).collect();
        let has_called = call_as_one_that_may_block(context, &words);
        context.reply_status(if has_called { "OK" } else { "NONE" });
        Ok(())
    }
}
