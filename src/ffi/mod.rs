//! The only unsafe code: thin, safe wrappers around what the module needs of the server.
//!
//! This is the ground floor: it imports nothing of the module. What the server calls is passed in, as a type that
//! implements a trait ([`command::Command`], [`blocking::Ticket`]) or at load ([`hooks::Hooks`]).
//!
//! | file | wraps |
//! |---|---|
//! | `guard` | every entry from C: a panic becomes a log line and an error |
//! | `context` | the call context: flags, time, replies, events, log |
//! | `strings` | strings of C and of the server, names of keys |
//! | `key` | an open key, and the lock in it, as the engine reaches them |
//! | `data_type` | the callbacks of the type `distrlock` |
//! | `spec` | what is said about a command when it is registered |
//! | `command` | registration of commands and their entry; `command_docs`: their `COMMAND DOCS` |
//! | `alloc` | the server's allocator |
//! | `acl` | ACL categories, and which commands a client may run |
//! | `config` | registration of settings |
//! | `hooks` | server events, timers, and what the server calls of the module |
//! | `blocking` | clients that wait |
//! | `clients` | who a client is |
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

/// What a function of the module API returns on success.
const OK: c_int = constant(raw::REDISMODULE_OK);
/// What it returns on failure.
const ERR: c_int = constant(raw::REDISMODULE_ERR);

/// A constant of the module API, which the bindings have in a wider type than the functions use.
#[allow(clippy::cast_possible_truncation, reason = "all of them are small")]
const fn constant(wide: isize) -> c_int {
    wide as c_int
}
