//! `DLOCK.INFO key [OWNER owner | FULL [COUNT n]]`
//!
//! Replies with a map, or nil if there is no live hold.

use std::rc::Rc;

use dlock_core::args::Info as Detail;
use dlock_core::{Hold, UnixMs, Waiting};

use crate::ended::settled;
use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key};
use crate::lines;
use crate::reply::{self, Reply, ShownHold, ShownWaiter};
use crate::sessions::client_of;
use crate::waiter::Waiter;
use crate::waiting::Grants;

/// Shows who holds a lock.
pub struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: "DLOCK.INFO",
        flags: "readonly",
        key: KeyUse::Read,
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

    fn run(context: &Context, arguments: &Arguments, _grants: &mut Grants) -> Result<Reply, Error> {
        let name = arguments.key()?;
        let detail = Detail::parse(arguments.after_key())?;
        let now = Now::read().millis();
        let key = Key::open(context, &name, Access::Read)?;
        let Some(lock) = key.lock().map(|lock| settled(context, &name, lock, now)) else { return Ok(Reply::Nil) };
        let key_end = key.expiry().unwrap_or(UnixMs::MAX);
        let Some(summary) = lock.summary(now).filter(|_| now < key_end) else { return Ok(Reply::Nil) };
        let session = |hold: &Hold| client_of(context.db(), name.bytes(), hold);
        let show = |hold: &Hold| ShownHold::new(hold, now, key_end, session(hold));
        let (holds, queue) = match detail {
            Detail::Summary => (None, None),
            Detail::OfOwner(owner) => (Some(lock.live_holds_of(&owner, now).map(show).collect()), None),
            Detail::Full(count) => (Some(lock.live_holds(now).take(count).map(show).collect()), Some(count)),
        };
        let ttl = summary.deadline.min(key_end).since(now);
        let line = lines::find(context.db(), name.bytes());
        let shown =
            |count| line.as_ref().map_or_else(Vec::new, |line| line.with(|line| shown(line.iter().take(count), now)));
        let queue = queue.map(shown);
        let waiters = line.as_ref().map_or(0, |line| line.with(|line| line.len() as u64));
        Ok(Reply::Info(Box::new(reply::Info { summary, ttl, holds, waiters, queue })))
    }
}

fn shown<'a>(waiting: impl Iterator<Item = &'a Waiting<Rc<Waiter>>>, now: UnixMs) -> Vec<ShownWaiter> {
    waiting.map(|waiting| ShownWaiter::new(waiting, now)).collect()
}
