//! The settings: `CONFIG SET dlock.…`, configuration file, and arguments of `loadmodule`.

use std::cell::Cell;

use dlock_core::Lease;
use dlock_core::args::Limits;
use dlock_core::engine::{LogSettings, Settings};

use crate::ffi::MainThread;
use crate::ffi::config::{Setting, load, register};
use crate::ffi::context::Context;

static DEFAULT_LEASE: MainThread<Setting> = setting("default-lease", 30_000, 1, Lease::MAX.get().cast_signed());
static MAX_LEASE: MainThread<Setting> =
    setting("max-lease", Lease::MAX.get().cast_signed(), 1, Lease::MAX.get().cast_signed());
static MAX_HOLD: MainThread<Setting> = setting("max-hold", 0, 0, Lease::MAX.get().cast_signed());
static MAX_WAITERS: MainThread<Setting> = setting("max-waiters", 10_000, 0, 1_000_000);
static MAX_SESSIONS: MainThread<Setting> = setting("max-sessions", 10_000, 0, 1_000_000);
static SESSION_GRACE: MainThread<Setting> = setting("session-grace", 0, 0, 3_600_000);
static LOG_MAX_LEN: MainThread<Setting> = setting("log-max-len", 128, 0, 100_000);
static LOG_WAIT: MainThread<Setting> = setting("log-wait", 1000, -1, 3_600_000);
static LOG_HOLD: MainThread<Setting> = setting("log-hold", -1, -1, Lease::MAX.get().cast_signed());

/// Returns the operator's settings, as the engine wants them.
#[inline]
pub fn settings() -> Settings {
    Settings {
        // `dlock.max-lease` if that is smaller than the default.
        default_lease: lease(&DEFAULT_LEASE).min(lease(&MAX_LEASE)),
        max_waiters: usize::try_from(MAX_WAITERS.value.get()).ok().filter(|max| *max > 0),
        max_sessions: usize::try_from(MAX_SESSIONS.value.get()).ok().filter(|max| *max > 0),
        session_grace: u64::try_from(SESSION_GRACE.value.get()).ok().and_then(Lease::new),
    }
}

/// Returns the operator's settings of the log.
pub fn log_settings() -> LogSettings {
    let number = |setting: &Setting| u64::try_from(setting.value.get()).ok();
    LogSettings {
        max_len: usize::try_from(LOG_MAX_LEN.value.get()).unwrap_or(0),
        wait_ms: number(&LOG_WAIT),
        hold_ms: number(&LOG_HOLD),
    }
}

/// Returns the bounds of leases and tokens at `now`.
pub fn limits(now: dlock_core::Now) -> Limits {
    let max_hold = u64::try_from(MAX_HOLD.value.get()).ok().and_then(Lease::new);
    Limits { now_us: now.us(), max_lease: lease(&MAX_LEASE), max_hold }
}

/// Registers all settings. `arguments` are those of `loadmodule`: names without the prefix, each with its value; they
/// become the defaults. An unknown name or a bad value refuses the load; a number is written as `CONFIG SET` wants it.
pub fn register_all(context: &Context<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    let settings: [&'static Setting; 9] = [
        &DEFAULT_LEASE,
        &MAX_LEASE,
        &MAX_HOLD,
        &MAX_WAITERS,
        &MAX_SESSIONS,
        &SESSION_GRACE,
        &LOG_MAX_LEN,
        &LOG_WAIT,
        &LOG_HOLD,
    ];
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

const fn setting(name: &'static str, default: i64, min: i64, max: i64) -> MainThread<Setting> {
    MainThread::new(Setting { name, default, min, max, value: Cell::new(default) })
}

fn lease(setting: &Setting) -> Lease {
    // The server keeps a setting in its range, which is that of a lease.
    u64::try_from(setting.value.get()).ok().and_then(Lease::new).unwrap_or(Lease::MAX)
}
