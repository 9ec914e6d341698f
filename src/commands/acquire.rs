//! `DLOCK.ACQUIRE | RACQUIRE | RLOCK | WLOCK key owner [EX s | PX ms | EXAT s | PXAT ms] [BLOCK ms] [SESSION] [REQUEST id]`
//! and `DLOCK.SACQUIRE key owner limit [PERMITS k] …` with the same options.
//!
//! Replies with the fencing token, or nil if the lock is held; with `BLOCK`, if the wait ran out. With owner `*` the
//! server draws an owner and replies with owner and token.

use std::rc::Rc;

use dlock_core::args::Acquire as Args;
use dlock_core::engine::{Ask, Call, Entered, Fault};
use dlock_core::{ClientId, Command as Which, Name, Owner};

use super::options::{BLOCK, LEASE, REQUEST};
use super::sending::finish;
use crate::config::limits;
use crate::error::Error;
use crate::ffi::blocking::{Ticket, block};
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, Flags, now};
use crate::ffi::spec::{Argument, KeyUse, Keys, Spec};
use crate::ffi::strings::KeyName;
use crate::keyspace::ServerKeys;
use crate::reply;
use crate::state::{Outputs, with_engine};
use crate::waiter::Waiter;

/// Exclusive, not reentrant.
pub struct Acquire;
/// Exclusive, reentrant.
pub struct Racquire;
/// Shared, reentrant.
pub struct Rlock;
/// The write side of [`Rlock`], identical to [`Racquire`].
pub struct Wlock;
/// Shared, up to a limit.
pub struct Sacquire;

const ARGUMENTS: &[Argument] = &[Argument::Text("owner"), LEASE, BLOCK, Argument::Word("SESSION"), REQUEST];

const fn spec(name: &'static str, summary: &'static str) -> Spec {
    Spec {
        name,
        flags: "write deny-oom blocking",
        categories: "dlock write slow blocking",
        keys: Keys::First(KeyUse::Update),
        arity: -3,
        summary,
        complexity: "O(log N) with N the number of holds on the lock",
        arguments: ARGUMENTS,
    }
}

impl Command for Acquire {
    const SPEC: Spec = spec("DLOCK.ACQUIRE", "Acquires a lock exclusively. Not reentrant.");

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) {
        run(context, arguments, Which::Acquire, &Self::SPEC);
    }
}

impl Command for Racquire {
    const SPEC: Spec = spec("DLOCK.RACQUIRE", "Acquires a lock exclusively, or enters it once more.");

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) {
        run(context, arguments, Which::Racquire, &Self::SPEC);
    }
}

impl Command for Rlock {
    const SPEC: Spec = spec("DLOCK.RLOCK", "Acquires a lock for reading, or enters it once more.");

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) {
        run(context, arguments, Which::Rlock, &Self::SPEC);
    }
}

impl Command for Wlock {
    const SPEC: Spec = spec("DLOCK.WLOCK", "Acquires a lock for writing, or enters it once more.");

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) {
        run(context, arguments, Which::Wlock, &Self::SPEC);
    }
}

impl Command for Sacquire {
    const SPEC: Spec = Spec {
        arity: -4,
        arguments: &[
            Argument::Text("owner"),
            Argument::BareNumber("limit"),
            Argument::Number("PERMITS", "permits"),
            LEASE,
            BLOCK,
            Argument::Word("SESSION"),
            REQUEST,
        ],
        ..spec("DLOCK.SACQUIRE", "Acquires permits of a semaphore.")
    };

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) {
        run(context, arguments, Which::Sacquire, &Self::SPEC);
    }
}

fn run(context: &mut Context<'_>, arguments: &Arguments<'_>, command: Which, spec: &Spec) {
    let name = match arguments.key() {
        Ok(name) => name,
        Err(error) => return context.reply_error(&Error::from(error).text(spec.name)),
    };
    let own = [name];
    let outcome = acquire(context, arguments, command, &own);
    finish(context, &own, spec, outcome, |context, outcome| outcome.reply(context, &own));
}

