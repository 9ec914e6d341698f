//! dlock: distributed locks as a native feature of Redis and Valkey.
//!
//! This file is the contents page: what the module registers when the server loads it. Everything that decides is in the
//! crate `dlock-core`; here commands are parsed, keys opened, decisions carried out and replies written. See
//! ARCHITECTURE.md.

#![allow(missing_docs, reason = "the entries that redis_module! makes have none")]

mod answering;
mod aof;
mod clients;
mod commands;
mod config;
mod error;
mod eviction;
mod ffi;
mod hooks;
mod info;
mod keyspace;
mod outputs;
mod reply;
mod state;
mod waiter;

use redis_module::{Context, RedisString, Status, redis_module};

use crate::ffi::acl::add_category;
use crate::ffi::command::register;
use crate::ffi::data_type::DISTRLOCK;
use crate::ffi::hooks::{keep_context, set_hooks, set_options, subscribe_to_server_events};
use crate::ffi::info::register_info;

redis_module! {
    name: "dlock",
    version: 1,
    allocator: (ffi::alloc::Allocator, ffi::alloc::Allocator),
    data_types: [DISTRLOCK],
    init: load,
}

fn load(context: &Context, arguments: &[RedisString]) -> Status {
    ffi::log_panics();
    ffi::this_is_the_main_thread();
    let arguments: Vec<&[u8]> = arguments.iter().map(RedisString::as_slice).collect();
    let loaded = ffi::guarded("load", Err("dlock: not loaded".to_owned()), || {
        ffi::context::with_own(context, |context| register_all(context, &arguments))
    });
    match loaded {
        Ok(()) => {
            ffi::guarded("load", (), || eviction::warn_if_locks_can_be_evicted(context));
            Status::Ok
        }
        Err(reason) => {
            ffi::context::log_warning(&reason);
            Status::Err
        }
    }
}

fn register_all(context: &ffi::context::Context<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    set_hooks(hooks::HOOKS);
    set_options(context);
    config::register_all(context, arguments)?;
    register_info(context, info::write)?;
    add_category(context);
    register_commands(context)?;
    keep_context(context);
    subscribe_to_server_events(context)
}

fn register_commands(context: &ffi::context::Context<'_>) -> Result<(), String> {
    register::<commands::Acquire>(context)?;
    register::<commands::Racquire>(context)?;
    register::<commands::Rlock>(context)?;
    register::<commands::Wlock>(context)?;
    register::<commands::Sacquire>(context)?;
    register::<commands::Macquire>(context)?;
    register::<commands::Release>(context)?;
    register::<commands::Renew>(context)?;
    register::<commands::Check>(context)?;
    register::<commands::Info>(context)?;
    register::<commands::Log>(context)?;
    register::<commands::Session>(context)?;
    register::<commands::Help>(context)?;
    register::<commands::Apply>(context)?;
    #[cfg(debug_assertions)]
    register::<commands::Call>(context)?;
    #[cfg(debug_assertions)]
    register::<commands::Meddle>(context)?;
    #[cfg(debug_assertions)]
    register::<commands::Panic>(context)?;
    Ok(())
}
