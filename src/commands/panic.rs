//! `DLOCK.PANIC key`, only in debug builds: shows that a panic does not end the server.

use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::Context;
use crate::ffi::spec::{KeyUse, Keys, Spec};

/// Panics.
pub struct Panic;

impl Command for Panic {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.PANIC",
        flags: "readonly",
        categories: "dlock read",
        keys: Keys::First(KeyUse::Read),
        arity: 2,
        summary: "Panics, to show what happens then.",
        complexity: "O(1)",
        arguments: &[],
    };

    #[allow(clippy::panic, reason = "the purpose of the command")]
    fn run(_context: &mut Context<'_>, _arguments: &Arguments<'_>) -> Result<(), Error> {
        panic!("DLOCK.PANIC was sent");
    }
}
