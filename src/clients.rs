//! Clients, as the log shows them.

use std::cell::RefCell;

use dlock_core::ClientId;
use dlock_core::engine::Peer;

use crate::ffi::UnderLock;
use crate::ffi::clients::{address_of, name_of};

/// A client that was looked up.
#[derive(Clone)]
struct Known {
    client: ClientId,
    addr: Box<[u8]>,
}

/// The clients that were looked up, each at the place of its id: without this, each address costs a system call.
/// Ids are not used again, and a connection keeps its address.
static KNOWN: UnderLock<RefCell<Vec<Known>>> = UnderLock::new(RefCell::new(Vec::new()));

/// How many addresses are kept: some 40 KiB.
const PLACES: u64 = 512;

/// Looks a client up, with up to `most` bytes of its name; returns `None` for 0, and if the server does not know it.
pub fn identify(client: ClientId, most: usize) -> Option<Peer> {
    if client == ClientId(0) {
        return None;
    }
    let mut known = KNOWN.borrow_mut();
    if known.is_empty() {
        known.resize(usize::try_from(PLACES).ok()?, Known { client: ClientId(0), addr: Box::default() });
    }
    let place = known.get_mut(usize::try_from(client.0 % PLACES).ok()?)?;
    if place.client != client {
        *place = Known { client, addr: address_of(client.0)?.into_boxed_slice() };
    }
    Some(Peer { addr: place.addr.clone(), name: name_of(client.0, most) })
}
