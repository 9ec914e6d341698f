//! `DLOCK.APPLY key effect`, internal: the replication effect.
//!
//! The command is accepted only from a replication link or a file, and never looks at this server's clock.

use dlock_core::args::Malformed;
use dlock_core::engine::replay;
use dlock_core::{Name, decode_effect};

use crate::error::Error;
use crate::ffi::command::{Arguments, Command, ErrorReply};
use crate::ffi::context::{Context, log_warning};
use crate::keyspace::ServerKeys;
use crate::state::use_engine;
use dlock_core::spec::{APPLY, Spec};

/// Applies what a primary decided.
pub struct Apply;

impl Command for Apply {
    type Error = Error;
    const SPEC: Spec = APPLY;

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let applied = apply(context, arguments);
        // Nobody reads the reply to an effect, so the log has the error.
        if let (Err(error), Ok(key)) = (&applied, arguments.key())
            && *error != Error::NotForClients
        {
            let key = key.bytes().escape_ascii();
            log_warning(&format!("dlock: cannot apply an effect on key '{key}': {}", error.text(Self::SPEC.name)));
        }
        applied?;
        context.reply_integer(1);
        Ok(())
    }
}

fn apply(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
    if !context.flags().is_effect() {
        return Err(Error::NotForClients);
    }
    let own = [arguments.key()?];
    let bytes = arguments.after_key().next().ok_or(Malformed::Arity)?;
    let effect = decode_effect(bytes).map_err(Error::Effect)?;
    let [key] = &own;
    let name = Name { db: context.db(), key: key.bytes() };
    let mut keys = ServerKeys::new(context, name.db, &own);
    Ok(use_engine(|engine| replay(&mut keys, name, effect, engine.memory_mut()))??)
}
