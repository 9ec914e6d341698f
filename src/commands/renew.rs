//! `DLOCK.RENEW key owner [EX s | PX ms | EXAT s | PXAT ms] [READ | WRITE] [TOKEN token | MINTOKEN token]`
//!
//! Replies 1, or nil if the owner has no such hold. Never makes or revives a hold.

use dlock_core::{LeaseChoice, Mode, Owner, RenewToken, Renewed, TokenClock};

use super::{LEASE, MODE};
use crate::args::{Cursor, is, lease, mode, once, token};
use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key, Name};
use crate::reply::Reply;
use crate::state::state;
use crate::store::{Replication, decide};

/// Sets the deadline of an owner's holds.
pub struct Renew;

struct Args<'call> {
    key: Name<'call>,
    owner: Owner,
    lease: LeaseChoice,
    mode: Option<Mode>,
    token: RenewToken,
}

impl<'call> Args<'call> {
    fn parse(arguments: &'call Arguments<'call>, now: Now) -> Result<Args<'call>, Error> {
        let mut cursor = Cursor::new(arguments);
        let (key, owner) = (cursor.key()?, cursor.owner()?);
        let (mut chosen, mut named, mut said) = (None, None, None);
        while let Some(word) = cursor.word() {
            if let Some(mode) = mode(word) {
                once(&mut named, mode)?;
            } else if is(word, "TOKEN") {
                once(&mut said, RenewToken::Is(token(cursor.value()?)?))?;
            } else if is(word, "MINTOKEN") {
                once(&mut said, RenewToken::AtLeast(token(cursor.value()?)?))?;
            } else {
                once(&mut chosen, lease(word, &mut cursor, now)?.ok_or(Error::Syntax)?)?;
            }
        }
        let (lease, token) = (chosen.unwrap_or(LeaseChoice::Own), said.unwrap_or(RenewToken::Any));
        match token {
            RenewToken::AtLeast(token) if TokenClock::is_too_far_ahead(token, now.micros()) => Err(Error::TokenAhead),
            _ => Ok(Args { key, owner, lease, mode: named, token }),
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
            Argument::OneOf("fence", &[Argument::Number("TOKEN", "token"), Argument::Number("MINTOKEN", "token")]),
        ],
    };

    fn run(context: &Context, arguments: &Arguments) -> Result<Reply, Error> {
        let now = Now::read();
        let Args { key: name, owner, lease, mode, token } = Args::parse(arguments, now)?;
        if !context.flags().is_primary() {
            return Err(Error::ReadOnly);
        }
        let mut key = Key::open(context, &name, Access::Write);
        let Some(lock) = key.lock()? else { return Ok(Reply::Nil) };
        let request = dlock_core::Renew { owner: &owner, mode, lease, token };
        let Renewed::Moved(first, second) = lock.renew(now.millis(), &request) else { return Ok(Reply::Nil) };
        for effect in std::iter::once(first).chain(second) {
            decide(context, &name, &mut key, effect, Replication::Effect)?;
        }
        state().stats.renewals.count();
        context.notify(c"dlock.renew", &name);
        Ok(Reply::Integer(1))
    }
}
