//! `DLOCK.APPLY key effect`, internal: the replication effect.
//!
//! Taken from a replication link or a file only. It never looks at this server's clock.

use dlock_core::args::Malformed;
use dlock_core::decode_effect;

use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, log_warning};
use crate::ffi::key::Name;
use crate::reply::Reply;
use crate::store::{OpenLock, Replication};

/// Applies what a primary decided.
pub struct Apply;

impl Command for Apply {
    const SPEC: Spec = Spec {
        name: "DLOCK.APPLY",
        flags: "write fast deny-script",
        key: KeyUse::Update,
        arity: 3,
        summary: "Internal: applies a change that a primary decided on.",
        complexity: "O(log N) with N the number of holds on the lock",
        arguments: &[Argument::Text("effect")],
    };

    fn run(context: &Context, arguments: &Arguments) -> Result<Reply, Error> {
        if !context.flags().is_effect() {
            return Err(Error::NotForClients);
        }
        let name = arguments.key()?;
        let bytes = arguments.after_key().next().ok_or(Malformed::Arity)?;
        apply(context, &name, bytes).inspect_err(|error| {
            let key = name.bytes().escape_ascii();
            log_warning(&format!("dlock: an effect on key '{key}' was not applied: {}", error.text(Self::SPEC.name)));
        })
    }
}

fn apply(context: &Context, name: &Name, bytes: &[u8]) -> Result<Reply, Error> {
    let effect = decode_effect(bytes).map_err(Error::Effect)?;
    let mut open = OpenLock::open(context, name)?;
    open.apply(effect, Replication::Verbatim);
    open.finish();
    Ok(Reply::Done)
}
