//! The module's section of `INFO`.

use std::cell::Cell;
use std::ffi::c_int;

use redis_module::raw;

use super::context::Context;
use super::guard::guarded;
use super::strings::c_string;
use super::under_lock::UnderLock;

/// The module's section while it is written. If the client asked for other sections only, the server drops the fields.
pub struct Section(*mut raw::RedisModuleInfoCtx);

impl Section {
    /// Adds a field.
    pub fn text(&mut self, name: &str, text: &str) {
        let (name, text) = (c_string(name), c_string(text));
        // SAFETY: `self.0` is live for the call; the server copies the name and the text.
        unsafe { api!(RedisModule_InfoAddFieldCString(self.0, name.as_ptr(), text.as_ptr())) };
    }
}

/// The function that writes the fields.
static WRITE: UnderLock<Cell<fn(&mut Section)>> = UnderLock::new(Cell::new(|_| ()));

/// Registers `write` as the function that writes the section. It replaces the function of the crate `redis-module`,
/// which makes a backtrace for the server's crash report. A backtrace allocates, inside a signal handler, and on Valkey
/// 8.1 and later the report ends there.
pub fn register_info(context: &Context<'_>, write: fn(&mut Section)) -> Result<(), String> {
    WRITE.set(write);
    // SAFETY: called during the load; the callback is a function of this module, which is never unloaded.
    let registered = unsafe { api!(RedisModule_RegisterInfoFunc(context.raw, Some(info))) };
    if registered == super::OK { Ok(()) } else { Err("dlock: cannot add to INFO".to_owned()) }
}

extern "C" fn info(section: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    // The server writes a crash report in a signal handler, on any thread: the module's data may be half changed.
    if for_crash_report != 0 {
        return;
    }
    guarded("INFO", (), || {
        // SAFETY: the server passes a live context for the call. A section without a name is shown under the module's.
        unsafe { api!(RedisModule_InfoAddSection(section, c"".as_ptr())) };
        (WRITE.get())(&mut Section(section));
    });
}
