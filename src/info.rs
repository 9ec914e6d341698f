//! `INFO dlock`.

use dlock_core::doubt;
use dlock_core::engine::Histogram;

use crate::ffi::info::Section;
use crate::state::{ServerEngine, use_engine};

/// Writes the section.
pub fn write(section: &mut Section) {
    let read = |engine: &mut ServerEngine| {
        let percentiles =
            [("wait_usec", percentiles(&engine.log().waits)), ("hold_usec", percentiles(&engine.log().holds))];
        (engine.stats(), engine.gauges(), percentiles)
    };
    let Ok((stats, gauges, percentiles)) = use_engine(read) else { return };
    section.text("version", env!("CARGO_PKG_VERSION"));
    for (name, number) in stats.named().chain(gauges.named()) {
        section.number(name, number);
    }
    for (name, percentiles) in percentiles {
        section.text(name, &percentiles);
    }
    section.number("internal_errors", doubt::count());
}

/// Returns percentiles, as `INFO latencystats` writes them.
fn percentiles(times: &Histogram) -> String {
    let [p50, p99, p999] = [500, 990, 999].map(|thousandths| times.percentile(thousandths));
    format!("p50={p50}.000,p99={p99}.000,p99.9={p999}.000")
}
