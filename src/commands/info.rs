//! `DLOCK.INFO key [OWNER owner | FULL [COUNT n]]`
//!
//! Replies with a map, or nil if the lock has neither a live hold nor a waiter.

use dlock_core::args::Info as Args;
use dlock_core::engine::OpenKey;
use dlock_core::{Lock, Name};

use crate::clients::identify;
use crate::error::Error;
use crate::ffi::acl::User;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, now};
use crate::ffi::key::{Access, Key};
use crate::ffi::spec::{Argument, KeyUse, Keys, Spec};
use crate::reply;
use crate::state::use_engine;

/// Shows who holds a lock, and who waits for it.
pub struct Info;

impl Command for Info {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.INFO",
        flags: "readonly",
        categories: "dlock read slow",
        keys: Keys::First(KeyUse::Read),
        arity: -2,
        summary: "Shows who holds a lock and who waits for it.",
        complexity: "O(log N) with N the number of holds on the lock, and O(M) for M holds shown or lapsed",
        arguments: &[Argument::OneOf(
            "detail",
            &[
                Argument::NamedText("OWNER", "owner"),
                Argument::Group("full", &[Argument::Word("FULL"), Argument::Number("COUNT", "count")]),
            ],
        )],
    };

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
                reply::inspection(context, &shown, |client| may_identify.then(|| identify(client)).flatten());
            }
            None => context.reply_nil(),
        }
        Ok(())
    }
}

/// Addresses and names of clients are shown to those to whom the server shows them. A module's call has no user.
fn may_list_clients(context: &mut Context<'_>) -> bool {
    !context.has_user() || User::of(context).is_some_and(|user| user.may_run([b"CLIENT", b"LIST"]))
}
