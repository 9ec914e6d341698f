//! Clients that wait: blocked on the lock's key, never signalled, answered one by one.
//!
//! The server's own list of clients blocked on a key gives `MOVED`, `UNBLOCKED` and `CLIENT UNBLOCK`; the module keeps
//! the order and decides who is answered. Whatever ends a wait, the server calls [`free`] last and once.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

use redis_module::raw;

use super::context::Context;
use super::guard::guarded;
use super::strings::KeyName;

/// What the module knows about a client that waits.
pub trait Ticket: Sized + 'static {
    /// Where the handle of the blocked client is kept.
    fn blocked(&self) -> &Cell<Option<Blocked>>;

    /// The wait has ended, by the module or by its time: replies.
    fn answer(&self, context: &mut Context<'_>);

    /// The client is gone, or has its answer.
    fn gone(&self);
}

/// A client that the server has blocked for the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked(*mut raw::RedisModuleBlockedClient);

/// Blocks the client of the running command on a key. `timeout_ms` 0 is forever.
///
/// The running command must not reply any more. From here on the ticket is the server's, too, until it is freed.
pub fn block<T: Ticket>(context: &mut Context<'_>, name: &KeyName<'_>, timeout_ms: u64, ticket: &Rc<T>) {
    let data = Rc::into_raw(Rc::clone(ticket)).cast_mut().cast::<c_void>();
    let mut keys = [name.raw()];
    // SAFETY: context and name are live for the call; the server keeps the callbacks, which are never unloaded, and
    // the data, which `free` takes back.
    unsafe {
        let client = api!(RedisModule_BlockClientOnKeys(
            context.raw,
            Some(stay_blocked),
            Some(answer::<T>),
            Some(free::<T>),
            i64::try_from(timeout_ms).unwrap_or(i64::MAX),
            keys.as_mut_ptr(),
            1,
            data,
        ));
        api!(RedisModule_SetDisconnectCallback(client, Some(disconnected::<T>)));
        ticket.blocked().set(Some(Blocked(client)));
    }
}

impl Blocked {
    /// Has the client answered by its ticket. Until then nothing that the callbacks use may be borrowed: on some servers
    /// they run inside this call.
    pub fn unblock(self) {
        // SAFETY: the handle is live until `free` has run or the client is gone; `Ticket::blocked` is empty then.
        unsafe { api!(RedisModule_UnblockClient(self.0, std::ptr::null_mut())) };
    }
}

/// The key was created anew: that is no reason to answer.
extern "C" fn stay_blocked(
    _context: *mut raw::RedisModuleCtx,
    _arguments: *mut *mut raw::RedisModuleString,
    _count: c_int,
) -> c_int {
    super::ERR
}

extern "C" fn answer<T: Ticket>(
    context: *mut raw::RedisModuleCtx,
    _arguments: *mut *mut raw::RedisModuleString,
    _count: c_int,
) -> c_int {
    guarded("answer", (), || {
        // SAFETY: the server passes a live context of a client blocked by `block::<T>`, before `free`.
        unsafe { ticket_of::<T>(context).answer(&mut Context::new(context)) };
    });
    super::OK
}

extern "C" fn disconnected<T: Ticket>(context: *mut raw::RedisModuleCtx, _client: *mut raw::RedisModuleBlockedClient) {
    guarded("disconnect", (), || {
        // SAFETY: as in `answer`.
        let ticket = unsafe { ticket_of::<T>(context) };
        ticket.blocked().take();
        ticket.gone();
    });
}

extern "C" fn free<T: Ticket>(_context: *mut raw::RedisModuleCtx, data: *mut c_void) {
    // SAFETY: the data of `block::<T>`, which the server gives back once, here.
    let ticket = unsafe { Rc::from_raw(data.cast::<T>()) };
    guarded("free of a waiter", (), || {
        ticket.blocked().take();
        ticket.gone();
    });
}

/// # Safety
/// `context` must be that of a callback for a client blocked by `block::<T>`, before `free`.
unsafe fn ticket_of<T: Ticket>(context: *mut raw::RedisModuleCtx) -> Rc<T> {
    // SAFETY: by the caller's promise the private data is that of `block::<T>`, which the server holds until `free`. The
    // count keeps the ticket alive even if the server frees its own meanwhile.
    unsafe {
        let data = api!(RedisModule_GetBlockedClientPrivateData(context)).cast_const().cast::<T>();
        Rc::increment_strong_count(data);
        Rc::from_raw(data)
    }
}
