//! The only unsafe code: thin, safe wrappers around what the module needs of the server.
//!
//! | file | wraps |
//! |---|---|
//! | `guard` | every entry from C: a panic becomes a log line and an error |
//! | `context` | the call context: flags, time, replies, replication, events, log |
//! | `key` | an open key and the lock in it |
//! | `data_type` | the callbacks of the type `distrlock` |
//! | `command` | registration of commands, their docs and their entry |
//! | `config` | registration of settings |
//! | `hooks` | notifications, server events and timers |
//! | `blocking` | clients that wait |
//! | `scan` | a walk over all keys |
//! | `main_thread` | module state, which only the thread of the event loop touches |
//!
//! Functions of the server are optional pointers, filled at load. Those every server we support has are called by
//! [`api!`]; the others are checked where they are used.

/// Calls a function of the module API that every supported server has.
macro_rules! api {
    ($name:ident($($argument:expr),* $(,)?)) => {
        match ::redis_module::raw::$name {
            Some(function) => function($($argument),*),
            None => panic!(concat!(stringify!($name), " is missing on this server")),
        }
    };
}

pub mod blocking;
pub mod command;
pub mod config;
pub mod context;
pub mod data_type;
mod guard;
pub mod hooks;
pub mod key;
mod main_thread;
pub mod scan;

use std::ffi::c_int;

use redis_module::raw;

pub use guard::{guarded, report_panics};
pub use main_thread::MainThread;

/// What a function of the module API returns when it worked.
const OK: c_int = constant(raw::REDISMODULE_OK);
/// What it returns when it did not.
const ERR: c_int = constant(raw::REDISMODULE_ERR);

/// A constant of the module API, which the bindings have in a wider type than the functions use.
#[allow(clippy::cast_possible_truncation, reason = "all of them are small")]
const fn constant(wide: isize) -> c_int {
    wide as c_int
}
