//! `INFO dlock`.

use std::cell::Cell;

use redis_module::{InfoContext, RedisResult};
use redis_module_macros::info_command_handler;

use crate::ffi::guarded;
use crate::lines::{waiters, with_lines};
use crate::sessions;
use crate::state::state;

/// A number that goes up.
pub struct Counter(Cell<u64>);

impl Counter {
    const fn zero() -> Counter {
        Counter(Cell::new(0))
    }

    /// Counts one.
    pub fn count(&self) {
        self.add(1);
    }

    /// Makes it at least so many.
    pub fn raise(&self, number: u64) {
        self.0.set(self.0.get().max(number));
    }

    /// Counts so many.
    pub fn add(&self, number: u64) {
        self.0.set(self.0.get().wrapping_add(number));
    }
}

/// What is counted since the server started.
pub struct Stats {
    /// New holds.
    pub grants: Counter,
    /// Entries into holds there were.
    pub reentries: Counter,
    /// Requests answered nil at once.
    pub refusals: Counter,
    /// Releases of an entry or more.
    pub releases: Counter,
    /// Renewals.
    pub renewals: Counter,
    /// Leases that ran out, as far as the module sees them.
    pub lapses: Counter,
    /// Requests that queued.
    pub waits: Counter,
    /// Waits whose time ran out.
    pub wait_timeouts: Counter,
    /// Requests that would have waited for themselves.
    pub deadlocks: Counter,
    /// Commands that came again and were answered as before.
    pub replays: Counter,
    /// Holds whose session ended.
    pub session_ends: Counter,
    /// How long those waited who were granted, in µs, together.
    pub wait_usec_total: Counter,
    /// How long one of them waited at most, in µs.
    pub wait_usec_max: Counter,
}

impl Stats {
    /// All zero.
    pub const fn new() -> Stats {
        Stats {
            grants: Counter::zero(),
            reentries: Counter::zero(),
            refusals: Counter::zero(),
            releases: Counter::zero(),
            renewals: Counter::zero(),
            lapses: Counter::zero(),
            waits: Counter::zero(),
            wait_timeouts: Counter::zero(),
            deadlocks: Counter::zero(),
            replays: Counter::zero(),
            session_ends: Counter::zero(),
            wait_usec_total: Counter::zero(),
            wait_usec_max: Counter::zero(),
        }
    }
}

#[info_command_handler]
fn info(context: &InfoContext, _for_crash_report: bool) -> RedisResult<()> {
    guarded("INFO", || add_section(context), || Ok(()))
}

fn add_section(context: &InfoContext) -> RedisResult<()> {
    let stats = &state().stats;
    let counters = [
        ("grants", &stats.grants),
        ("reentries", &stats.reentries),
        ("refusals", &stats.refusals),
        ("releases", &stats.releases),
        ("renewals", &stats.renewals),
        ("lapses", &stats.lapses),
        ("waits", &stats.waits),
        ("wait_timeouts", &stats.wait_timeouts),
        ("deadlocks", &stats.deadlocks),
        ("replays", &stats.replays),
        ("session_ends", &stats.session_ends),
        ("wait_usec_total", &stats.wait_usec_total),
        ("wait_usec_max", &stats.wait_usec_max),
    ];
    // A section without a name is shown under the module's.
    let mut section = context.builder().add_section("").field("version", env!("CARGO_PKG_VERSION"))?;
    for (name, counter) in counters {
        section = section.field(name, counter.0.get())?;
    }
    let (waiters, queues) = (waiters() as u64, with_lines(|lines| lines.len() as u64));
    let sessions = sessions::count() as u64;
    section = section.field("waiters", waiters)?.field("queues", queues)?.field("sessions", sessions)?;
    section.field("last_token", state().last_token())?.build_section()?.build_info()?;
    Ok(())
}
