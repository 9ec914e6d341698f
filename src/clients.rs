//! Who a client is, as the log shows it.

use std::cell::RefCell;

use dlock_core::ClientId;
use dlock_core::engine::Peer;

use crate::ffi::MainThread;
use crate::ffi::clients::{address_of, name_of};

/// The addresses of clients that were looked up, each at the place that its id has: the server makes a system call for
/// each. Ids are not used again, and a connection keeps its address.
static KNOWN: MainThread<RefCell<Vec<(ClientId, Box<[u8]>)>>> = MainThread::new(RefCell::new(Vec::new()));

/// How many addresses are kept: some 40 KiB.
const PLACES: usize = 512;

/// Looks a client up; `None` if the server does not know it.
pub fn identify(client: ClientId) -> Option<Peer> {
    let mut known = KNOWN.borrow_mut();
    if known.is_empty() {
        known.resize(PLACES, (ClientId(0), Box::default()));
    }
    let (id, addr) = known.get_mut(client.0 as usize % PLACES)?;
    if *id != client {
        *addr = address_of(client.0)?.into_boxed_slice();
        *id = client;
    }
    Some(Peer { addr: addr.clone(), name: name_of(client.0).map(Vec::into_boxed_slice) })
}
