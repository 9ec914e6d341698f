//! `DLOCK.INFO key [OWNER owner | FULL [COUNT n]]`
//!
//! Replies with a map, or nil if the lock has neither a live hold nor a waiter.

use dlock_core::args::Info as Args;
use dlock_core::engine::{CUT, OpenKey};
use dlock_core::{Lock, Name};

use crate::clients::identify;
use crate::error::Error;
use crate::ffi::acl::User;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, now};
use crate::ffi::key::{Access, Key};
use crate::state::use_engine;
use dlock_core::reply;
use dlock_core::spec::{INFO, Spec};

/// Shows who holds a lock, and who waits for it.
pub struct Info;

impl Command for Info {
    type Error = Error;
    const SPEC: Spec = INFO;

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let key = arguments.key()?;
        let Args(detail) = Args::parse(arguments.after_key())?;
        let (now, name) = (now(), Name { db: context.db(), key: key.bytes() });
        let open = Key::open(context, &key, Access::Read)?;
        let lock = open.lock().unwrap_or(&Lock::EMPTY);
        let shown = use_engine(|engine| engine.inspect(name, lock, open.expiry(), now, &detail))?;
        drop(open);
        match shown {
            Some(shown) => {
                let may_identify = shown.queue.is_some() && may_list_clients(context);
                reply::inspection(context, &shown, |client| may_identify.then(|| identify(client, CUT)).flatten());
            }
            None => context.reply_nil(),
        }
        Ok(())
    }
}

/// Returns whether the user may see the addresses and names of clients (`CLIENT LIST`). A module's call has no user.
fn may_list_clients(context: &mut Context<'_>) -> bool {
    !context.has_user() || User::of(context).is_some_and(|user| user.may_run([b"CLIENT", b"LIST"]))
}
