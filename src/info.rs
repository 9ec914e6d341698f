//! `INFO dlock`.

use dlock_core::engine::Histogram;
use redis_module::{InfoContext, RedisResult};
use redis_module_macros::info_command_handler;

use crate::ffi::guarded;
use crate::state::{ServerEngine, read_engine};

#[info_command_handler]
fn info(context: &InfoContext, _for_crash_report: bool) -> RedisResult<()> {
    guarded("INFO", Ok(()), || add_section(context))
}

fn add_section(context: &InfoContext) -> RedisResult<()> {
    let read = |engine: &mut ServerEngine| {
        let percentiles =
            [("wait_usec", percentiles(&engine.log.waits)), ("hold_usec", percentiles(&engine.log.holds))];
        (engine.stats, engine.gauges(), percentiles)
    };
    let Ok((stats, gauges, percentiles)) = read_engine(read) else { return Ok(()) };
    // A section without a name is shown under the module's.
    let mut section = context.builder().add_section("").field("version", env!("CARGO_PKG_VERSION"))?;
    for (name, number) in stats.named().chain(gauges.named()) {
        section = section.field(name, number)?;
    }
    for (name, percentiles) in percentiles {
        section = section.field(name, percentiles)?;
    }
    section.build_section()?.build_info()?;
    Ok(())
}

/// As `INFO latencystats` writes them.
fn percentiles(times: &Histogram) -> String {
    let [p50, p99, p999] = [500, 990, 999].map(|thousandths| times.percentile(thousandths));
    format!("p50={p50}.000,p99={p99}.000,p99.9={p999}.000")
}
