//! Keyspace notifications, server events, timers and module options.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use redis_module::raw;

use super::context::Context;
use super::guard::guarded;
use super::key::Name;
use super::main_thread::MainThread;

/// How the module and this server work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Redis.
    Redis,
    /// Valkey, whose slot migration wants to be told that the module can take part.
    Valkey,
}

/// Tells the server what the module takes care of itself.
pub fn set_options(context: &Context, server: Server) {
    // The header the bindings are made of has these as expressions, which do not come through.
    const NO_IMPLICIT_SIGNAL_MODIFIED: u32 = 1 << 1;
    const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;
    let migration = match server {
        Server::Redis => 0,
        Server::Valkey => HANDLE_ATOMIC_SLOT_MIGRATION,
    };
    let options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | NO_IMPLICIT_SIGNAL_MODIFIED | migration;
    // SAFETY: called during the load.
    unsafe { api!(RedisModule_SetModuleOptions(context.raw, options.cast_signed())) };
}

/// Has [`crate::expiry::on_generic_event`] called for keyspace events of class `g`.
pub fn subscribe_to_generic_events(context: &Context) -> Result<(), String> {
    // SAFETY: called during the load with a function of this module, which is never unloaded.
    let subscribed = unsafe {
        api!(RedisModule_SubscribeToKeyspaceEvents(context.raw, raw::REDISMODULE_NOTIFY_GENERIC, Some(generic_event)))
    };
    if subscribed == super::OK { Ok(()) } else { Err("dlock: keyspace events could not be subscribed to".to_owned()) }
}

extern "C" fn generic_event(
    context: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    let body = || {
        // SAFETY: the server passes a live context, event name and key for the call.
        let (context, event, key) = unsafe { (Context::new(context), CStr::from_ptr(event), Name::borrowed(key)) };
        crate::expiry::on_generic_event(&context, event, &key);
    };
    guarded("keyspace event", body, || ());
    super::OK
}

/// Has the module told of what frees locks or ends sessions without a word about keys.
pub fn subscribe_to_server_events(context: &Context) -> Result<(), String> {
    for id in [
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_CLIENT_CHANGE,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    ] {
        // SAFETY: called during the load with a function of this module, which is never unloaded.
        let subscribed = unsafe {
            let event = raw::RedisModuleEvent { id, dataver: 1 };
            api!(RedisModule_SubscribeToServerEvent(context.raw, event, Some(server_event)))
        };
        if subscribed != super::OK {
            return Err("dlock: server events could not be subscribed to".to_owned());
        }
    }
    Ok(())
}

extern "C" fn server_event(
    _context: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    sub_event: u64,
    data: *mut c_void,
) {
    let body = || {
        // SAFETY: the server passes with each event the structure that belongs to it.
        if let Some(event) = unsafe { event_of(event.id, sub_event, data) } {
            crate::events::on_event(event);
        }
    };
    guarded("server event", body, || ());
}

/// What the module is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A database is empty now; `None`: all are.
    Flushed(Option<c_int>),
    /// Two databases changed places.
    Swapped(c_int, c_int),
    /// The data were loaded anew.
    Loaded,
    /// A client is gone.
    ClientGone(u64),
    /// The server is a primary or a replica now.
    RoleChanged,
}

/// # Safety
/// `data` must point to the structure of that event.
unsafe fn event_of(id: u64, sub_event: u64, data: *mut c_void) -> Option<Event> {
    // SAFETY: by the caller's promise.
    unsafe {
        match (id, sub_event) {
            (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_END) => {
                let db = (*data.cast::<raw::RedisModuleFlushInfo>()).dbnum;
                Some(Event::Flushed(Some(db).filter(|db| *db >= 0)))
            }
            (raw::REDISMODULE_EVENT_SWAPDB, _) => {
                let swap = &*data.cast::<raw::RedisModuleSwapDbInfo>();
                Some(Event::Swapped(swap.dbnum_first, swap.dbnum_second))
            }
            (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_ENDED) => Some(Event::Loaded),
            (raw::REDISMODULE_EVENT_CLIENT_CHANGE, raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED) => {
                Some(Event::ClientGone((*data.cast::<raw::RedisModuleClientInfo>()).id))
            }
            (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, _) => Some(Event::RoleChanged),
            _ => None,
        }
    }
}

/// A timer that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer(raw::RedisModuleTimerID);

/// The context for timers that are set where the server gives none.
static DETACHED: MainThread<Cell<*mut raw::RedisModuleCtx>> = MainThread::new(Cell::new(null_mut()));

/// Makes the context that [`after`] and [`stop`] use. Called during the load.
pub fn keep_context(context: &Context) {
    // SAFETY: called during the load; the context is kept for good.
    DETACHED.set(unsafe { api!(RedisModule_GetDetachedThreadSafeContext(context.raw)) });
}

/// Runs `job` once, after `delay_ms`, outside any command: with 0 still in this turn of the event loop.
pub fn after(delay_ms: u32, job: fn(&Context)) -> Timer {
    // SAFETY: the context is kept since the load; the pointer carries a function, which `run_job` turns back.
    Timer(unsafe {
        api!(RedisModule_CreateTimer(DETACHED.get(), i64::from(delay_ms), Some(run_job), job as *mut c_void))
    })
}

/// Stops a timer that has not begun to run.
pub fn stop(timer: Timer) {
    // SAFETY: the context is kept since the load; the server knows which timers there are.
    unsafe { api!(RedisModule_StopTimer(DETACHED.get(), timer.0, null_mut())) };
}

unsafe extern "C" fn run_job(context: *mut raw::RedisModuleCtx, job: *mut c_void) {
    // SAFETY: `after` put a function of this type in, and the context is live for the call.
    let (context, job) = unsafe { (Context::new(context), std::mem::transmute::<*mut c_void, fn(&Context)>(job)) };
    guarded("timer", || job(&context), || ());
}
