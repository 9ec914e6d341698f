//! The commands, one in each file: its registration and docs, its arguments, its reply.

mod acquire;
mod apply;
#[cfg(debug_assertions)]
mod call;
mod check;
mod help;
mod info;
mod log;
mod macquire;
#[cfg(debug_assertions)]
mod meddle;
mod options;
#[cfg(debug_assertions)]
mod panic;
#[cfg(debug_assertions)]
mod promise;
mod release;
mod renew;
mod session;
#[cfg(debug_assertions)]
mod thread;

use crate::error::Error;
use crate::ffi::command::{Command, register};
use crate::ffi::context::{Context, Flags, is_held_still};
use crate::ffi::spec::Spec;

/// The commands for clients, in the order in which `DLOCK.HELP` shows them.
const COMMANDS: &[Listed] = &[
    listed::<acquire::Acquire>(),
    listed::<acquire::Racquire>(),
    listed::<acquire::Rlock>(),
    listed::<acquire::Wlock>(),
    listed::<acquire::Sacquire>(),
    listed::<macquire::Macquire>(),
    listed::<release::Release>(),
    listed::<renew::Renew>(),
    listed::<check::Check>(),
    listed::<info::Info>(),
    listed::<session::Session>(),
    listed::<log::Log>(),
    listed::<help::Help>(),
];

/// The commands for replication and for tests.
const INTERNAL: &[Listed] = &[
    listed::<apply::Apply>(),
    #[cfg(debug_assertions)]
    listed::<call::Call>(),
    #[cfg(debug_assertions)]
    listed::<meddle::Meddle>(),
    #[cfg(debug_assertions)]
    listed::<panic::Panic>(),
    #[cfg(debug_assertions)]
    listed::<promise::Promise>(),
    #[cfg(debug_assertions)]
    listed::<thread::Thread>(),
];

struct Listed {
    spec: &'static Spec,
    register: fn(&Context<'_>) -> Result<(), String>,
}

const fn listed<C: Command>() -> Listed {
    Listed { spec: &C::SPEC, register: register::<C> }
}

/// Registers every command.
pub fn register_commands(context: &Context<'_>) -> Result<(), String> {
    COMMANDS.iter().chain(INTERNAL).try_for_each(|command| (command.register)(context))
}

/// Checks that a command may write here and now. The server puts off what clients send while it holds its data still, but
/// not what follows in the transaction, the script or the module's call that begins a pause. There, an expired key looks
/// empty and is still in the way: the server crashes, or has the key twice.
///
/// # Errors
/// [`Error::ReadOnly`] or [`Error::HeldStill`].
#[inline]
fn may_write(flags: Flags) -> Result<(), Error> {
    if !flags.is_primary() {
        Err(Error::ReadOnly)
    } else if !flags.can_block() && is_held_still() {
        Err(Error::HeldStill)
    } else {
        Ok(())
    }
}
