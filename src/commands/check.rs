//! `DLOCK.CHECK key token`
//!
//! Replies with the milliseconds left of the live hold with that token, or nil.

use dlock_core::args::Check as Args;
use dlock_core::engine::OpenKey;
use dlock_core::{Lock, Name};

use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, now};
use crate::ffi::key::{Access, Key};
use crate::state::use_engine;
use dlock_core::spec::{CHECK, Spec};

/// Tells for how long a fencing token is still that of a live hold.
pub struct Check;

impl Command for Check {
    type Error = Error;
    const SPEC: Spec = CHECK;

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let key = arguments.key()?;
        let Args { token } = Args::parse(arguments.after_key())?;
        let (now, name) = (now(), Name { db: context.db(), key: key.bytes() });
        let open = Key::open(context, &key, Access::Read)?;
        let lock = open.lock().unwrap_or(&Lock::EMPTY);
        let left = use_engine(|engine| engine.check(name, lock, open.expiry(), now, token))?;
        // A reply needs the context, which the open key borrows.
        drop(open);
        match left {
            Some(left) => context.reply_integer(left),
            None => context.reply_nil(),
        }
        Ok(())
    }
}
