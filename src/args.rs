//! Arguments of a command, held against this server's settings and against where the command comes from.
//!
//! What the words say is read by `dlock_core::args`.

use dlock_core::LeaseChoice;
use dlock_core::args::{Limits, Malformed};

use crate::error::Error;
use crate::ffi::context::{Context, Now};
use crate::sessions::is_long_enough;
use crate::state::state;

/// What leases and tokens are held against.
pub fn limits(now: Now) -> Limits {
    Limits { now_us: now.micros(), max_lease: state().settings.max_lease() }
}

/// The client to bind a hold to, which must be connected. The lease must be one that can be moved on.
pub fn session(context: &Context, lease: LeaseChoice) -> Result<u64, Error> {
    match lease {
        LeaseChoice::Until(_) => return Err(Malformed::Syntax.into()),
        LeaseChoice::For(lease) if !is_long_enough(lease) => return Err(Error::SessionLease),
        LeaseChoice::For(_) | LeaseChoice::Own => {}
    }
    context.connected_client().ok_or(Error::NoConnection)
}
