//! `INFO dlock`.

use redis_module::{InfoContext, RedisResult};
use redis_module_macros::info_command_handler;

use crate::ffi::guarded;
use crate::state::read_engine;

#[info_command_handler]
fn info(context: &InfoContext, _for_crash_report: bool) -> RedisResult<()> {
    guarded("INFO", || add_section(context), || Ok(()))
}

fn add_section(context: &InfoContext) -> RedisResult<()> {
    let Ok((stats, gauges)) = read_engine(|engine| (engine.stats, engine.gauges())) else { return Ok(()) };
    let numbers = [
        ("grants", stats.grants),
        ("reentries", stats.reentries),
        ("refusals", stats.refusals),
        ("releases", stats.releases),
        ("renewals", stats.renewals),
        ("lapses", stats.lapses),
        ("waits", stats.waits),
        ("wait_timeouts", stats.wait_timeouts),
        ("deadlocks", stats.deadlocks),
        ("replays", stats.replays),
        ("session_ends", stats.session_ends),
        ("wait_usec_total", stats.wait_usec_total),
        ("wait_usec_max", stats.wait_usec_max),
        ("waiters", gauges.waiters as u64),
        ("queues", gauges.queues as u64),
        ("sessions", gauges.sessions as u64),
        ("last_token", gauges.last_token),
    ];
    // A section without a name is shown under the module's.
    let mut section = context.builder().add_section("").field("version", env!("CARGO_PKG_VERSION"))?;
    for (name, number) in numbers {
        section = section.field(name, number)?;
    }
    section.build_section()?.build_info()?;
    Ok(())
}
