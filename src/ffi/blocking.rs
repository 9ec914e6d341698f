//! Clients that wait: blocked on the lock's key, never signalled, answered one by one.
//!
//! The server's own list of clients blocked on a key gives `MOVED`, `UNBLOCKED` and `CLIENT UNBLOCK`; the module keeps
//! the order and decides who is answered. Whatever ends a wait, the server calls [`free`] last and once.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use redis_module::raw;

use super::context::Context;
use super::guard::guarded;
use super::key::Name;
use crate::waiter::Waiter;
use crate::waiting;

/// A client that the server has blocked for the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked(*mut raw::RedisModuleBlockedClient);

/// Blocks the client of the running command on a key. `timeout_ms` 0 is for ever.
///
/// The running command must not reply any more; from here on the waiter is the server's too, until it is freed.
pub fn block(context: &Context, name: &Name, timeout_ms: u64, waiter: &Rc<Waiter>) {
    let data = Rc::into_raw(Rc::clone(waiter)).cast_mut().cast::<c_void>();
    let mut keys = [name.raw()];
    // SAFETY: context and name are live for the call; the server keeps the callbacks, which are never unloaded, and
    // the data, which `free` takes back.
    unsafe {
        let client = api!(RedisModule_BlockClientOnKeys(
            context.raw,
            Some(stay_blocked),
            Some(answer),
            Some(free),
            i64::try_from(timeout_ms).unwrap_or(i64::MAX),
            keys.as_mut_ptr(),
            1,
            data,
        ));
        api!(RedisModule_SetDisconnectCallback(client, Some(disconnected)));
        waiter.blocked.set(Some(Blocked(client)));
    }
}

impl Blocked {
    /// Has the client answered by what its waiter says. Until then nothing that the callbacks use may be borrowed:
    /// on some servers they run inside this call.
    pub fn unblock(self) {
        // SAFETY: the handle is live until `free` has run or the client is gone; `Waiter::blocked` is taken then.
        unsafe { api!(RedisModule_UnblockClient(self.0, std::ptr::null_mut())) };
    }
}

/// The key was made anew: that is no reason to answer.
extern "C" fn stay_blocked(
    _context: *mut raw::RedisModuleCtx,
    _arguments: *mut *mut raw::RedisModuleString,
    _count: c_int,
) -> c_int {
    super::ERR
}

/// The wait ended, by the module or by its time.
extern "C" fn answer(
    context: *mut raw::RedisModuleCtx,
    _arguments: *mut *mut raw::RedisModuleString,
    _count: c_int,
) -> c_int {
    let body = || {
        // SAFETY: the server passes a live context; its data is that of `block`, which `free` has not had yet.
        let (context, waiter) = unsafe { (Context::new(context), waiter_of(context)) };
        waiting::answer(waiter, &context);
    };
    guarded("answer", body, || ());
    super::OK
}

extern "C" fn disconnected(context: *mut raw::RedisModuleCtx, _client: *mut raw::RedisModuleBlockedClient) {
    // SAFETY: as in `answer`.
    guarded("disconnect", || waiting::forget(unsafe { waiter_of(context) }), || ());
}

extern "C" fn free(_context: *mut raw::RedisModuleCtx, data: *mut c_void) {
    // SAFETY: the data of `block`, which the server gives back once, here.
    let waiter = unsafe { Rc::from_raw(data.cast::<Waiter>()) };
    guarded("free of a waiter", || waiting::forget(&waiter), || ());
}

/// # Safety
/// `context` must be that of a callback for a client blocked by `block`, before `free`.
unsafe fn waiter_of<'a>(context: *mut raw::RedisModuleCtx) -> &'a Waiter {
    // SAFETY: by the caller's promise.
    unsafe { &*api!(RedisModule_GetBlockedClientPrivateData(context)).cast::<Waiter>() }
}
