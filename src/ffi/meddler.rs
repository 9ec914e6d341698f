//! Plays another module, for tests: its callbacks, its threads, and its calls that may block. Has the server refuse to
//! open keys, too.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw;

use super::command::Arguments;
use super::context::Context;
use super::guard::guarded;
use super::strings::{KeyName, bytes_of, c_string};
use super::under_lock::UnderLock;

static PLAN: UnderLock<RefCell<Option<Plan>>> = UnderLock::new(RefCell::new(None));

struct Plan {
    /// The key whose own expiry does not count.
    key: Vec<u8>,
    event: Vec<u8>,
    command: Vec<Vec<u8>>,
}

/// Runs the command that follows the key, or deletes the key, as soon as another one has the event that follows `AT`, or
/// expires. One call leads to one run.
pub fn meddle_at_an_event(context: &Context<'_>, arguments: &Arguments<'_>) {
    let Ok(name) = arguments.key() else { return };
    let key = name.bytes().to_vec();
    let mut command: Vec<Vec<u8>> = arguments.after_key().map(<[u8]>::to_vec).collect();
    let event = if command.first().is_some_and(|word| word == b"AT") && command.len() > 1 {
        command.drain(..2).nth(1).unwrap_or_default()
    } else {
        b"expired".to_vec()
    };
    if command.is_empty() {
        command = vec![b"DEL".to_vec(), key.clone()];
    }
    PLAN.replace(Some(Plan { key, event, command }));
    let classes = raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_MODULE;
    // SAFETY: the context is live for the call; the callback is a function of this module, which is never unloaded.
    unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(context.raw, classes, Some(happened))) };
}

unsafe extern "C" fn happened(
    context: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    guarded("event of another key", (), || {
        // SAFETY: the server passes the live names of the event and of the key.
        let (event, key) = unsafe { (CStr::from_ptr(event).to_bytes(), bytes_of(key)) };
        let is_it = |plan: &mut Plan| plan.event == event && plan.key != key;
        let Some(Plan { command, .. }) = PLAN.borrow_mut().take_if(is_it) else { return };
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

/// The reply to the last command that ran in a thread, or was called as one that may block: the bytes of the protocol.
static LAST: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Returns the reply of the last command; `None` while that command runs.
pub fn last_reply() -> Option<Vec<u8>> {
    LAST.lock().ok()?.clone()
}

/// Calls a command as one that may block: there is no client behind it. [`last_reply`] returns its reply when it has
/// come. Returns whether the server has such calls.
pub fn call_as_one_that_may_block(context: &Context<'_>, words: &[Vec<u8>]) -> bool {
    if let Ok(mut last) = LAST.lock() {
        *last = None;
    }
    let Some((name, rest)) = words.split_first() else { return false };
    let name = c_string(&String::from_utf8_lossy(name));
    let rest: Vec<KeyName<'_>> = rest.iter().map(|word| KeyName::new(word)).collect();
    let raw_words: Vec<_> = rest.iter().map(KeyName::raw).collect();
    // SAFETY: the function is optional, and checked. The format announces a vector of strings with its length; they outlive
    // the call. The reply is ours, and freed once; null is no reply. The handler is never unloaded.
    unsafe {
        let Some(on_promise) = raw::RedisModule_CallReplyPromiseSetUnblockHandler else { return false };
        let reply =
            api!(RedisModule_Call(context.raw, name.as_ptr(), c"!vK".as_ptr(), raw_words.as_ptr(), raw_words.len()));
        if reply.is_null() {
            return false;
        }
        if api!(RedisModule_CallReplyType(reply)) == super::constant(raw::REDISMODULE_REPLY_PROMISE) {
            on_promise(reply, Some(came), std::ptr::null_mut());
        } else {
            keep_last(reply);
        }
        api!(RedisModule_FreeCallReply(reply));
    }
    true
}

unsafe extern "C" fn came(
    _context: *mut raw::RedisModuleCtx,
    reply: *mut raw::RedisModuleCallReply,
    _data: *mut std::ffi::c_void,
) {
    // SAFETY: the server gives the reply away, live.
    unsafe {
        keep_last(reply);
        api!(RedisModule_FreeCallReply(reply));
    }
}

/// # Safety
/// `reply` must be live, or null.
unsafe fn keep_last(reply: *mut raw::RedisModuleCallReply) {
    let mut text = b"no reply".to_vec();
    // SAFETY: by the caller's promise; the bytes are copied.
    unsafe {
        if let Some(protocol) = raw::RedisModule_CallReplyProto
            && !reply.is_null()
        {
            let mut len = 0;
            let bytes = protocol(reply, &raw mut len);
            if !bytes.is_null() {
                text = std::slice::from_raw_parts(bytes.cast(), len).to_vec();
            }
        }
    }
    if let Ok(mut last) = LAST.lock() {
        *last = Some(text);
    }
}

/// Runs a command in a thread that has taken the server's lock, as a module with threads does.
pub fn run_in_thread(words: Vec<Vec<u8>>) {
    if let Ok(mut last) = LAST.lock() {
        *last = None;
    }
    std::thread::spawn(move || {
        let Some((name, rest)) = words.split_first() else { return };
        let name = c_string(&String::from_utf8_lossy(name));
        // SAFETY: the functions are optional, and checked. The context is this thread's own, used with the lock and freed
        // once; the words outlive the call. The reply is ours, and freed once; null is no reply.
        unsafe {
            let (Some(create), Some(free), Some(lock), Some(unlock)) = (
                raw::RedisModule_GetThreadSafeContext,
                raw::RedisModule_FreeThreadSafeContext,
                raw::RedisModule_ThreadSafeContextLock,
                raw::RedisModule_ThreadSafeContextUnlock,
            ) else {
                return;
            };
            let context = create(std::ptr::null_mut());
            lock(context);
            let rest: Vec<KeyName<'_>> = rest.iter().map(|word| KeyName::new(word)).collect();
            let raw_words: Vec<_> = rest.iter().map(KeyName::raw).collect();
            let reply =
                api!(RedisModule_Call(context, name.as_ptr(), c"!v".as_ptr(), raw_words.as_ptr(), raw_words.len()));
            keep_last(reply);
            if !reply.is_null() {
                api!(RedisModule_FreeCallReply(reply));
            }
            drop(rest);
            unlock(context);
            free(context);
        }
    });
}

/// The server refuses to open a key for writing once in this many times, at random; 0: never.
static REFUSES: AtomicU64 = AtomicU64::new(0);

/// Has the server refuse to open keys for writing at random, once in N times.
pub fn refuse(once_in: u64) {
    REFUSES.store(once_in, Ordering::Relaxed);
}

pub(super) fn may_refuse() -> bool {
    REFUSES.load(Ordering::Relaxed) > 0
}

/// Returns whether the server refuses this time.
pub(super) fn refuses() -> bool {
    let once_in = REFUSES.load(Ordering::Relaxed);
    once_in > 0 && rand::random::<u64>().is_multiple_of(once_in)
}
