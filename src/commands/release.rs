//! `DLOCK.RELEASE key owner [READ | WRITE] [ALL] [TOKEN token] [REQUEST id]`
//!
//! Replies 1: the owner no longer holds that mode; 0: an entry is given up, it still holds; nil: it did not hold it.

use dlock_core::args::Release as Args;
use dlock_core::{Change, Mode, Released, UnixMs};

use super::MODE;
use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key};
use crate::quick;
use crate::reply::Reply;
use crate::sessions;
use crate::state::state;
use crate::store::{OpenLock, Replication, close};
use crate::waiting::{Grants, serve, served};

/// Gives up one entry, or all.
pub struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: "DLOCK.RELEASE",
        flags: "write fast",
        key: KeyUse::Remove,
        arity: -3,
        summary: "Gives up one entry of an owner's hold, or all.",
        complexity: "O(log N) with N the number of holds on the lock",
        arguments: &[
            Argument::Text("owner"),
            MODE,
            Argument::Word("ALL"),
            Argument::Number("TOKEN", "token"),
            Argument::NamedText("REQUEST", "id"),
        ],
    };

    fn run(context: &Context, arguments: &Arguments, grants: &mut Grants) -> Result<Reply, Error> {
        let name = arguments.key()?;
        let Args { owner, mode, entries, token, request } = Args::parse(arguments.after_key())?;
        let flags = context.flags();
        // From a link or a file this is an effect: it was decided by the primary's clock, so no hold has lapsed here.
        if !flags.is_effect() && !flags.is_primary() {
            return Err(Error::ReadOnly);
        }
        let request = dlock_core::Release { owner: &owner, mode, entries, token, request: request.as_ref() };
        if flags.is_effect() {
            let mut open = OpenLock::open_for_effect(context, &name)?;
            if let Released::Partly(effect) | Released::Fully(effect) = open.lock().release(UnixMs::ZERO, &request) {
                open.apply(effect, Replication::Verbatim);
                open.finish();
            }
            return Ok(Reply::Done);
        }
        let now = Now::read();
        let key = Key::open(context, &name, Access::Write)?;
        if quick::is_quiet() && key.lock().is_some_and(|lock| lock.is_emptied_by(now.millis(), &request)) {
            quick::give_up(context, &name, key);
            return Ok(Reply::Integer(1));
        }
        let mut open = served(OpenLock::of(context, &name, key), now, grants);
        let released = release(&mut open, now.millis(), &request);
        serve(&mut open, now, grants);
        close(&mut open);
        if let Ok(Left::Partly | Left::Fully) = released {
            state().stats.releases.count();
            context.notify(c"dlock.release", &name);
        }
        grants.announce(context, &name);
        Ok(match released? {
            Left::NotHeld => Reply::Nil,
            Left::Replayed | Left::Partly => Reply::Integer(0),
            Left::Fully => Reply::Integer(1),
        })
    }
}

enum Left {
    NotHeld,
    Replayed,
    Partly,
    Fully,
}

fn release(open: &mut OpenLock, now: UnixMs, request: &dlock_core::Release) -> Result<Left, Error> {
    let (effect, left) = match open.lock().release(now, request) {
        Released::NotHeld => return Ok(Left::NotHeld),
        Released::Ambiguous => return Err(Error::Ambiguous),
        Released::Replayed => {
            state().stats.replays.count();
            return Ok(Left::Replayed);
        }
        Released::Partly(effect) => (effect, Left::Partly),
        Released::Fully(effect) => (effect, Left::Fully),
    };
    if let Change::Remove { owner, mode } = &effect.change {
        for gone in [Mode::Exclusive, Mode::Shared].into_iter().filter(|gone| mode.is_none_or(|mode| mode == *gone)) {
            sessions::unbind(open.context, open.name, owner, gone);
        }
    }
    let is_told = open.lock().is_told_by_command(now, &effect, open.waiters());
    let replication = if is_told { Replication::Verbatim } else { Replication::Effect };
    open.apply(effect, replication);
    Ok(left)
}
