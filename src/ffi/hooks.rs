//! Keyspace notifications, timers and module options.

use std::ffi::{CStr, c_char, c_int, c_void};

use redis_module::raw;

use super::context::Context;
use super::guard::guarded;
use super::key::Name;

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

/// Runs `job` once, after `delay_ms`, outside any command: with 0 still in this turn of the event loop.
pub fn after(context: &Context, delay_ms: u32, job: fn(&Context)) {
    // SAFETY: the pointer carries a function, which `run_job` turns back.
    unsafe { api!(RedisModule_CreateTimer(context.raw, i64::from(delay_ms), Some(run_job), job as *mut c_void)) };
}

unsafe extern "C" fn run_job(context: *mut raw::RedisModuleCtx, job: *mut c_void) {
    // SAFETY: `after` put a function of this type in, and the context is live for the call.
    let (context, job) = unsafe { (Context::new(context), std::mem::transmute::<*mut c_void, fn(&Context)>(job)) };
    guarded("timer", || job(&context), || ());
}
