//! `DLOCK.ACQUIRE | RACQUIRE | RLOCK | WLOCK key owner [EX s | PX ms | EXAT s | PXAT ms] [BLOCK ms] [SESSION] [REQUEST id]`
//!
//! Replies with the fencing token, or nil if the lock is held, with `BLOCK` after having waited. Owner `*` is made up by the server and comes back with
//! the token.

use std::rc::Rc;

use dlock_core::args::{Acquire as Args, Malformed};
use dlock_core::{Acquired, Command as RequestOf, Entry, LeaseChoice, Mode, Owner, Reentry, Refusal, Token};

use super::LEASE;
use crate::args::{client_to_bind, limits};
use crate::error::Error;
use crate::ffi::blocking;
use crate::ffi::command::{Argument, Arguments, Command, KeyUse, Spec};
use crate::ffi::context::{Context, Now};
use crate::ffi::key::{Access, Key};
use crate::joining::{Patience, deadlock, decide, first_hold, join, place_of_repeated, take_over, wait};
use crate::quick;
use crate::reply::Reply;
use crate::sessions::bind;
use crate::state::state;
use crate::store::{OpenLock, Replication, close};
use crate::waiter::Waiter;
use crate::waiting::{Grants, bind_granted, served};

/// Exclusive, not reentrant.
pub struct Acquire;
/// Exclusive, reentrant.
pub struct Racquire;
/// Shared, reentrant.
pub struct Rlock;
/// The write side of [`Rlock`]: the same as [`Racquire`].
pub struct Wlock;

const ARGUMENTS: &[Argument] = &[
    Argument::Text("owner"),
    LEASE,
    Argument::Number("BLOCK", "milliseconds"),
    Argument::Word("SESSION"),
    Argument::NamedText("REQUEST", "id"),
];

const fn spec(name: &'static str, summary: &'static str) -> Spec {
    Spec {
        name,
        flags: "write deny-oom",
        key: KeyUse::Update,
        arity: -3,
        summary,
        complexity: "O(log N) with N the number of holds on the lock",
        arguments: ARGUMENTS,
    }
}

impl Command for Acquire {
    const SPEC: Spec = spec("DLOCK.ACQUIRE", "Takes a lock exclusively; refused if the owner already holds it.");

    fn run(context: &Context, arguments: &Arguments, grants: &mut Grants) -> Result<Reply, Error> {
        run(
            context,
            arguments,
            grants,
            Kind { command: RequestOf::Acquire, mode: Mode::Exclusive, reentry: Reentry::Refuse },
        )
    }
}

impl Command for Racquire {
    const SPEC: Spec = spec("DLOCK.RACQUIRE", "Takes a lock exclusively, or enters it once more.");

    fn run(context: &Context, arguments: &Arguments, grants: &mut Grants) -> Result<Reply, Error> {
        run(
            context,
            arguments,
            grants,
            Kind { command: RequestOf::Racquire, mode: Mode::Exclusive, reentry: Reentry::Count },
        )
    }
}

impl Command for Rlock {
    const SPEC: Spec = spec("DLOCK.RLOCK", "Takes a lock for reading, or enters it once more.");

    fn run(context: &Context, arguments: &Arguments, grants: &mut Grants) -> Result<Reply, Error> {
        run(context, arguments, grants, Kind { command: RequestOf::Rlock, mode: Mode::Shared, reentry: Reentry::Count })
    }
}

impl Command for Wlock {
    const SPEC: Spec = spec("DLOCK.WLOCK", "Takes a lock for writing, or enters it once more.");

    fn run(context: &Context, arguments: &Arguments, grants: &mut Grants) -> Result<Reply, Error> {
        run(
            context,
            arguments,
            grants,
            Kind { command: RequestOf::Wlock, mode: Mode::Exclusive, reentry: Reentry::Count },
        )
    }
}

/// What a command does, beside its name.
struct Kind {
    command: RequestOf,
    mode: Mode,
    reentry: Reentry,
}

