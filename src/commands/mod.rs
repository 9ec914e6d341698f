//! The commands. Each file has the registration and docs, the arguments and the reply of a command or of similar ones.

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
use crate::ffi::command::register;
use crate::ffi::context::{Context, Flags, is_held_still};

/// The commands for clients.
const COMMANDS: &[Register] = &[
    register::<acquire::Acquire>,
    register::<acquire::Racquire>,
    register::<acquire::Rlock>,
    register::<acquire::Wlock>,
    register::<acquire::Sacquire>,
    register::<macquire::Macquire>,
    register::<release::Release>,
    register::<renew::Renew>,
    register::<check::Check>,
    register::<info::Info>,
    register::<session::Session>,
    register::<log::Log>,
    register::<help::Help>,
];

/// The command for replication, and those for tests, which only debug builds have.
const INTERNAL: &[Register] = &[
    register::<apply::Apply>,
    #[cfg(debug_assertions)]
    register::<call::Call>,
    #[cfg(debug_assertions)]
    register::<meddle::Meddle>,
    #[cfg(debug_assertions)]
    register::<panic::Panic>,
    #[cfg(debug_assertions)]
    register::<promise::Promise>,
    #[cfg(debug_assertions)]
    register::<thread::Thread>,
];

/// A function that registers a command.
type Register = fn(&Context<'_>) -> Result<(), String>;

/// Registers every command.
pub fn register_commands(context: &Context<'_>) -> Result<(), String> {
    COMMANDS.iter().chain(INTERNAL).try_for_each(|register| register(context))
}

/// Checks that a command may write now. While the server holds its data still, for a pause or a failover, it delays the
/// commands of clients, but not those in the transaction, the script or the module's call that began the pause. To such
/// a command, an expired key looks empty and still exists: a write would crash the server, or make the key twice.
///
/// # Errors
/// [`Error::ReadOnly`] or [`Error::HeldStill`].
#[inline]
fn may_write(flags: Flags) -> Result<(), Error> {
    if !flags.is_primary() {
        Err(Error::ReadOnly)
    } else if is_held_still() {
        Err(Error::HeldStill)
    } else {
        Ok(())
    }
}
