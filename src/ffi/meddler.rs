//! Another module, for tests: what its callbacks do while the server does something for this one.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};

use redis_module::raw;

use super::command::Arguments;
use super::context::Context;
use super::guard::guarded;
use super::main_thread::MainThread;
use super::strings::{KeyName, bytes_of, c_string};

static PLAN: MainThread<RefCell<Option<Plan>>> = MainThread::new(RefCell::new(None));

struct Plan {
    /// The key whose own expiry does not count.
    key: Vec<u8>,
    command: Vec<Vec<u8>>,
}

/// Runs the command that follows the key, or deletes the key, as soon as another one expires. One call leads to one run.
pub fn meddle_when_another_expires(context: &Context<'_>, arguments: &Arguments<'_>) {
    let Ok(name) = arguments.key() else { return };
    let key = name.bytes().to_vec();
    let mut command: Vec<Vec<u8>> = arguments.after_key().map(<[u8]>::to_vec).collect();
    if command.is_empty() {
        command = vec![b"DEL".to_vec(), key.clone()];
    }
    PLAN.replace(Some(Plan { key, command }));
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
        let is_another = |plan: &mut Plan| plan.key != unsafe { bytes_of(key) };
        let Some(Plan { command, .. }) = PLAN.borrow_mut().take_if(is_another) else { return };
        let Some((name, rest)) = command.split_first() else { return };
        let name = c_string(&String::from_utf8_lossy(name));
        let rest: Vec<KeyName<'_>> = rest.iter().map(|word| KeyName::new(word)).collect();
        let words: Vec<_> = rest.iter().map(KeyName::raw).collect();
        // SAFETY: the format announces a vector of strings with its length; they outlive the call. The reply is ours, and
        // freed once; null is no reply.
        unsafe {
            let reply = api!(RedisModule_Call(context, name.as_ptr(), c"!v".as_ptr(), words.as_ptr(), words.len()));
            if !reply.is_null() {
                api!(RedisModule_FreeCallReply(reply));
            }
        }
    });
    super::OK
}
