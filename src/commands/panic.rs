//! `DLOCK.PANIC key`, only in builds for tests: shows that a panic does not end the server.

use crate::error::Error;
use crate::ffi::command::{Arguments, Command, KeyUse, Spec};
use crate::ffi::context::Context;
use crate::reply::Reply;
use crate::waiting::Grants;

/// Panics.
pub struct Panic;

impl Command for Panic {
    const SPEC: Spec = Spec {
        name: "DLOCK.PANIC",
        flags: "readonly",
        key: KeyUse::Read,
        arity: 2,
        summary: "Panics, to show what happens then.",
        complexity: "O(1)",
        arguments: &[],
    };

    #[allow(clippy::panic, reason = "it is what the command is for")]
    fn run(_context: &Context, _arguments: &Arguments, _grants: &mut Grants) -> Result<Reply, Error> {
        panic!("DLOCK.PANIC was sent");
    }
}
