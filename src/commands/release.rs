//! `DLOCK.RELEASE key owner [READ | WRITE] [ALL] [TOKEN token]`
//!
//! Replies 1: the owner no longer holds that mode; 0: an entry is given up, it still holds; nil: it did not hold it.

use dlock_core::{Entries, Mode, Owner, Released, Token, UnixMs};

use super::MODE;
use crate::args::{Cursor, is, mode, once, token};
use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key, Name};
use crate::reply::Reply;
use crate::state::state;
use crate::store::{Replication, commit, decide};

/// Gives up one entry, or all.
pub struct Release;

struct Args<'call> {
    key: Name<'call>,
    owner: Owner,
    mode: Option<Mode>,
    entries: Entries,
    token: Option<Token>,
}

impl<'call> Args<'call> {
    fn parse(arguments: &'call Arguments<'call>) -> Result<Args<'call>, Error> {
        let mut cursor = Cursor::new(arguments);
        let (key, owner) = (cursor.key()?, cursor.owner()?);
        let (mut named, mut all, mut with_token) = (None, None, None);
        while let Some(word) = cursor.word() {
            if let Some(mode) = mode(word) {
                once(&mut named, mode)?;
            } else if is(word, "ALL") {
                once(&mut all, Entries::All)?;
            } else if is(word, "TOKEN") {
                once(&mut with_token, token(cursor.value()?)?)?;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(Args { key, owner, mode: named, entries: all.unwrap_or(Entries::One), token: with_token })
    }
}

impl Command for Release {
    const SPEC: Spec = Spec {
        name: "DLOCK.RELEASE",
        flags: "write fast",
        key: KeyUse::Remove,
        arity: -3,
        summary: "Gives up one entry of an owner's hold, or all.",
        complexity: "O(log N) with N the number of holds on the lock",
        arguments: &[Argument::Text("owner"), MODE, Argument::Word("ALL"), Argument::Number("TOKEN", "token")],
    };

    fn run(context: &Context, arguments: &Arguments) -> Result<Reply, Error> {
        let Args { key: name, owner, mode, entries, token } = Args::parse(arguments)?;
        let flags = context.flags();
        // From a link or a file this is an effect: it was decided by the primary's clock, so no hold has lapsed here.
        let now = if flags.is_effect() { UnixMs::ZERO } else { Now::read().millis() };
        if !flags.is_effect() && !flags.is_primary() {
            return Err(Error::ReadOnly);
        }
        let mut key = Key::open(context, &name, Access::Write);
        let Some(lock) = key.lock()? else { return Ok(Reply::Nil) };
        let replication = if lock.has_lapsed(now) { Replication::Effect } else { Replication::Verbatim };
        let (effect, left) = match lock.release(now, &dlock_core::Release { owner: &owner, mode, entries, token }) {
            Released::NotHeld => return Ok(Reply::Nil),
            Released::Ambiguous => return Err(Error::Ambiguous),
            Released::Partly(effect) => (effect, 0),
            Released::Fully(effect) => (effect, 1),
        };
        if flags.is_effect() {
            commit(context, &name, &mut key, effect, Replication::Verbatim)?;
        } else {
            decide(context, &name, &mut key, effect, replication)?;
            state().stats.releases.count();
            context.notify(c"dlock.release", &name);
        }
        Ok(Reply::Integer(left))
    }
}
