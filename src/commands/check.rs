//! `DLOCK.CHECK key token`
//!
//! Replies with the milliseconds left of the live hold with that token, or nil.

use dlock_core::UnixMs;
use dlock_core::args::Check as Args;

use crate::ended::settled;
use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key};
use crate::reply::Reply;
use crate::waiting::Grants;

/// Tells whether a fencing token still stands for a hold.
pub struct Check;

impl Command for Check {
    const SPEC: Spec = Spec {
        name: "DLOCK.CHECK",
        flags: "readonly fast",
        key: KeyUse::Read,
        arity: 3,
        summary: "Tells how many milliseconds are left of the hold with a fencing token.",
        complexity: "O(log N) with N the number of holds on the lock",
        arguments: &[Argument::BareNumber("token")],
    };

    fn run(context: &Context, arguments: &Arguments, _grants: &mut Grants) -> Result<Reply, Error> {
        let name = arguments.key()?;
        let Args { token } = Args::parse(arguments.after_key())?;
        let now = Now::read().millis();
        let key = Key::open(context, &name, Access::Read)?;
        let deadline = key.lock().and_then(|lock| settled(context, &name, lock, now).deadline_of(token, now));
        let left = deadline.map_or(0, |deadline| deadline.min(key.expiry().unwrap_or(UnixMs::MAX)).since(now));
        Ok(if left > 0 { Reply::Integer(left) } else { Reply::Nil })
    }
}
