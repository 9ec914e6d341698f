//! The names and the addresses of clients.

use std::ffi::CStr;

use redis_module::raw;

use super::hooks::detached;
use super::strings::bytes_of;

/// Returns the address of a connected client as `CLIENT LIST` prints it, except for a Unix socket, which the server
/// names to modules in another way; `None` if there is no such connection.
pub fn address_of(id: u64) -> Option<Vec<u8>> {
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

/// Returns whether such a client is connected.
pub fn is_connected(id: u64) -> bool {
    // SAFETY: with no place for the answer the function only says whether there is such a client.
    unsafe { api!(RedisModule_GetClientInfoById(std::ptr::null_mut(), id)) == super::OK }
}

/// Returns the name of a connected client, if it has given itself one.
pub fn name_of(id: u64) -> Option<Vec<u8>> {
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
