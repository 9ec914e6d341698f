//! The ids of the clients that have a connection.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::under_lock::UnderLock;

/// The ids of the clients that have a connection, as the server's events tell.
///
/// The server itself must not be asked. If another module makes a call that may block, the client of the call has no
/// connection; but Valkey 9.1 knows that client by its id, and crashes when it is asked for the client's address.
static CONNECTED: UnderLock<RefCell<Connections>> = UnderLock::new(RefCell::new(BTreeSet::new()));

type Connections = BTreeSet<u64>;

/// Records that a client has connected or disconnected.
pub(super) fn note_connection(id: u64, is_connected: bool) {
    let mut connected = CONNECTED.borrow_mut();
    if is_connected {
        connected.insert(id);
    } else {
        connected.remove(&id);
    }
}

/// Adds clients that were connected before the module was loaded.
pub(super) fn add_connections(ids: impl Iterator<Item = u64>) {
    CONNECTED.borrow_mut().extend(ids);
}

/// Forgets the clients that the server no longer knows. No event told of their end.
pub fn forget_lost_connections() {
    // SAFETY: without a place for the answer, the function only returns whether there is such a client.
    let is_known = |id: &u64| unsafe { api!(RedisModule_GetClientInfoById(std::ptr::null_mut(), *id)) == super::OK };
    CONNECTED.borrow_mut().retain(is_known);
}

/// Returns whether such a client is connected.
pub fn is_connected(id: u64) -> bool {
    CONNECTED.borrow().contains(&id)
}