fn acquire(
    context: &mut Context<'_>,
    arguments: &Arguments<'_>,
    command: Which,
    own: &[KeyName<'_>; 1],
) -> Result<(Outcome, Outputs), Error> {
    let now = now();
    let args = Args::parse(arguments.after_key(), command, limits(now))?;
    let (caller, ask) = Caller::new(context, args)?;
    let [name] = own;
    let db = context.db();
    let call = Call { name: Name { db, key: name.bytes() }, now, client: caller.client };
    let mut waiter = None;
    let wait = caller.timeout_ms.map(|_| make_waiter(&mut waiter));
    let mut keys = ServerKeys::of_command(context, db, own);
    let (entered, outputs) = with_engine(|engine| engine.acquire(&mut keys, call, &ask, wait))?;
    let owner = ask.is_owner_drawn.then_some(ask.owner);
    Ok((Outcome { entered, owner, waiter, timeout_ms: caller.timeout_ms }, outputs))
}

/// What a request leads to, with what is needed to reply.
pub(super) struct Outcome {
    pub entered: Result<Entered, Fault>,
    /// The owner, if the server drew it.
    pub owner: Option<Owner>,
    pub waiter: Option<Rc<Waiter>>,
    pub timeout_ms: Option<u64>,
}

impl Outcome {
    /// Replies, or blocks the client on the first key.
    #[inline]
    pub(super) fn reply(self, context: &mut Context<'_>, own: &[KeyName<'_>]) -> Result<(), Error> {
        match (self.entered?, self.waiter, own.first()) {
            (Entered::Granted(token), ..) => reply::granted(context, token, self.owner.as_ref()),
            (Entered::Replayed(token), ..) => context.reply_integer(token.get()),
            // Somebody let it in while the events were sent.
            (Entered::Waiting(_), Some(waiter), _) if waiter.is_over() => waiter.answer(context),
            (Entered::Waiting(_), Some(waiter), Some(name)) => {
                block(context, name, self.timeout_ms.unwrap_or(0), &waiter);
            }
            (Entered::Waiting(_) | Entered::Refused, ..) => context.reply_nil(),
        }
        Ok(())
    }
}

/// Makes the waiter of a request that waits, and leaves it to the caller, too.
pub(super) fn make_waiter(
    place: &mut Option<Rc<Waiter>>,
) -> impl FnOnce(dlock_core::engine::WaiterId) -> Rc<Waiter> + use<'_> {
    |id| Rc::clone(place.insert(Rc::new(Waiter::new(id))))
}

/// The client of an acquiring command.
pub(super) struct Caller {
    pub client: ClientId,
    /// How long the client may wait, in ms; `None`: not at all.
    pub timeout_ms: Option<u64>,
}

impl Caller {
    /// Looks where the command comes from.
    ///
    /// # Errors
    /// [`Error::NoConnection`] and [`Error::ReadOnly`].
    pub(super) fn new(context: &Context<'_>, args: Args) -> Result<(Caller, Ask), Error> {
        let flags = context.flags();
        let Args { owner, want, lease, block, binds, request } = args;
        let client = client(context, flags, binds, block.is_some())?;
        if !flags.is_primary() {
            return Err(Error::ReadOnly);
        }
        let timeout_ms = block.filter(|_| flags.can_block());
        let is_owner_drawn = owner.is_none();
        let owner = owner.unwrap_or_else(draw_owner);
        Ok((Caller { client, timeout_ms }, Ask { owner, is_owner_drawn, want, lease, request, binds }))
    }
}

/// The client to bind a hold to, which must be connected, if the command binds one; else the client that may wait.
pub(super) fn client(context: &Context<'_>, flags: Flags, binds: bool, waits: bool) -> Result<ClientId, Error> {
    if binds {
        return context.connected_client(flags).map(ClientId).ok_or(Error::NoConnection);
    }
    Ok(ClientId(if waits { context.sender(flags) } else { 0 }))
}

fn draw_owner() -> Owner {
    let uuid = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
    Owner::from_uuid(uuid.into_bytes())
}
