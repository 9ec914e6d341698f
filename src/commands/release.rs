//! `DLOCK.RELEASE key owner [READ | WRITE] [ALL | PERMITS k] [TOKEN token] [BREAK] [REQUEST id]`
//!
//! Replies 1 if the owner no longer holds that mode, 0 if it still does, nil if it has no such hold or fewer entries.

use dlock_core::args::Release as Args;
use dlock_core::engine::{Call, Fault, Left, replay_release};
use dlock_core::{ClientId, Name};

use super::may_write;
use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, Flags, now};
use crate::keyspace::ServerKeys;
use crate::outputs::begin;
use crate::state::engine;
use dlock_core::spec::{RELEASE, Spec};

/// Releases one entry of a hold, some, or all.
pub struct Release;

impl Command for Release {
    type Error = Error;
    const SPEC: Spec = RELEASE;

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let own = [arguments.key()?];
        let Args { owner, mode, entries, token, is_break, request } = Args::parse(arguments.after_key())?;
        let flags = context.flags();
        let request = dlock_core::Release { owner: &owner, mode, entries, token, request: request.as_ref() };
        let [key] = &own;
        let name = Name { db: context.db(), key: key.bytes() };
        let client = if is_break { breaker(context, flags) } else { context.sender(flags) };
        let mut keys = ServerKeys::new(context, name.db, &own);
        let is_effect = flags.is_effect();
        if !is_effect {
            may_write(flags)?;
        }
        let mut engine = engine()?;
        let left = if is_effect {
            // The command comes from a link or a file: the primary has decided it by its own clock.
            let replayed = replay_release(&mut keys, name, &request, engine.memory_mut());
            replayed.map(|()| Left::Fully).map_err(Fault::from)
        } else {
            let call = Call { name, now: now(), client: ClientId(client) };
            if is_break {
                engine.break_hold(&mut keys, call, &request)
            } else {
                engine.release(&mut keys, call, &request)
            }
        };
        let rest = begin(context, &own, engine);
        let replied = left.map_err(Error::from).map(|left| match left {
            Left::NotHeld => context.reply_nil(),
            Left::Partly => context.reply_integer(0),
            Left::Fully => context.reply_integer(1),
        });
        rest.finish(context, &Self::SPEC, replied);
        Ok(())
    }
}

/// Returns the client that releases the hold of another; 0 if it is no connection.
#[cold]
#[inline(never)]
fn breaker(context: &Context<'_>, flags: Flags) -> u64 {
    context.connected_client(flags).unwrap_or(0)
}
