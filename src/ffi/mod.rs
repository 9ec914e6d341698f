//! The only unsafe code: thin, safe wrappers around what the module needs of the server.
//!
//! This is the ground floor: it imports nothing of the module. The module passes in the code that the server calls, as
//! a type that implements a trait ([`command::Command`], [`blocking::Ticket`]) or at load ([`hooks::Hooks`]).
//!
//! | file | wraps |
//! |---|---|
//! | `guard` | every entry from C: a panic becomes a log line and an error |
//! | `context` | the call context: flags, time, replies, events, log |
//! | `strings` | strings of C and of the server, names of keys |
//! | `key` | an open key, and the lock in it, as the engine reaches them |
//! | `data_type` | the callbacks of the type `distrlock` |
//! | `spec` | the description of a command, which the module registers |
//! | `command` | registration of commands and their entry; `command_docs`: their `COMMAND DOCS` |
//! | `alloc` | the server's allocator |
//! | `acl` | ACL categories, and which commands a client may run |
//! | `config` | registration of settings |
//! | `hooks` | server events, timers, and the module's functions that the server calls |
//! | `blocking` | clients that wait |
//! | `clients` | the names and the addresses of clients |
//! | `info` | the section of `INFO` |
//! | `scan` | whether a database has a lock |
//! | `meddler` | another module, for tests: only in debug builds |
//! | `main_thread` | module state, which only the thread of the event loop may use |
//!
//! Functions of the server are optional pointers, filled at load. Functions that every supported server has are called by
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

pub mod acl;
pub mod alloc;
pub mod blocking;
pub mod clients;
pub mod command;
mod command_docs;
pub mod config;
pub mod context;
pub mod data_type;
mod guard;
pub mod hooks;
pub mod info;
pub mod key;
mod main_thread;
#[cfg(debug_assertions)]
pub mod meddler;
pub mod scan;
pub mod spec;
pub mod strings;

use std::ffi::c_int;

use redis_module::raw;

pub use guard::{guarded, log_panics};
pub use main_thread::{MainThread, this_is_the_main_thread};

/// The result of a function of the module API on success.
const OK: c_int = constant(raw::REDISMODULE_OK);
/// The result on failure.
const ERR: c_int = constant(raw::REDISMODULE_ERR);

/// Returns a constant of the module API, which the bindings have in a wider type than the functions use.
#[allow(clippy::cast_possible_truncation, reason = "all of them are small")]
const fn constant(wide: isize) -> c_int {
    wide as c_int
}
