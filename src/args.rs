//! What a command's arguments are held against: this server's settings, and where the command comes from.
//!
//! What the words say is read by `dlock_core::args`.

use dlock_core::args::Limits;

use crate::error::Error;
use crate::ffi::context::{Context, Now};
use crate::state::state;

/// What leases and tokens are held against.
pub fn limits(now: Now) -> Limits {
    Limits { now_us: now.micros(), max_lease: state().settings.max_lease() }
}

/// The client to bind a hold to, which must be connected, if the command `binds` one.
pub fn client_to_bind(context: &Context, binds: bool) -> Result<Option<u64>, Error> {
    if !binds {
        return Ok(None);
    }
    context.connected_client().map(Some).ok_or(Error::NoConnection)
}
