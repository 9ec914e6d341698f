//! `DLOCK.MACQUIRE numkeys key [key …] owner [EX s | PX ms | EXAT s | PXAT ms] [BLOCK ms] [SESSION | SESSIONID id]
//! [MAXHOLD ms] [REQUEST id]`
//!
//! Acquires all locks exclusively, or none. Replies as `DLOCK.ACQUIRE`.

use dlock_core::Command as Which;
use dlock_core::args::AcquireAll;
use smallvec::SmallVec;

use super::acquire::enter;
use super::options::{BLOCK, LEASE, MAXHOLD, REQUEST, SESSION};
use crate::config::limits;
use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, now};
use crate::ffi::spec::{Argument, KeyUse, Keys, Spec};
use crate::ffi::strings::KeyName;

/// Several locks at once, exclusive, not reentrant.
pub struct Macquire;

impl Command for Macquire {
    type Error = Error;
    const SPEC: Spec = Spec {
        name: "DLOCK.MACQUIRE",
        flags: "write deny-oom blocking getkeys-api",
        categories: "dlock write slow blocking",
        keys: Keys::Numbered(KeyUse::Update),
        arity: -4,
        summary: "Acquires several locks exclusively, all or none. Not reentrant.",
        complexity: "O(K log N) with K the number of keys and N the number of holds on each lock",
        arguments: &[Argument::Text("owner"), LEASE, BLOCK, SESSION, MAXHOLD, REQUEST],
    };

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let now = now();
        let AcquireAll { keys, acquire } = AcquireAll::parse(arguments.all(), limits(now))?;
        // The keys follow the command's name and their number.
        let own: SmallVec<[KeyName<'_>; 8]> = (2..).map_while(|at| arguments.name(at)).take(keys.len()).collect();
        enter(context, arguments, &own, &Self::SPEC, Which::Macquire, now, acquire)
    }
}
