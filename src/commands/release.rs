//! `DLOCK.RELEASE key owner [READ | WRITE] [ALL] [TOKEN token] [REQUEST id]`
//!
//! Replies 1: the owner no longer holds that mode; 0: an entry is given up, it still holds; nil: it did not hold it.

use dlock_core::args::Release as Args;
use dlock_core::{Change, Effect, Lock, Mode, Released, UnixMs, Waiters};

use super::MODE;
use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::Name;
use crate::reply::Reply;
use crate::sessions::unbind;
use crate::state::state;
use crate::store::{OpenLock, Replication, close};
use crate::waiting::{serve, with_waiters};

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

    fn run(context: &Context, arguments: &Arguments) -> Result<Reply, Error> {
        let name = arguments.key()?;
        let Args { owner, mode, entries, token, request } = Args::parse(arguments.after_key())?;
        let flags = context.flags();
        // From a link or a file this is an effect: it was decided by the primary's clock, so no hold has lapsed here.
        if !flags.is_effect() && !flags.is_primary() {
            return Err(Error::ReadOnly);
        }
        let mut open = OpenLock::open(context, &name)?;
        let request = dlock_core::Release { owner: &owner, mode, entries, token, request: request.as_ref() };
        if flags.is_effect() {
            if let Released::Partly(effect) | Released::Fully(effect) = open.lock().release(UnixMs::ZERO, &request) {
                open.apply(effect, Replication::Verbatim);
                open.finish();
            }
            return Ok(Reply::Done);
        }
        let now = Now::read();
        let grants = serve(context, &name, &mut open, now);
        let released = release(context, &name, &mut open, now.millis(), &request);
        let grants = grants.and(serve(context, &name, &mut open, now));
        close(context, &name, open);
        if let Ok(Left::Partly | Left::Fully) = released {
            state().stats.releases.count();
            context.notify(c"dlock.release", &name);
        }
        grants.tell(context, &name);
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

/// Whether the command as it came says the same to a replica: that drops nothing that has lapsed, and knows of nobody
/// who waits, which matters to the key if a hold is left.
fn says_the_same(lock: &Lock, now: UnixMs, effect: &Effect) -> bool {
    let left = match effect.change {
        Change::Remove { mode: Some(_), .. } => lock.stored().saturating_sub(1),
        Change::Remove { mode: None, .. } => lock.stored().saturating_sub(2),
        Change::Put { .. } | Change::Sweep => lock.stored(),
    };
    !lock.has_lapsed(now) && (effect.waiters == Waiters::None || left == 0)
}

fn release(
    context: &Context,
    name: &Name,
    open: &mut OpenLock,
    now: UnixMs,
    request: &dlock_core::Release,
) -> Result<Left, Error> {
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
            unbind(context, name, owner, gone);
        }
    }
    let effect = with_waiters(context, name, effect);
    let replication =
        if says_the_same(open.lock(), now, &effect) { Replication::Verbatim } else { Replication::Effect };
    open.apply(effect, replication);
    Ok(left)
}
