//! The entry by which the server loads the module.
//!
//! The macro `redis_module!` of the bindings would make this entry, too. But if the module is loaded already, that
//! entry logs no reason, and the server stops.

use std::ffi::{CStr, c_int};

use redis_module::server_events::register_server_events;
use redis_module::{Context, MODULE_CONTEXT, RedisString, decode_args, raw};

use super::context::log_warning;
use super::data_type::DISTRLOCK;

/// The name and the version of the module, as `MODULE LIST` shows them, and its work when it is loaded.
pub struct Module {
    /// The name.
    pub name: &'static CStr,
    /// The version, as a number.
    pub version: c_int,
    /// Registers everything. Returns whether the module is loaded.
    pub load: fn(&Context, &[RedisString]) -> bool,
}

/// Defines the entry that the server calls.
macro_rules! entry {
    ($module:expr) => {
        /// Loads the module. Only the server calls this.
        ///
        /// # Safety
        /// The context must be that of a load, and there must be `count` live strings.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the server's name")]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            context: *mut ::redis_module::raw::RedisModuleCtx,
            arguments: *mut *mut ::redis_module::raw::RedisModuleString,
            count: ::std::ffi::c_int,
        ) -> ::std::ffi::c_int {
            // SAFETY: the server passes the context of the load and `count` live strings.
            unsafe { $crate::ffi::load::load(&$module, context, arguments, count) }
        }
    };
}
pub(crate) use entry;

/// Loads a module. Returns the code for the server. An error stops a server that is starting.
///
/// # Safety
/// The context must be that of a load, and there must be `count` live strings.
pub unsafe fn load(
    module: &Module,
    context: *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: by the caller's promise. `InitAPI` fills in the functions of the server before they are called;
    // `IsModuleNameBusy` may still be missing, and is checked.
    let is_registered = unsafe {
        raw::Export_RedisModule_InitAPI(context);
        if raw::RedisModule_IsModuleNameBusy.is_some_and(|is_busy| is_busy(module.name.as_ptr()) != 0) {
            log_warning(
                "dlock: the module is loaded already, and cannot be loaded twice: remove one of the lines loadmodule, or the \
                 option --loadmodule",
            );
            return super::ERR;
        }
        let api_version = super::constant(raw::REDISMODULE_APIVER_1 as isize);
        raw::Export_RedisModule_Init(context, module.name.as_ptr(), module.version, api_version) == super::OK
    };
    if !is_registered {
        return super::ERR;
    }
    let server = Context::new(context);
    // The logger of the bindings uses this context.
    let is_kept = MODULE_CONTEXT.set_context(&server).is_ok();
    let arguments = decode_args(context, arguments, count);
    let is_ready = is_kept && DISTRLOCK.create_data_type(context).is_ok() && register_server_events(&server).is_ok();
    if is_ready && (module.load)(&server, &arguments) { super::OK } else { super::ERR }
}
