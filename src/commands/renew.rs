//! `DLOCK.RENEW key owner [EX s | PX ms | EXAT s | PXAT ms] [READ | WRITE] [SESSION] [TOKEN token | MINTOKEN token]`
//!
//! Replies 1, or nil if the owner has no such hold. Never makes or revives a hold.

use dlock_core::args::{Malformed, Renew as Args};
use dlock_core::{Effect, Renewed};

use super::{LEASE, MODE};
use crate::args::{client_to_bind, limits};
use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key, Name};
use crate::quick;
use crate::reply::Reply;
use crate::sessions;
use crate::state::state;
use crate::store::{OpenLock, Replication, close};
use crate::waiting::{Grants, serve, served};

/// Sets the deadline of an owner's holds.
pub struct Renew;

impl Command for Renew {
    const SPEC: Spec = Spec {
        name: "DLOCK.RENEW",
        flags: "write fast",
        key: KeyUse::Update,
        arity: -3,
        summary: "Sets the deadline of an owner's holds.",
        complexity: "O(log N) with N the number of holds on the lock",
        arguments: &[
            Argument::Text("owner"),
            LEASE,
            MODE,
            Argument::Word("SESSION"),
            Argument::OneOf("fence", &[Argument::Number("TOKEN", "token"), Argument::Number("MINTOKEN", "token")]),
        ],
    };

    fn run(context: &Context, arguments: &Arguments, grants: &mut Grants) -> Result<Reply, Error> {
        let now = Now::read();
        let name = arguments.key()?;
        let Args { owner, lease, mode, token, binds } = Args::parse(arguments.after_key(), limits(now))?;
        let client = client_to_bind(context, binds)?;
        if !context.flags().is_primary() {
            return Err(Error::ReadOnly);
        }
        let request = dlock_core::Renew { owner: &owner, mode, lease, token };
        let key = Key::open(context, &name, Access::Write)?;
        if client.is_none()
            && quick::is_quiet()
            && let Some(hold) = key.lock().and_then(|lock| lock.renewed_only(now.millis(), &request))
        {
            quick::renew(context, &name, key, now, hold);
            return Ok(Reply::Integer(1));
        }
        let mut open = served(OpenLock::of(context, &name, key), now, grants);
        let renewed = open.lock().renew(now.millis(), &request);
        let is_too_short = |effect: &Effect| effect.hold().is_some_and(|hold| !hold.lease.can_be_bound());
        let reply = match renewed {
            Renewed::NotHeld => Ok(Reply::Nil),
            Renewed::Moved(first, second)
                if client.is_some() && (is_too_short(&first) || second.as_ref().is_some_and(is_too_short)) =>
            {
                Err(Malformed::SessionLease.into())
            }
            Renewed::Moved(first, second) => {
                follow(context, &name, &first, client);
                open.apply(first, Replication::Effect);
                if let Some(second) = second {
                    follow(context, &name, &second, client);
                    open.apply(second, Replication::Effect);
                }
                // A deadline moved: the line has a new alarm.
                serve(&mut open, now, grants);
                state().stats.renewals.count();
                Ok(Reply::Integer(1))
            }
        };
        close(&mut open);
        if let Ok(Reply::Integer(_)) = reply {
            context.notify(c"dlock.renew", &name);
        }
        grants.announce(context, &name);
        reply
    }
}

/// Binds the renewed hold to the client that asked for it; the session it has goes by the new deadline.
fn follow(context: &Context, name: &Name, effect: &Effect, client: Option<u64>) {
    if let Some(hold) = effect.hold() {
        match client {
            Some(client) => sessions::bind(context.db(), name.bytes(), hold, client),
            None => sessions::moved(context.db(), name.bytes(), hold),
        }
    }
}
