//! `DLOCK.MACQUIRE numkeys key [key …] owner [EX s | PX ms | EXAT s | PXAT ms] [BLOCK ms] [SESSION | SESSIONID id]
//! [MAXHOLD ms] [REQUEST id]`
//!
//! Acquires all locks exclusively, or none. Replies as `DLOCK.ACQUIRE`.

use dlock_core::Command as Which;
use dlock_core::args::AcquireAll;
use smallvec::SmallVec;

use super::acquire::enter;
use crate::config::limits;
use crate::error::Error;
use crate::ffi::command::{Arguments, Command};
use crate::ffi::context::{Context, now};
use crate::ffi::strings::KeyName;
use dlock_core::spec::{MACQUIRE, Spec};

/// Several locks at once, exclusive, not reentrant.
pub struct Macquire;

impl Command for Macquire {
    type Error = Error;
    const SPEC: Spec = MACQUIRE;

    fn run(context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<(), Error> {
        let now = now();
        let AcquireAll { keys, acquire } = AcquireAll::parse(arguments.all(), limits(now))?;
        // The keys follow the command's name and their number.
        let own: SmallVec<[KeyName<'_>; 8]> = (2..).map_while(|at| arguments.name(at)).take(keys.len()).collect();
        enter(context, arguments, &own, &Self::SPEC, Which::Macquire, now, acquire)
    }
}
