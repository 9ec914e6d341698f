//! `DLOCK.RENEW key owner [EX s | PX ms | EXAT s | PXAT ms] [READ | WRITE] [SESSION] [TOKEN token | MINTOKEN token]`
//!
//! Replies 1, or nil if the owner has no such hold. Never makes or revives a hold.

use dlock_core::{Change, Effect, LeaseChoice, Mode, Owner, RenewToken, Renewed, TokenClock};

use super::{LEASE, MODE};
use crate::args::{Cursor, is, lease, mode, once, session, token};
use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::Name;
use crate::reply::Reply;
use crate::sessions::{self, is_long_enough};
use crate::state::state;
use crate::store::{OpenLock, Replication, close};
use crate::waiting::{Grants, serve};

/// Sets the deadline of an owner's holds.
pub struct Renew;

struct Args<'call> {
    key: Name<'call>,
    owner: Owner,
    lease: LeaseChoice,
    mode: Option<Mode>,
    token: RenewToken,
    binds: bool,
}

impl<'call> Args<'call> {
    fn parse(arguments: &'call Arguments<'call>, now: Now) -> Result<Args<'call>, Error> {
        let mut cursor = Cursor::new(arguments);
        let (key, owner) = (cursor.key()?, cursor.owner()?);
        let (mut chosen, mut named, mut said, mut session) = (None, None, None, None);
        while let Some(word) = cursor.word() {
            if let Some(mode) = mode(word) {
                once(&mut named, mode)?;
            } else if is(word, "TOKEN") {
                once(&mut said, RenewToken::Is(token(cursor.value()?)?))?;
            } else if is(word, "MINTOKEN") {
                once(&mut said, RenewToken::AtLeast(token(cursor.value()?)?))?;
            } else if is(word, "SESSION") {
                once(&mut session, ())?;
            } else {
                once(&mut chosen, lease(word, &mut cursor, now)?.ok_or(Error::Syntax)?)?;
            }
        }
        let (lease, token) = (chosen.unwrap_or(LeaseChoice::Own), said.unwrap_or(RenewToken::Any));
        match token {
            RenewToken::AtLeast(token) if TokenClock::is_too_far_ahead(token, now.micros()) => Err(Error::TokenAhead),
            _ => Ok(Args { key, owner, lease, mode: named, token, binds: session.is_some() }),
        }
    }
}

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
        let Args { key: name, owner, lease, mode, token, binds } = Args::parse(arguments, now)?;
        let client = if binds { Some(session(context, lease)?) } else { None };
        if !context.flags().is_primary() {
            return Err(Error::ReadOnly);
        }
        let mut open = OpenLock::open(context, &name)?;
        serve(&mut open, now, grants);
        let request = dlock_core::Renew { owner: &owner, mode, lease, token };
        let renewed = open.lock().renew(now.millis(), &request);
        let is_too_short =
            |effect: &Effect| matches!(&effect.change, Change::Put { hold, .. } if !is_long_enough(hold.lease));
        let reply = match renewed {
            Renewed::NotHeld => Ok(Reply::Nil),
            Renewed::Moved(first, second)
                if client.is_some() && std::iter::once(&first).chain(&second).any(is_too_short) =>
            {
                Err(Error::SessionLease)
            }
            Renewed::Moved(first, second) => {
                for effect in std::iter::once(first).chain(second) {
                    follow(context, &name, &effect, client);
                    open.apply(effect, Replication::Effect);
                }
                // A deadline moved: the line has a new alarm.
                serve(&mut open, now, grants);
                state().stats.renewals.count();
                Ok(Reply::Integer(1))
            }
        };
        close(open);
        if let Ok(Reply::Integer(_)) = reply {
            context.notify(c"dlock.renew", &name);
        }
        grants.announce(context, &name);
        reply
    }
}

/// Binds the renewed hold to the client that asked for it; the session it has goes by the new deadline.
fn follow(context: &Context, name: &Name, effect: &Effect, client: Option<u64>) {
    if let Change::Put { hold, .. } = &effect.change {
        match client {
            Some(client) => sessions::bind(context.db(), name.bytes(), hold, client),
            None => sessions::moved(context.db(), name.bytes(), hold),
        }
    }
}
