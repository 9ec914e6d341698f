//! dlock: distributed locks as a native feature of Redis and Valkey.
//!
//! The file has what the module registers when the server loads it. All decisions are in the crate `dlock-core`; the
//! module parses commands, opens keys, carries out decisions and writes replies. See ARCHITECTURE.md.

mod answering;
mod aof;
mod clients;
mod commands;
mod config;
mod default_user;
mod error;
mod eviction;
mod ffi;
mod hooks;
mod info;
mod keyspace;
mod outputs;
mod state;
mod waiter;

use redis_module::{Context, RedisString};

use crate::ffi::acl::{add_category, look_up_check};
use crate::ffi::clients::find_connections;
use crate::ffi::hooks::{keep_context, set_hooks, set_options, subscribe_to_server_events};
use crate::ffi::info::register_info;
use crate::state::wake_now;

#[global_allocator]
static ALLOCATOR: ffi::alloc::Allocator = ffi::alloc::Allocator;

ffi::load::entry!(ffi::load::Module { name: c"dlock", version: VERSION, load });

/// The version as the server keeps it: 0.1.0 is 100, and 2.3.4 is 20304.
const VERSION: i32 = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(digits: &str) -> i32 {
    let (mut number, mut rest) = (0, digits.as_bytes());
    while let [digit, more @ ..] = rest {
        number = number * 10 + (*digit - b'0') as i32;
        rest = more;
    }
    number
}

/// Loads the module. Returns whether it could.
fn load(context: &Context, arguments: &[RedisString]) -> bool {
    if let Some(function) = ffi::missing() {
        context.log_warning(&format!("dlock: this server is too old: it has no {function}"));
        return false;
    }
    ffi::log_panics();
    ffi::this_is_the_main_thread();
    let arguments: Vec<&[u8]> = arguments.iter().map(RedisString::as_slice).collect();
    let loaded = ffi::guarded("load", Err("dlock: not loaded".to_owned()), || {
        ffi::context::with_own(context, |context| register_all(context, &arguments))
    });
    match loaded {
        Ok(()) => {
            ffi::guarded("load", (), || {
                eviction::warn_if_locks_can_be_evicted(context);
                eviction::warn_if_locks_are_freed_at_once(context);
            });
            true
        }
        Err(reason) => {
            ffi::context::log_warning(&reason);
            false
        }
    }
}

fn register_all(context: &mut ffi::context::Context<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    set_hooks(hooks::HOOKS);
    set_options(context);
    config::register_all(context, arguments)?;
    register_info(context, info::write)?;
    add_category(context);
    look_up_check();
    commands::register_commands(context)?;
    keep_context(context);
    subscribe_to_server_events(context)?;
    find_connections(context);
    wake_now();
    Ok(())
}
