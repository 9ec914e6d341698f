//! One command one file: its registration and docs, its arguments, its reply.

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
mod release;
mod renew;
mod session;

use crate::error::Error;
use crate::ffi::context::{Flags, is_held_still};

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

pub use acquire::{Acquire, Racquire, Rlock, Sacquire, Wlock};
pub use apply::Apply;
#[cfg(debug_assertions)]
pub use call::Call;
pub use check::Check;
pub use help::Help;
pub use info::Info;
pub use log::Log;
pub use macquire::Macquire;
#[cfg(debug_assertions)]
pub use meddle::Meddle;
#[cfg(debug_assertions)]
pub use panic::Panic;
pub use release::Release;
pub use renew::Renew;
pub use session::Session;
