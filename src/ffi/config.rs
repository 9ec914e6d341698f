//! Registration of settings.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_longlong, c_void};

use redis_module::raw;

use super::context::Context;
use super::guard::guarded;
use super::hooks::hooks;
use super::strings::c_string;

/// A whole number that an operator sets.
pub struct Setting {
    /// Without the module's prefix.
    pub name: &'static str,
    /// The value if the operator sets none.
    pub default: i64,
    /// The smallest it may be.
    pub min: i64,
    /// The largest it may be.
    pub max: i64,
    /// The value.
    pub value: Cell<i64>,
}

/// Makes the setting known to `CONFIG` with `default` as its default.
pub fn register(context: &Context, setting: &'static Setting, default: i64) -> Result<(), String> {
    let name = c_string(setting.name);
    let data = std::ptr::from_ref(setting).cast_mut().cast::<c_void>();
    // SAFETY: the server copies the name and keeps the pointer, which is to a static.
    let registered = unsafe {
        api!(RedisModule_RegisterNumericConfig(
            context.raw,
            name.as_ptr(),
            default,
            raw::REDISMODULE_CONFIG_DEFAULT,
            setting.min,
            setting.max,
            Some(get),
            Some(set),
            None,
            data,
        ))
    };
    if registered == super::OK { Ok(()) } else { Err(format!("dlock: cannot register setting {}", setting.name)) }
}

/// Sets the registered settings to the values in the configuration file and the load command.
pub fn load(context: &Context) -> Result<(), String> {
    // SAFETY: called once, during the load, after all settings are registered.
    if unsafe { api!(RedisModule_LoadConfigs(context.raw)) } == super::OK {
        Ok(())
    } else {
        Err("dlock: cannot load the settings".to_owned())
    }
}

extern "C" fn get(_name: *const c_char, data: *mut c_void) -> c_longlong {
    guarded("config get", 0, || setting(data).value.get())
}

extern "C" fn set(
    _name: *const c_char,
    value: c_longlong,
    data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded("config set", super::ERR, || {
        setting(data).value.set(value);
        (hooks().setting_changed)();
        super::OK
    })
}

fn setting<'a>(data: *mut c_void) -> &'a Setting {
    // SAFETY: the pointer that `register` gave the server, to a static.
    unsafe { &*data.cast::<Setting>() }
}
