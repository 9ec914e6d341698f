//! `DLOCK.CALL command [argument …]`, only in debug builds: calls a command as any module does.

use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use dlock_core::spec::{Keys, Spec};

/// Calls a command, for tests of calls by other modules.
pub struct Call;

impl Command for Call {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.CALL",
        flags: "write",
        categories: "dlock write",
        keys: Keys::None,
        arity: -2,
        summary: "Calls a command, as another module does.",
        complexity: "O(1)",
        arguments: &[],
    };

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        arguments.call(context);
        Ok(())
    }
}
