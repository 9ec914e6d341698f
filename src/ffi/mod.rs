//! The only unsafe code: thin, safe wrappers around the functions of the server that the module needs.
//!
//! The folder is the lowest layer: it imports nothing from the rest of the module. The rest passes in the code that the
//! server calls, as a type that implements a trait ([`command::Command`], [`blocking::Ticket`]) or at load
//! ([`hooks::Hooks`]).
//!
//! | file | wraps |
//! |---|---|
//! | `load` | the entry by which the server loads the module |
//! | `guard` | every entry from C: a panic becomes a log line and an error |
//! | `context` | the call context: flags, time, replies, events, log |
//! | `strings` | strings of C and of the server, names of keys |
//! | `key` | an open key, and the lock in it, as the engine reaches them |
//! | `data_type` | the callbacks of the type `distrlock` |
//! | `command` | registration of commands and their entry; `command_docs`: their `COMMAND DOCS` |
//! | `alloc` | the server's allocator |
//! | `acl` | ACL categories, and which commands a user may run |
//! | `config` | registration of settings |
//! | `hooks` | server events, timers, and the module's functions that the server calls |
//! | `blocking` | clients that wait |
//! | `rights` | the rights of a client that waits |
//! | `clients` | the names and the addresses of clients |
//! | `connected` | the ids of the connections |
//! | `info` | the section of `INFO` |
//! | `scan` | whether a database has a lock |
//! | `meddler` | another module, for tests: only in debug builds |
//! | `planned` | panics that a test asks for: only in debug builds |
//! | `under_lock` | module state: only the thread that has the server's lock may use it |
//!
//! Functions of the server are optional pointers, filled at load. [`api!`] calls the functions that every supported
//! server has: the module is not loaded if one of them is missing ([`missing`]). Other functions are checked where they
//! are used.

/// Calls a function of the module API that every supported server has. The call is unsafe: the caller keeps the
/// promises of the function.
macro_rules! api {
    ($name:ident($($argument:expr),* $(,)?)) => {
        match ::redis_module::raw::$name {
            Some(function) => {
                // The constant exists only if `require!` lists the function.
                let () = $crate::ffi::required::$name;
                function($($argument),*)
            }
            // The module has refused to load on a server without the function.
            None => ::std::hint::unreachable_unchecked(),
        }
    };
}

/// Lists the functions that [`api!`] may call.
macro_rules! require {
    ($($name:ident)*) => {
        #[allow(non_upper_case_globals, dead_code, reason = "the server's names; some are called in debug builds only")]
        mod required {
            $(pub const $name: () = ();)*
        }

        /// Returns the first of the functions that the module needs and this server does not have.
        pub fn missing() -> Option<&'static str> {
            // SAFETY: the server has filled the pointers in, and nobody changes them.
            let found = unsafe { [$((stringify!($name), { raw::$name }.is_some())),*] };
            found.into_iter().find(|(_, is_there)| !is_there).map(|(name, _)| name)
        }
    };
}

require! {
    RedisModule_AvoidReplicaTraffic RedisModule_BlockClientOnKeys RedisModule_Call RedisModule_CallReplyArrayElement
    RedisModule_CallReplyStringPtr RedisModule_CallReplyType RedisModule_CloseKey RedisModule_CreateCommand
    RedisModule_CreateString RedisModule_CreateTimer RedisModule_DeleteKey RedisModule_DigestAddStringBuffer
    RedisModule_DigestEndSequence RedisModule_EmitAOF RedisModule_EventLoopAddOneShot RedisModule_Free
    RedisModule_FreeCallReply RedisModule_FreeModuleUser RedisModule_FreeServerInfo RedisModule_FreeString
    RedisModule_GetAbsExpire RedisModule_GetBlockedClientPrivateData RedisModule_GetClientId
    RedisModule_GetClientInfoById RedisModule_GetCommand RedisModule_GetContextFlags RedisModule_GetContextFromIO
    RedisModule_GetDbIdFromIO RedisModule_GetDbIdFromOptCtx RedisModule_GetDetachedThreadSafeContext
    RedisModule_GetKeyNameFromIO RedisModule_GetKeyNameFromOptCtx RedisModule_GetSelectedDb RedisModule_GetServerInfo
    RedisModule_HoldString
    RedisModule_InfoAddFieldCString RedisModule_InfoAddFieldULongLong RedisModule_InfoAddSection RedisModule_IsIOError
    RedisModule_IsKeysPositionRequest RedisModule_KeyAtPosWithFlags RedisModule_KeyType RedisModule_LoadConfigs
    RedisModule_LoadStringBuffer RedisModule_Log RedisModule_LogIOError RedisModule_ModuleTypeGetType
    RedisModule_ModuleTypeGetValue RedisModule_ModuleTypeSetValue RedisModule_NotifyKeyspaceEvent RedisModule_OpenKey
    RedisModule_RegisterInfoFunc RedisModule_RegisterNumericConfig RedisModule_Replicate RedisModule_ReplicateVerbatim
    RedisModule_ReplyWithArray RedisModule_ReplyWithCallReply RedisModule_ReplyWithError RedisModule_ReplyWithLongLong
    RedisModule_ReplyWithMap RedisModule_ReplyWithNull RedisModule_ReplyWithSimpleString
    RedisModule_ReplyWithStringBuffer RedisModule_SaveStringBuffer RedisModule_Scan RedisModule_ScanCursorCreate
    RedisModule_ScanCursorDestroy RedisModule_SelectDb RedisModule_ServerInfoGetFieldC RedisModule_SetAbsExpire
    RedisModule_SetCommandInfo RedisModule_SetDisconnectCallback RedisModule_SetModuleOptions
    RedisModule_SignalModifiedKey RedisModule_StopTimer RedisModule_StringPtrLen RedisModule_SubscribeToKeyspaceEvents
    RedisModule_SubscribeToServerEvent RedisModule_UnblockClient
}

pub mod acl;
pub mod alloc;
pub mod blocking;
pub mod clients;
pub mod command;
mod command_docs;
pub mod config;
pub mod connected;
pub mod context;
pub mod data_type;
mod guard;
pub mod hooks;
pub mod info;
pub mod key;
pub mod load;
#[cfg(debug_assertions)]
pub mod meddler;
#[cfg(debug_assertions)]
pub mod planned;
pub mod rights;
pub mod scan;
pub mod strings;
mod under_lock;

use std::ffi::c_int;

use redis_module::raw;

pub use guard::{guarded, log_panics};
pub use under_lock::{UnderLock, this_is_the_main_thread};

/// The result of a function of the module API on success.
const OK: c_int = constant(raw::REDISMODULE_OK);
/// The result of a function of the module API on failure.
const ERR: c_int = constant(raw::REDISMODULE_ERR);

/// Returns a constant of the module API, which the bindings have in a wider type than the functions use.
#[allow(clippy::cast_possible_truncation, reason = "all constants of the API are small")]
const fn constant(wide: isize) -> c_int {
    wide as c_int
}