fn run(context: &Context, arguments: &Arguments, grants: &mut Grants, kind: Kind) -> Result<Reply, Error> {
    let now = Now::read();
    let name = arguments.key()?;
    let Args { owner, lease, block, binds, request } = Args::parse(arguments.after_key(), kind.command, limits(now))?;
    let made_up = owner.is_none();
    let owner = owner.unwrap_or_else(fresh_owner);
    let client = client_to_bind(context, binds)?;
    let flags = context.flags();
    if !flags.is_primary() {
        return Err(Error::ReadOnly);
    }
    let patience = block.filter(|_| flags.can_block()).map(|timeout_ms| Patience { timeout_ms, made_up, binds });
    let Kind { mode, reentry, .. } = kind;
    let request = dlock_core::Acquire { owner: &owner, mode, reentry, lease, request: request.as_ref() };
    let key = Key::open(context, &name, Access::Write)?;
    if key.lock().is_none()
        && client.is_none()
        && quick::is_quiet()
        && let Ok(hold) = first_hold(now, &request)
    {
        return Ok(Reply::Granted(quick::take(context, &name, key, now, hold), made_up.then_some(owner)));
    }
    let mut open = served(OpenLock::of(context, &name, key), now, grants);
    let entered = enter(&mut open, now, &request, client, patience, grants);
    close(&mut open);
    grants.announce(context, &name);
    match entered? {
        Entered::In(token) => {
            context.notify(c"dlock.acquire", &name);
            Ok(Reply::Granted(token, made_up.then_some(owner)))
        }
        Entered::Before(token) => {
            state().stats.replays.count();
            Ok(Reply::Granted(token, None))
        }
        Entered::Waiting(waiter, patience) => {
            wait(context, &name, &waiter, patience);
            Ok(Reply::Later)
        }
        Entered::WaitingAgain(waiter, patience) => {
            state().stats.replays.count();
            blocking::block(context, &name, patience.timeout_ms, &waiter);
            Ok(Reply::Later)
        }
        Entered::Refused => {
            state().stats.refusals.count();
            Ok(Reply::Nil)
        }
    }
}

enum Entered {
    In(Token),
    /// The request came before, and was granted.
    Before(Token),
    Waiting(Rc<Waiter>, Patience),
    /// The request came before, and still waited.
    WaitingAgain(Rc<Waiter>, Patience),
    Refused,
}

fn enter(
    open: &mut OpenLock,
    now: Now,
    request: &dlock_core::Acquire,
    client: Option<u64>,
    patience: Option<Patience>,
    grants: &mut Grants,
) -> Result<Entered, Error> {
    match (decide(open, now, request), patience) {
        (Acquired::Granted { token, entry, effect }, _) => {
            if client.is_some() && effect.hold().is_some_and(|hold| !hold.lease.can_be_bound()) {
                return Err(Malformed::SessionLease.into());
            }
            bind_granted(open.context, open.name, &effect, entry, client);
            open.apply(effect, Replication::Effect);
            match entry {
                Entry::First => state().stats.grants.count(),
                Entry::Again => state().stats.reentries.count(),
            }
            Ok(Entered::In(token))
        }
        (Acquired::Replayed(hold), _) => {
            if let Some(client) = client {
                if !hold.lease.can_be_bound() {
                    return Err(Malformed::SessionLease.into());
                }
                bind(open.context.db(), open.name.bytes(), &hold, client);
            }
            Ok(Entered::Before(hold.token))
        }
        (Acquired::Refused(Refusal::TooManyEntries), _) => Err(Error::TooManyEntries),
        (Acquired::Refused(Refusal::NoToken), _) => Err(Error::NoToken),
        (Acquired::Refused(_), _) if client.is_some() && is_short_by_default(request) => {
            Err(Malformed::SessionLease.into())
        }
        (Acquired::Refused(Refusal::Held), Some(patience)) => {
            let taken_over = place_of_repeated(open, request)
                .and_then(|place| take_over(open, place, now, request, patience, grants));
            match taken_over {
                Some(waiter) => Ok(Entered::WaitingAgain(waiter, patience)),
                None => join(open, now, request, patience).map(|waiter| Entered::Waiting(waiter, patience)),
            }
        }
        (Acquired::Refused(Refusal::Owned), Some(_)) => {
            Err(deadlock("the owner holds the lock already, and the request does not re-enter".to_owned()))
        }
        (Acquired::Refused(Refusal::Held | Refusal::Owned | Refusal::LeasePassed), _) => Ok(Entered::Refused),
    }
}

fn is_short_by_default(request: &dlock_core::Acquire) -> bool {
    request.lease == LeaseChoice::Own && !state().settings.default_lease().can_be_bound()
}

fn fresh_owner() -> Owner {
    let uuid = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
    Owner::from_uuid(uuid.into_bytes())
}
