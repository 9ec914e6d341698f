//! Clients that wait: blocked on the lock's key, never signalled, answered one by one.
//!
//! The server's own list of clients blocked on a key gives `MOVED`, `UNBLOCKED` and `CLIENT UNBLOCK`; the module keeps
//! the order and decides who is answered. However a wait ends, the server calls [`free`] last and once.
//!
//! Redis 7.0 and 7.2 (and Valkey 7.2) send the answer as soon as the module unblocks a client, but count the client as
//! blocked until they are about to sleep. An event that ends the wait in between (`CLIENT UNBLOCK`, a demotion, a slot
//! that leaves) would send a second reply. There the module unblocks its clients at the end of the turn: see
//! [`unblock`].

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::rc::Rc;

use redis_module::raw;

use super::acl::has_categories;
use super::context::Context;
use super::guard::guarded;
use super::hooks;
use super::strings::KeyName;
use super::under_lock::UnderLock;

/// The module's view of a client that waits.
pub trait Ticket: 'static {
    /// Returns where the handle of the blocked client is kept.
    fn blocked(&self) -> &Cell<Option<Blocked>>;

    /// Replies: the wait has ended, by the module or by its time.
    fn answer(&self, context: &mut Context<'_>);

    /// Records that the client is gone, or has its answer.
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
    watch_turns();
    // SAFETY: context and name are live for the call; the server keeps the callbacks, which are never unloaded, and
    // the data, which `free` takes back.
    unsafe {
        let client = api!(RedisModule_BlockClientOnKeys(
            context.raw,
            // The reply callback, for a command that has signalled the key.
            Some(stay_blocked),
            // The timeout callback, which the server also calls for a client that the module unblocks.
            Some(answer::<T>),
            Some(free::<T>),
            i64::try_from(timeout_ms).unwrap_or(i64::MAX),
            keys.as_mut_ptr(),
            1,
            data,
        ));
        context.owes_nothing();
        api!(RedisModule_SetDisconnectCallback(client, Some(disconnected::<T>)));
        ticket.blocked().set(Some(Blocked(client)));
    }
}

/// How the module learns of the server's turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    /// The module does not hear of turns: no client has waited yet, or this server lets it unblock clients at once.
    Unknown,
    /// The server's work goes on, and there will be another end of the turn.
    Running,
    /// The event loop is about to sleep, or sleeps.
    Ended,
}

static TURNS: UnderLock<Cell<Turns>> = UnderLock::new(Cell::new(Turns::Unknown));

/// The clients to unblock at the end of the turn, in order.
static ANSWERED: UnderLock<RefCell<Vec<Rc<dyn Ticket>>>> = UnderLock::new(RefCell::new(Vec::new()));

/// Unblocks a client, which then gets its answer from its ticket. The caller must not hold a borrow of anything that
/// the callbacks use: on some servers they run inside this call.
///
/// Where it would be too early to unblock at once, the client is unblocked when the server is about to sleep. If the
/// server ends the wait before, it asks the ticket for its answer, or sends an error in its place.
pub fn unblock<T: Ticket>(ticket: Rc<T>) {
    match TURNS.get() {
        _ if ticket.blocked().get().is_none() => {}
        Turns::Unknown => unblock_now(&*ticket),
        turns => {
            ANSWERED.borrow_mut().push(ticket);
            if turns == Turns::Ended {
                wake_up();
            }
        }
    }
}

fn unblock_now(ticket: &dyn Ticket) {
    if let Some(blocked) = ticket.blocked().take() {
        blocked.unblock();
    }
}

/// Has the server tell when it is about to sleep, where clients must not be unblocked earlier. Called when a client is
/// about to wait, so that a module whose clients never wait does not pay for it.
fn watch_turns() {
    // The servers without ACL categories for modules are those that answer inside of `UnblockClient`.
    if TURNS.get() != Turns::Unknown || has_categories() {
        return;
    }
    if hooks::watch_turns(turn_ends_or_begins) {
        TURNS.set(Turns::Running);
    }
}

fn turn_ends_or_begins(is_end: bool) {
    TURNS.set(if is_end { Turns::Ended } else { Turns::Running });
    if is_end {
        let mut answered = ANSWERED.take();
        answered.drain(..).for_each(|ticket| guarded("end of a wait", (), || unblock_now(&*ticket)));
        // The memory of the list is used again.
        if answered.capacity() <= 64 && ANSWERED.borrow().is_empty() {
            ANSWERED.replace(answered);
        }
    }
}

/// Has the server's next turn begin at once.
fn wake_up() {
    extern "C" fn nothing(_data: *mut c_void) {}
    // SAFETY: the callback uses no data, and is never unloaded. Every server on which `watch_turns` subscribes has this
    // function.
    unsafe { api!(RedisModule_EventLoopAddOneShot(Some(nothing), std::ptr::null_mut())) };
}

impl Blocked {
    /// Has the client answered by its ticket. The caller must not hold a borrow of anything that the callbacks use: on
    /// some servers they run inside this call.
    fn unblock(self) {
        // SAFETY: the handle is live until `free` has run or the client is gone; `Ticket::blocked` is empty then.
        unsafe { api!(RedisModule_UnblockClient(self.0, std::ptr::null_mut())) };
    }
}

/// Answers nothing: that a key was created again ends no wait.
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
