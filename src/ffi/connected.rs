//! The ids of the connections.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::under_lock::UnderLock;

/// The connections, by id.
///
/// The server is not asked whether a client has a connection. If another module makes a call that may block, the client
/// of the call has none, but Valkey 9.1 knows it by its id, and crashes when it is asked for its address.
static CONNECTED: UnderLock<RefCell<Connections>> = UnderLock::new(RefCell::new(BTreeSet::new()));

type Connections = BTreeSet<u64>;

/// Records that a client is connected, or is not any more.
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

/// Forgets clients that are gone, of which no event told.
pub fn forget_lost_connections() {
    // SAFETY: with no place for the answer the function only says whether there is such a client.
    let is_known = |id: &u64| unsafe { api!(RedisModule_GetClientInfoById(std::ptr::null_mut(), *id)) == super::OK };
    CONNECTED.borrow_mut().retain(is_known);
}

/// Returns whether such a client is connected.
pub fn is_connected(id: u64) -> bool {
    CONNECTED.borrow().contains(&id)
}
