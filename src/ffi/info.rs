//! The module's section of `INFO`.

use std::cell::Cell;
use std::ffi::c_int;

use redis_module::raw;

use super::context::Context;
use super::guard::guarded;
use super::strings::c_string;
use super::under_lock::UnderLock;

/// The section while it is written. Where the client has asked for other sections, the server drops what is added.
pub struct Section(*mut raw::RedisModuleInfoCtx);

impl Section {
    /// Adds a text.
    pub fn text(&mut self, name: &str, text: &str) {
        let (name, text) = (c_string(name), c_string(text));
        // SAFETY: `self.0` is live for the call; the server copies both.
        unsafe { api!(RedisModule_InfoAddFieldCString(self.0, name.as_ptr(), text.as_ptr())) };
    }
}

static WRITE: UnderLock<Cell<fn(&mut Section)>> = UnderLock::new(Cell::new(|_| ()));

/// Lets `write` write the section, in place of what the crate `redis-module` has registered: that makes a backtrace in
/// the server's crash report, which allocates in a signal handler, and ends the report on Valkey 8.1 and later.
pub fn register_info(context: &Context<'_>, write: fn(&mut Section)) -> Result<(), String> {
    WRITE.set(write);
    // SAFETY: called during the load; the callback is a function of this module, which is never unloaded.
    let registered = unsafe { api!(RedisModule_RegisterInfoFunc(context.raw, Some(info))) };
    if registered == super::OK { Ok(()) } else { Err("dlock: cannot add to INFO".to_owned()) }
}

extern "C" fn info(section: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    // In a signal handler, on any thread, nothing of the module may be trusted.
    if for_crash_report != 0 {
        return;
    }
    guarded("INFO", (), || {
        // SAFETY: the server passes a live context for the call. A section without a name is shown under the module's.
        unsafe { api!(RedisModule_InfoAddSection(section, c"".as_ptr())) };
        (WRITE.get())(&mut Section(section));
    });
}
