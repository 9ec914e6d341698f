//! Which clients are connected, their names and their addresses.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::CStr;

use redis_module::raw;

use super::context::Context;
use super::hooks::detached;
use super::strings::bytes_of;
use super::under_lock::UnderLock;

/// Returns the address of a connected client as `CLIENT LIST` prints it, except for a Unix socket, which the server
/// names to modules in another way; `None` if there is no such connection.
pub fn address_of(id: u64) -> Option<Vec<u8>> {
    if !is_connected(id) {
        return None;
    }
    // SAFETY: a plain C struct, for which all zero is valid.
    let mut info: raw::RedisModuleClientInfo = unsafe { std::mem::zeroed() };
    info.version = u64::from(raw::REDISMODULE_CLIENTINFO_VERSION);
    // SAFETY: the server fills in the struct of that version.
    let known = unsafe { api!(RedisModule_GetClientInfoById((&raw mut info).cast(), id)) };
    // SAFETY: the address was zeroed, and the server ends it with a NUL.
    let host = unsafe { CStr::from_ptr(info.addr.as_ptr()) }.to_bytes();
    if known != super::OK || host.is_empty() {
        return None;
    }
    let (open, close) = if host.contains(&b':') { ("[", "]") } else { ("", "") };
    let port = format!("{close}:{}", info.port);
    Some([open.as_bytes(), host, port.as_bytes()].concat())
}

/// The connections, by id.
///
/// The server is not asked: Valkey 9.1 says that it knows the client of a call by another module that may block, which has
/// no connection, and crashes when it is asked for its address.
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

/// Finds the clients that were connected before the module was loaded: the server tells of those that come after it.
pub fn find_connections(context: &mut Context<'_>) {
    let listed = context.client_list().unwrap_or_default();
    let lines = listed.split(|byte| *byte == b'\n');
    let ids = lines.filter_map(|line| line.strip_prefix(b"id=")?.split(|byte| *byte == b' ').next());
    let ids = ids.filter_map(|id| std::str::from_utf8(id).ok()?.parse::<u64>().ok());
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

/// Returns the name of a connected client, if it has given itself one.
pub fn name_of(id: u64) -> Option<Vec<u8>> {
    if !is_connected(id) {
        return None;
    }
    // SAFETY: the function is optional, and checked; the kept context is live, and the name is copied and freed once.
    unsafe {
        let name = raw::RedisModule_GetClientNameById?(detached(), id);
        if name.is_null() {
            return None;
        }
        let bytes = bytes_of(name).to_vec();
        api!(RedisModule_FreeString(detached(), name));
        Some(bytes).filter(|name| !name.is_empty())
    }
}
