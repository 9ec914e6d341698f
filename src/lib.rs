//! dlock: distributed locks as a native feature of Redis and Valkey.
//!
//! This file is the contents page: what the module registers when the server loads it. The locking rules are in the
//! crate `dlock-core`; here a command is parsed, its key opened, the core asked, the outcome stored and replicated, and
//! the reply written. See ARCHITECTURE.md.

#![allow(missing_docs, reason = "the entries that redis_module! makes have none")]

mod alarm;
mod args;
mod commands;
mod config;
mod ended;
mod error;
mod events;
mod eviction;
mod expiry;
mod ffi;
mod joining;
mod lines;
mod quick;
mod reply;
mod sessions;
mod state;
mod stats;
mod store;
mod waiter;
mod waiting;

use redis_module::{Context, RedisString, Status, redis_module};

use crate::ffi::command::{Categories, add_category, register};
use crate::ffi::data_type::DISTRLOCK;
use crate::ffi::hooks::{Server, keep_context, set_options, subscribe_to_generic_events, subscribe_to_server_events};

redis_module! {
    name: "dlock",
    version: 1,
    allocator: (redis_module::alloc::RedisAlloc, redis_module::alloc::RedisAlloc),
    data_types: [DISTRLOCK],
    init: load,
}

fn load(context: &Context, arguments: &[RedisString]) -> Status {
    ffi::report_panics();
    let arguments: Vec<&[u8]> = arguments.iter().map(RedisString::as_slice).collect();
    let loaded = ffi::guarded(
        "load",
        || ffi::context::with_own(context, |context| register_all(context, &arguments)),
        || Err("dlock: not loaded".to_owned()),
    );
    match loaded {
        Ok(()) => {
            ffi::guarded("load", || eviction::warn_if_locks_can_be_evicted(context), || ());
            Status::Ok
        }
        Err(reason) => {
            ffi::context::log_warning(&reason);
            Status::Err
        }
    }
}

fn register_all(context: &ffi::context::Context, arguments: &[&[u8]]) -> Result<(), String> {
    let server = match context.server_info("server", "valkey_version") {
        Some(_) => Server::Valkey,
        None => Server::Redis,
    };
    set_options(context, server);
    config::register_all(context, arguments)?;
    let categories = add_category(context);
    register_commands(context, categories)?;
    keep_context(context);
    subscribe_to_generic_events(context)?;
    subscribe_to_server_events(context)
}

fn register_commands(context: &ffi::context::Context, categories: Categories) -> Result<(), String> {
    register::<commands::Acquire>(context, categories)?;
    register::<commands::Racquire>(context, categories)?;
    register::<commands::Rlock>(context, categories)?;
    register::<commands::Wlock>(context, categories)?;
    register::<commands::Release>(context, categories)?;
    register::<commands::Renew>(context, categories)?;
    register::<commands::Check>(context, categories)?;
    register::<commands::Info>(context, categories)?;
    register::<commands::Apply>(context, categories)?;
    #[cfg(feature = "panic-hook")]
    register::<commands::Panic>(context, categories)?;
    Ok(())
}
