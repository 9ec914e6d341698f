//! `DLOCK.ACQUIRE | RACQUIRE | RLOCK | WLOCK key owner [EX s | PX ms | EXAT s | PXAT ms] [BLOCK ms] [SESSION | SESSIONID id]
//! [MAXHOLD ms] [MINTOKEN token] [REQUEST id]`, and `DLOCK.SACQUIRE key owner limit [PERMITS k | SLOT] …` with the same options
//! except `MINTOKEN`.
//!
//! Replies with the fencing token, or nil if the lock is held; with `BLOCK`, if the wait ran out. With owner `*` the
//! server generates an owner and replies with owner and token. With `SLOT`, the number of the hold follows the token.

use std::rc::Rc;

use dlock_core::args::{Acquire as Args, Malformed};
use dlock_core::engine::{Call, Entered};
use dlock_core::spec::{self, Spec};
use dlock_core::{BindTo, Binding, ClientId, Command as Which, Name, Now, Owner, Request, SessionId};
use smallvec::SmallVec;

use super::may_write;
use crate::config::limits;
use crate::error::Error;
use crate::ffi::acl::user_name;
use crate::ffi::blocking::{Ticket, block};
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, Flags, now};
use crate::ffi::rights::Rights;
use crate::ffi::strings::KeyName;
use crate::keyspace::ServerKeys;
use crate::outputs::begin;
use crate::state::{engine, known_user, use_engine};
use crate::waiter::Waiter;
use dlock_core::reply;

/// The commands that acquire one lock. They differ in mode, reentrancy and limit.
macro_rules! acquiring {
    ($($(#[$doc:meta])* $name:ident: $spec:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl Command for $name {
            type Error = Error;
            const SPEC: Spec = $spec;

            fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
                enter_one(context, arguments, &Self::SPEC, Which::$name)
            }
        }
    )*};
}

acquiring! {
    /// Exclusive, not reentrant.
    Acquire: spec::ACQUIRE;
    /// Exclusive, reentrant.
    Racquire: spec::RACQUIRE;
    /// Shared, reentrant.
    Rlock: spec::RLOCK;
    /// The write side of [`Rlock`], like [`Racquire`]; only the id of a `REQUEST` tells them apart.
    Wlock: spec::WLOCK;
    /// Shared, up to a limit.
    Sacquire: spec::SACQUIRE;
}

/// Acquires one lock. All commands share this function, which is not inlined: each copy would be large.
#[inline(never)]
fn enter_one(context: &mut Context<'_>, arguments: &Arguments<'_>, spec: &Spec, command: Which) -> Result<(), Error> {
    let (own, now) = ([arguments.key_to_acquire()?], now());
    let args = Args::parse(arguments.after_key(), command, limits(now))?;
    enter(context, arguments, &own, spec, command, now, args)
}

