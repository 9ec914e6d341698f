//! `DLOCK.MACQUIRE numkeys key [key …] owner [EX s | PX ms | EXAT s | PXAT ms] [BLOCK ms] [SESSION] [REQUEST id]`
//!
//! Acquires all locks exclusively, or none. Replies as `DLOCK.ACQUIRE`.

use dlock_core::Name;
use dlock_core::args::AcquireAll;
use dlock_core::engine::Call;
use smallvec::SmallVec;

use super::acquire::{Caller, Outcome, make_waiter};
use super::options::{BLOCK, LEASE, REQUEST};
use super::sending::finish;
use crate::config::limits;
use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, now};
use crate::ffi::spec::{Argument, KeyUse, Keys, Spec};
use crate::ffi::strings::KeyName;
use crate::keyspace::ServerKeys;
use crate::state::{Outputs, with_engine};

/// Several locks at once, exclusive, not reentrant.
pub struct Macquire;

impl Command for Macquire {
    const SPEC: Spec = Spec {
        name: "DLOCK.MACQUIRE",
        flags: "write deny-oom blocking getkeys-api",
        categories: "dlock write slow blocking",
        keys: Keys::Numbered(KeyUse::Update),
        arity: -4,
        summary: "Acquires several locks exclusively, all or none. Not reentrant.",
        complexity: "O(K log N) with K the number of keys and N the number of holds on each lock",
        arguments: &[Argument::Text("owner"), LEASE, BLOCK, Argument::Word("SESSION"), REQUEST],
    };

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) {
        let mut own: SmallVec<[KeyName<'_>; 8]> = SmallVec::new();
        let outcome = acquire(context, arguments, &mut own);
        finish(context, &own, &Self::SPEC, outcome, |context, outcome| outcome.reply(context, &own));
    }
}

fn acquire<'call>(
    context: &mut Context<'_>,
    arguments: &Arguments<'call>,
    own: &mut SmallVec<[KeyName<'call>; 8]>,
) -> Result<(Outcome, Outputs), Error> {
    let now = now();
    let AcquireAll { keys, acquire } = AcquireAll::parse(arguments.all(), limits(now))?;
    // The keys follow the command's name and their number.
    own.extend((0..keys.len()).filter_map(|index| arguments.name(index + 2)));
    let (caller, ask) = Caller::new(context, acquire)?;
    let db = context.db();
    let names: SmallVec<[Name<'_>; 8]> = own.iter().map(|name| Name { db, key: name.bytes() }).collect();
    let Some(first) = names.first() else { return Err(Error::Malformed(dlock_core::args::Malformed::NoKeys)) };
    let call = Call { name: *first, now, client: caller.client };
    let mut waiter = None;
    let wait = caller.timeout_ms.map(|_| make_waiter(&mut waiter));
    let mut keys = ServerKeys::of_command(context, db, own);
    let (entered, outputs) = with_engine(|engine| engine.acquire_all(&mut keys, call, &names, &ask, wait))?;
    let owner = ask.is_owner_drawn.then_some(ask.owner);
    Ok((Outcome { entered, owner, waiter, timeout_ms: caller.timeout_ms }, outputs))
}
