//! Another module, for tests: what its callbacks do while the server does something for this one.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};

use redis_module::raw;

use super::command::Arguments;
use super::context::Context;
use super::guard::guarded;
use super::main_thread::MainThread;
use super::strings::bytes_of;

static VICTIM: MainThread<RefCell<Option<Vec<u8>>>> = MainThread::new(RefCell::new(None));

/// Deletes the key that the arguments name, as soon as another one expires. Called once for each key to delete.
pub fn delete_when_another_expires(context: &Context<'_>, arguments: &Arguments<'_>) {
    let Ok(name) = arguments.key() else { return };
    VICTIM.replace(Some(name.bytes().to_vec()));
    // SAFETY: the context is live for the call; the callback is a function of this module, which is never unloaded.
    unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(context.raw, raw::REDISMODULE_NOTIFY_EXPIRED, Some(expired))) };
}

unsafe extern "C" fn expired(
    context: *mut raw::RedisModuleCtx,
    _class: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    guarded("expired", (), || {
        // SAFETY: the server passes the live name of the key.
        let is_another = |victim: &mut Vec<u8>| *victim != unsafe { bytes_of(key) };
        let Some(victim) = VICTIM.borrow_mut().take_if(is_another) else { return };
        let (format, name) = (c"!b".as_ptr(), victim.as_ptr().cast::<c_char>());
        // SAFETY: the format announces a buffer with its length, which outlives the call. The reply is ours, and freed
        // once; null is no reply.
        unsafe {
            let reply = api!(RedisModule_Call(context, c"DEL".as_ptr(), format, name, victim.len()));
            if !reply.is_null() {
                api!(RedisModule_FreeCallReply(reply));
            }
        }
    });
    super::OK
}
