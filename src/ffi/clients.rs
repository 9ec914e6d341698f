//! The names and the addresses of the clients that are connected.

use std::ffi::CStr;

use redis_module::raw;

use super::connected::{add_connections, is_connected};
use super::context::Context;
use super::hooks::detached;
use super::strings::bytes_of;

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

/// Finds the clients that were connected before the module was loaded: the server reports only later ones.
pub fn find_connections(context: &mut Context<'_>) {
    let listed = context.client_list().unwrap_or_default();
    let lines = listed.split(|byte| *byte == b'\n');
    let ids = lines.filter_map(|line| line.strip_prefix(b"id=")?.split(|byte| *byte == b' ').next());
    let ids = ids.filter_map(|id| std::str::from_utf8(id).ok()?.parse::<u64>().ok());
    add_connections(ids);
}

/// Returns up to `most` bytes of the name of a connected client, if it has given itself one.
pub fn name_of(id: u64, most: usize) -> Option<Box<[u8]>> {
    if !is_connected(id) {
        return None;
    }
    // SAFETY: the function is optional, and checked; the kept context is live, and the name is copied and freed once.
    unsafe {
        let name = raw::RedisModule_GetClientNameById?(detached(), id);
        if name.is_null() {
            return None;
        }
        let bytes = bytes_of(name);
        let bytes: Box<[u8]> = bytes.get(..most).unwrap_or(bytes).into();
        api!(RedisModule_FreeString(detached(), name));
        Some(bytes).filter(|name| !name.is_empty())
    }
}
