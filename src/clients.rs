//! Who a client is, as the log shows it.

use dlock_core::ClientId;
use dlock_core::engine::Peer;

use crate::ffi::clients::find;

/// Looks a client up; `None` if it is not connected.
pub fn identify(client: ClientId) -> Option<Peer> {
    let (addr, name) = find(client.0)?;
    Some(Peer { addr: addr.into_boxed_slice(), name: name.map(Vec::into_boxed_slice) })
}
