//! The settings: `CONFIG SET dlock.…`, configuration file, and arguments of `loadmodule`.

use std::cell::Cell;

use dlock_core::Lease;

use crate::ffi::config::{Setting, load, register};
use crate::ffi::context::Context;
use crate::state::state;

/// What the operator set.
pub struct Settings {
    default_lease: Setting,
    max_lease: Setting,
    max_waiters: Setting,
    session_grace: Setting,
}

impl Settings {
    /// The defaults.
    pub const fn new() -> Settings {
        Settings {
            default_lease: setting("default-lease", 30_000, 1, Lease::MAX.get().cast_signed()),
            max_lease: setting("max-lease", Lease::MAX.get().cast_signed(), 1, Lease::MAX.get().cast_signed()),
            max_waiters: setting("max-waiters", 10_000, 0, 1_000_000),
            session_grace: setting("session-grace", 0, 0, 3_600_000),
        }
    }

    /// The longest lease a command may ask for.
    pub fn max_lease(&self) -> Lease {
        lease(&self.max_lease)
    }

    /// The lease of a new hold that names none: `dlock.max-lease` if that is smaller than the default.
    pub fn default_lease(&self) -> Lease {
        lease(&self.default_lease).min(self.max_lease())
    }

    /// How many may wait on this server; `None`: as many as there are.
    pub fn max_waiters(&self) -> Option<usize> {
        usize::try_from(self.max_waiters.value.get()).ok().filter(|max| *max > 0)
    }

    /// How long a hold is left after its session ended; `None`: it is released at once.
    pub fn session_grace(&self) -> Option<Lease> {
        u64::try_from(self.session_grace.value.get()).ok().and_then(Lease::new)
    }

    fn all(&'static self) -> [&'static Setting; 4] {
        [&self.default_lease, &self.max_lease, &self.max_waiters, &self.session_grace]
    }
}

/// Registers all settings. `arguments` are those of `loadmodule`: names without the prefix, each with its value; they
/// become the defaults. An unknown name or a bad value refuses the load; a number is written as `CONFIG SET` wants it.
pub fn register_all(context: &Context, arguments: &[&[u8]]) -> Result<(), String> {
    let settings = state().settings.all();
    let given = parse(&settings, arguments)?;
    for setting in settings {
        let default = given.iter().find(|(name, _)| *name == setting.name).map_or(setting.default, |(_, value)| *value);
        register(context, setting, default)?;
    }
    load(context)
}

fn parse(settings: &[&'static Setting], arguments: &[&[u8]]) -> Result<Vec<(&'static str, i64)>, String> {
    let mut given: Vec<(&'static str, i64)> = Vec::new();
    for pair in arguments.chunks(2) {
        let (name, value) = match pair {
            [name, value] => (*name, *value),
            _ => return Err("dlock: a module argument is a name and a value".to_owned()),
        };
        let shown = name.escape_ascii();
        let setting = settings
            .iter()
            .find(|setting| setting.name.as_bytes().eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("dlock: unknown module argument '{shown}'"))?;
        let value = std::str::from_utf8(value)
            .ok()
            .and_then(|value| value.parse::<i64>().ok().filter(|number| number.to_string() == value))
            .filter(|value| (setting.min..=setting.max).contains(value))
            .ok_or_else(|| {
                format!("dlock: module argument '{shown}' must be between {} and {}", setting.min, setting.max)
            })?;
        if given.iter().any(|(name, _)| *name == setting.name) {
            return Err(format!("dlock: module argument '{shown}' is given twice"));
        }
        given.push((setting.name, value));
    }
    Ok(given)
}

const fn setting(name: &'static str, default: i64, min: i64, max: i64) -> Setting {
    Setting { name, default, min, max, value: Cell::new(default) }
}

fn lease(setting: &Setting) -> Lease {
    // The server keeps a setting in its range, which is that of a lease.
    u64::try_from(setting.value.get()).ok().and_then(Lease::new).unwrap_or(Lease::MAX)
}