/// Acquires the locks `own`: several for `MACQUIRE`. Replies, or blocks the client on the first key. `arguments` are those of
/// the whole command.
///
/// # Errors
/// Among others [`Error::NoConnection`], [`Error::ReadOnly`] and [`Error::HeldStill`].
#[inline(always)]
pub(super) fn enter(
    context: &mut Context<'_>,
    arguments: &Arguments<'_>,
    own: &[KeyName<'_>],
    spec: &Spec,
    command: Which,
    now: Now,
    args: Args,
) -> Result<(), Error> {
    let Args { owner, want, lease, cap, block: timeout, session, min_token, request } = args;
    let flags = context.flags();
    let client = client(context, flags, &session, timeout.is_some())?;
    may_write(flags)?;
    let timeout_ms = timeout.filter(|_| flags.can_block());
    let is_owner_drawn = owner.is_none();
    let owner = owner.unwrap_or_else(draw_owner);
    let session = look_up(context, session)?;
    let request = Request { owner, is_owner_drawn, want, lease, cap, id: request.map(Box::new), session, min_token };
    let first = own.first().ok_or(Malformed::NoKeys)?;
    let db = context.db();
    let call = Call { name: Name { db, key: first.bytes() }, now, client };
    let mut waiter = None;
    // A request that waits leaves its ticket in `waiter`, too.
    let wait = timeout_ms.map(|_| |id| Rc::clone(waiter.insert(Rc::new(Waiter::new(id)))));
    let mut keys = ServerKeys::new(context, db, own);
    let mut engine = engine()?;
    let entered = if command == Which::Macquire {
        let names: SmallVec<[Name<'_>; 8]> = own.iter().map(|key| Name { db, key: key.bytes() }).collect();
        engine.acquire_all(&mut keys, call, &names, &request, wait)
    } else {
        engine.acquire(&mut keys, call, &request, wait)
    };
    let user = keys.into_user_name();
    let rest = begin(context, own, engine);
    // A `match` chooses the reply: the compiler does not inline a closure here, and each grant would pay for the call.
    let replied = match entered {
        Ok(Entered::Granted(grant)) => {
            reply::granted(context, grant, is_owner_drawn.then_some(&request.owner));
            Ok(())
        }
        Ok(Entered::Replayed(grant)) => {
            reply::granted(context, grant, None);
            Ok(())
        }
        Ok(Entered::Refused) => {
            context.reply_nil();
            Ok(())
        }
        Ok(Entered::Waiting(_)) => {
            begin_to_wait(context, (arguments, spec), first, timeout_ms, (waiter, user));
            Ok(())
        }
        Err(fault) => Err(Error::from(fault)),
    };
    rest.finish(context, spec, replied);
    Ok(())
}

/// Blocks the client of a request that waits, on the first of its keys.
#[inline(never)]
fn begin_to_wait(
    context: &mut Context<'_>,
    (arguments, spec): (&Arguments<'_>, &Spec),
    first: &KeyName<'_>,
    timeout_ms: Option<u64>,
    (waiter, user): (Option<Rc<Waiter>>, Option<KeyName<'static>>),
) {
    match waiter {
        // The waiter was answered while the events were sent.
        Some(waiter) if waiter.is_over() => waiter.answer(context),
        Some(waiter) => {
            let rights = user.and_then(|user| Rights::of(user, known_user(), context.db(), arguments, spec));
            if let Some(rights) = rights {
                waiter.rights.set(rights).unwrap_or(());
            }
            block(context, first, timeout_ms.unwrap_or(0), &waiter);
        }
        // A request that waits has a waiter, so this does not happen.
        None => context.reply_nil(),
    }
}

/// Returns the client to bind a hold to, which must be connected, if the command binds one; else the client that may
/// wait, and 0 if none may.
pub(super) fn client(
    context: &Context<'_>,
    flags: Flags,
    session: &BindTo<SessionId>,
    waits: bool,
) -> Result<ClientId, Error> {
    if *session == BindTo::Connection {
        return context.connected_client(flags).map(ClientId).ok_or(Error::NoConnection);
    }
    Ok(ClientId(if waits { context.waiting_client(flags) } else { 0 }))
}

/// Returns the binding to a session of the user that runs the command.
///
/// # Errors
/// [`Error::Busy`].
#[inline(always)]
pub(super) fn look_up(context: &mut Context<'_>, session: BindTo<SessionId>) -> Result<Binding, Error> {
    match session {
        BindTo::Nothing => Ok(BindTo::Nothing),
        BindTo::Connection => Ok(BindTo::Connection),
        BindTo::Named(id) => look_up_named(context, &id),
    }
}

fn look_up_named(context: &mut Context<'_>, id: &SessionId) -> Result<Binding, Error> {
    let user = user_name(context);
    let user = user.as_ref().map(KeyName::bytes);
    Ok(BindTo::Named(use_engine(|engine| engine.look_up_session(id, user))?))
}

fn draw_owner() -> Owner {
    let uuid = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
    Owner::from_uuid(uuid.into_bytes())
}
