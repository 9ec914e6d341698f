//! The settings: `CONFIG SET dlock.…`, configuration file, and arguments of `loadmodule`.

use std::cell::Cell;

use dlock_core::Now;
use dlock_core::args::Limits;
use dlock_core::engine::{LogSettings, Settings};
use dlock_core::settings::{Range, Setting as Which};

use crate::ffi::UnderLock;
use crate::ffi::config::{Setting, load, register};
use crate::ffi::context::Context;

/// The settings, each at its discriminant.
static SETTINGS: UnderLock<[Setting; Which::ALL.len()]> = UnderLock::new(all());

/// Returns the operator's settings, as the engine wants them.
pub fn settings() -> Settings {
    Settings::of(value)
}

/// Returns the operator's settings of the log.
pub fn log_settings() -> LogSettings {
    LogSettings::of(value)
}

/// Returns the bounds of leases and tokens at `now`.
#[inline]
pub fn limits(now: Now) -> Limits {
    Limits::of(now.us(), value)
}

#[inline]
fn value(which: Which) -> i64 {
    // Each setting has an element.
    SETTINGS.get(which as usize).map_or(0, |setting| setting.value.get())
}

/// Registers all settings. `arguments` are those of `loadmodule`: names without the prefix, each with its value; they
/// become the defaults. An unknown name or a bad value refuses the load; a number is written as `CONFIG SET` wants it.
pub fn register_all(context: &Context<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    let settings: &'static [Setting] = &*SETTINGS;
    let given = parse(settings, arguments)?;
    for setting in settings {
        let default = given.iter().find(|(name, _)| *name == setting.name).map_or(setting.default, |(_, value)| *value);
        register(context, setting, default)?;
    }
    load(context)
}

fn parse(settings: &'static [Setting], arguments: &[&[u8]]) -> Result<Vec<(&'static str, i64)>, String> {
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

const fn all() -> [Setting; Which::ALL.len()] {
    let mut all = [const { setting(Which::DefaultLease) }; Which::ALL.len()];
    let (mut places, mut rest) = (all.as_mut_slice(), Which::ALL.as_slice());
    while let ([place, others @ ..], [which, more @ ..]) = (places, rest) {
        *place = setting(*which);
        (places, rest) = (others, more);
    }
    all
}

const fn setting(which: Which) -> Setting {
    let Range { name, default, min, max } = which.range();
    Setting { name, default, min, max, value: Cell::new(default) }
}
