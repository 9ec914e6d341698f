//! The operator's settings: name, default and range of each, and the values that the engine and the parser of arguments
//! read. A new setting needs a line in the table, a field of [`Settings`], [`LogSettings`] or [`Limits`], and a line in
//! the function `of` of that type.
//!
//! To the server, a setting is a whole number. Here it becomes a value that is valid by its type.

use crate::{Lease, UnixMs};

/// Lists each setting once, with its name without the prefix `dlock.`, its default, and the smallest and the largest
/// value.
macro_rules! settings {
    ($($(#[$doc:meta])* $setting:ident: $name:literal, $default:expr, $min:expr, $max:expr;)*) => {
        /// A setting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Setting {
            $($(#[$doc])* $setting,)*
        }

        impl Setting {
            /// All settings, in the order of their discriminants.
            pub const ALL: [Setting; [$($name),*].len()] = [$(Setting::$setting),*];

            /// Returns the name, the default and the range.
            pub const fn range(self) -> Range {
                match self {
                    $(Setting::$setting => Range { name: $name, default: $default, min: $min, max: $max },)*
                }
            }
        }
    };
}

settings! {
    /// The lease of a new hold, if the request names none, in ms.
    DefaultLease: "default-lease", 30_000, 1, YEAR_MS;
    /// The longest lease that a command may give, in ms.
    MaxLease: "max-lease", YEAR_MS, 1, YEAR_MS;
    /// How many ms a hold may last at most; 0: no limit.
    MaxHold: "max-hold", 0, 0, YEAR_MS;
    /// How far ahead of the clock `MINTOKEN` may lift tokens, in ms.
    MaxTokenLead: "max-token-lead", 10_000, 0, 3_600_000;
    /// How many places in queues requests may take; 0: no limit.
    MaxWaiters: "max-waiters", 10_000, 0, 1_000_000;
    /// How many named sessions may be open; 0: no limit.
    MaxSessions: "max-sessions", 10_000, 0, 1_000_000;
    /// How many named sessions one user may have open; 0: nine tenths of `max-sessions`.
    MaxSessionsPerUser: "max-sessions-per-user", 0, 0, 1_000_000;
    /// How many ms a hold stays after its session ended; 0: it is released at once.
    SessionGrace: "session-grace", 0, 0, 3_600_000;
    /// How many entries the log keeps.
    LogMaxLen: "log-max-len", 128, 0, 100_000;
    /// How many ms a wait must last to be logged; -1: no wait is logged.
    LogWait: "log-wait", 1000, -1, 3_600_000;
    /// How many ms a hold must last to be logged; -1: no hold is logged for that.
    LogHold: "log-hold", -1, -1, YEAR_MS;
}

/// The name, the default and the range of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Without the prefix `dlock.`.
    pub name: &'static str,
    /// The value if the operator sets none.
    pub default: i64,
    /// The smallest value.
    pub min: i64,
    /// The largest value.
    pub max: i64,
}

/// The settings that the engine reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The lease of a new hold, if the request names none.
    pub default_lease: Lease,
    /// How many places in queues all requests may take together, one for each lock; `None`: no limit.
    pub max_waiters: Option<usize>,
    /// How many named sessions may be open; `None`: no limit.
    pub max_sessions: Option<usize>,
    /// How many named sessions one user may have open; `None`: no limit.
    pub max_sessions_per_user: Option<usize>,
    /// How long a hold stays after its session ended; `None`: it is released at once.
    pub session_grace: Option<Lease>,
}

impl Settings {
    /// Returns settings without limits and without grace.
    pub const fn new(default_lease: Lease) -> Settings {
        Settings {
            default_lease,
            max_waiters: None,
            max_sessions: None,
            max_sessions_per_user: None,
            session_grace: None,
        }
    }

    /// Returns the settings with these values, each of which is in the range of its setting.
    pub fn of(value: impl Fn(Setting) -> i64) -> Settings {
        let max_sessions = limit(value(Setting::MaxSessions));
        Settings {
            // The default lease is not longer than `dlock.max-lease`.
            default_lease: lease(value(Setting::DefaultLease)).min(lease(value(Setting::MaxLease))),
            max_waiters: limit(value(Setting::MaxWaiters)),
            max_sessions,
            max_sessions_per_user: limit(value(Setting::MaxSessionsPerUser)).or(max_sessions.map(share)),
            session_grace: may_be_lease(value(Setting::SessionGrace)),
        }
    }
}

/// The settings of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How many entries are kept.
    pub max_len: usize,
    /// Waits of this many ms or more are logged; `None`: no waits.
    pub wait_ms: Option<u64>,
    /// Holds that are released after this many ms or more are logged; `None`: no such holds.
    pub hold_ms: Option<u64>,
}

impl LogSettings {
    /// Returns the settings with these values, each of which is in the range of its setting.
    pub fn of(value: impl Fn(Setting) -> i64) -> LogSettings {
        LogSettings {
            max_len: usize::try_from(value(Setting::LogMaxLen)).unwrap_or(0),
            wait_ms: u64::try_from(value(Setting::LogWait)).ok(),
            hold_ms: u64::try_from(value(Setting::LogHold)).ok(),
        }
    }
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings::of(|setting| setting.range().default)
    }
}

/// The bounds of leases and tokens, which the parser of arguments reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The server's clock, in µs since the epoch.
    pub now_us: u64,
    /// The longest lease a command may ask for.
    pub max_lease: Lease,
    /// How long a hold may last at most (`dlock.max-hold`); `None`: no limit.
    pub max_hold: Option<Lease>,
    /// How far ahead of the clock `MINTOKEN` may lift tokens (`dlock.max-token-lead`), in ms.
    pub max_token_lead: u64,
}

impl Limits {
    /// Returns the limits at this time with these values, each of which is in the range of its setting.
    #[inline]
    pub fn of(now_us: u64, value: impl Fn(Setting) -> i64) -> Limits {
        let (max_lease, max_hold) = (lease(value(Setting::MaxLease)), may_be_lease(value(Setting::MaxHold)));
        let max_token_lead = u64::try_from(value(Setting::MaxTokenLead)).unwrap_or(0);
        Limits { now_us, max_lease, max_hold, max_token_lead }
    }

    /// Returns the highest `MINTOKEN` that a command may give. There is a limit, because `MINTOKEN` raises the tokens
    /// of all later grants.
    pub fn highest_min_token(&self) -> u64 {
        self.now_us.saturating_add(self.max_token_lead.saturating_mul(1000))
    }

    pub(crate) fn now(&self) -> UnixMs {
        UnixMs::new(self.now_us / 1000)
    }
}

#[inline]
fn lease(value: i64) -> Lease {
    may_be_lease(value).unwrap_or(Lease::MAX)
}

#[inline]
fn may_be_lease(value: i64) -> Option<Lease> {
    u64::try_from(value).ok().and_then(Lease::new)
}

fn limit(value: i64) -> Option<usize> {
    usize::try_from(value).ok().filter(|max| *max > 0)
}

/// Returns the share of one user: nine tenths of a limit, rounded up. Of a limit below ten, that is all.
pub(crate) const fn share(max: usize) -> usize {
    max - max / 10
}

const YEAR_MS: i64 = Lease::MAX.get().cast_signed();
