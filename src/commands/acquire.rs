//! `DLOCK.ACQUIRE | RACQUIRE | RLOCK | WLOCK key owner [EX s | PX ms | EXAT s | PXAT ms]`
//!
//! Replies with the fencing token, or nil if the lock is held. Owner `*` is made up by the server and comes back with
//! the token.

use dlock_core::{Acquired, Entry, LeaseChoice, Mode, Owner, Reentry, Refusal};

use super::LEASE;
use crate::args::{Cursor, lease, once};
use crate::error::Error;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key, Name};
use crate::reply::Reply;
use crate::state::state;
use crate::store::{Replication, decide};

/// Exclusive, not reentrant.
pub struct Acquire;
/// Exclusive, reentrant.
pub struct Racquire;
/// Shared, reentrant.
pub struct Rlock;
/// The write side of [`Rlock`]: the same as [`Racquire`].
pub struct Wlock;

const ARGUMENTS: &[Argument] = &[Argument::Text("owner"), LEASE];

const fn spec(name: &'static str, summary: &'static str) -> Spec {
    Spec {
        name,
        flags: "write deny-oom fast",
        key: KeyUse::Update,
        arity: -3,
        summary,
        complexity: "O(log N) with N the number of holds on the lock",
        arguments: ARGUMENTS,
    }
}

impl Command for Acquire {
    const SPEC: Spec = spec("DLOCK.ACQUIRE", "Takes a lock exclusively; refused if the owner already holds it.");

    fn run(context: &Context, arguments: &Arguments) -> Result<Reply, Error> {
        run(context, arguments, Mode::Exclusive, Reentry::Refuse)
    }
}

impl Command for Racquire {
    const SPEC: Spec = spec("DLOCK.RACQUIRE", "Takes a lock exclusively, or enters it once more.");

    fn run(context: &Context, arguments: &Arguments) -> Result<Reply, Error> {
        run(context, arguments, Mode::Exclusive, Reentry::Count)
    }
}

impl Command for Rlock {
    const SPEC: Spec = spec("DLOCK.RLOCK", "Takes a lock for reading, or enters it once more.");

    fn run(context: &Context, arguments: &Arguments) -> Result<Reply, Error> {
        run(context, arguments, Mode::Shared, Reentry::Count)
    }
}

impl Command for Wlock {
    const SPEC: Spec = spec("DLOCK.WLOCK", "Takes a lock for writing, or enters it once more.");

    fn run(context: &Context, arguments: &Arguments) -> Result<Reply, Error> {
        run(context, arguments, Mode::Exclusive, Reentry::Count)
    }
}

struct Args<'call> {
    key: Name<'call>,
    owner: Owner,
    made_up: bool,
    lease: LeaseChoice,
}

impl<'call> Args<'call> {
    fn parse(arguments: &'call Arguments<'call>, now: Now) -> Result<Args<'call>, Error> {
        let mut cursor = Cursor::new(arguments);
        let key = cursor.key()?;
        let owner = cursor.required()?;
        let made_up = owner == b"*";
        let owner = if made_up { fresh_owner() } else { Owner::new(owner).ok_or(Error::Owner)? };
        let mut chosen = None;
        while let Some(word) = cursor.word() {
            once(&mut chosen, lease(word, &mut cursor, now)?.ok_or(Error::Syntax)?)?;
        }
        Ok(Args { key, owner, made_up, lease: chosen.unwrap_or(LeaseChoice::Own) })
    }
}

fn run(context: &Context, arguments: &Arguments, mode: Mode, reentry: Reentry) -> Result<Reply, Error> {
    let now = Now::read();
    let Args { key: name, owner, made_up, lease } = Args::parse(arguments, now)?;
    if !context.flags().is_primary() {
        return Err(Error::ReadOnly);
    }
    let mut key = Key::open(context, &name, Access::Write);
    let state = state();
    let request = dlock_core::Acquire { owner: &owner, mode, reentry, lease };
    let empty = dlock_core::Lock::default();
    let lock = key.lock()?.unwrap_or(&empty);
    match lock.acquire(now.millis(), &request, state.settings.default_lease(), state.next_token(now)) {
        Acquired::Granted { token, entry, effect } => {
            decide(context, &name, &mut key, effect, Replication::Effect)?;
            match entry {
                Entry::First => state.stats.grants.count(),
                Entry::Again => state.stats.reentries.count(),
            }
            context.notify(c"dlock.acquire", &name);
            Ok(Reply::Granted(token, made_up.then_some(owner)))
        }
        Acquired::Refused(Refusal::TooManyEntries) => Err(Error::TooManyEntries),
        Acquired::Refused(Refusal::NoToken) => Err(Error::NoToken),
        Acquired::Refused(Refusal::Held | Refusal::Owned | Refusal::LeasePassed) => {
            state.stats.refusals.count();
            Ok(Reply::Nil)
        }
    }
}

fn fresh_owner() -> Owner {
    let uuid = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
    Owner::from_uuid(uuid.into_bytes())
}
