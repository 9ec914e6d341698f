//! Metrics in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use dlock_client::{Error, LockInfo, ServerStats};

use crate::output::{say, shown};

/// Series by the names of their metrics.
#[derive(Default)]
pub struct Page(BTreeMap<String, Metric>);

struct Metric {
    kind: Kind,
    help: String,
    /// Labels and value.
    series: Vec<String>,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

impl Page {
    fn add(&mut self, name: &str, kind: Kind, help: &str, labels: &[(&str, &str)], value: &str) {
        let metric =
            self.0.entry(name.to_owned()).or_insert_with(|| Metric { kind, help: help.to_owned(), series: Vec::new() });
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        metric.series.push(format!("{{{}}} {value}", labels.join(",")));
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, metric) in &self.0 {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
            metric.series.iter().for_each(|series| _ = writeln!(text, "{name}{series}"));
        }
        text
    }
}

pub fn add_server(page: &mut Page, server: &str) {
    page.add("dlock_up", Kind::Gauge, UP, &[("server", server)], "1");
}

/// Adds a server that does not answer.
pub fn add_missing_server(page: &mut Page, server: &str, error: &Error) {
    page.add("dlock_up", Kind::Gauge, UP, &[("server", server)], "0");
    say(&format!("dlock: missing: {server}: {error}"));
}

/// Adds the fields of `INFO dlock`: times in seconds, percentiles as quantiles, and unknown numbers as counters. Other
/// text is left out.
pub fn add_stats(page: &mut Page, server: &str, stats: &ServerStats) {
    for (field, value) in &stats.fields {
        let labels = [("server", server)];
        let help = format!("The field {field} of INFO dlock.");
        if field == "dlock_version" {
            page.add(
                "dlock_build_info",
                Kind::Gauge,
                "The version of the module.",
                &[labels[0], ("version", value)],
                "1",
            );
        } else if let Some(percentiles) = value.contains("p50=").then(|| value.split(',')) {
            let name = field.replace("_usec", "_seconds");
            for (quantile, value) in percentiles.filter_map(|part| part.strip_prefix('p')?.split_once('=')) {
                let Ok(quantile) = quantile.parse::<f64>() else { continue };
                // 99.9 / 100 is not 0.999 in binary.
                let quantile = format!("{:.4}", quantile / 100.0);
                let quantile = quantile.trim_end_matches('0');
                page.add(&name, Kind::Gauge, &help, &[labels[0], ("quantile", quantile)], &seconds(value));
            }
        } else if let Some(name) = field.strip_suffix("_usec_total") {
            page.add(&format!("{name}_seconds_total"), Kind::Counter, &help, &labels, &seconds(value));
        } else if let Some(name) = field.strip_suffix("_usec_max") {
            page.add(&format!("{name}_seconds_max"), Kind::Gauge, &help, &labels, &seconds(value));
        } else if value.parse::<f64>().is_ok() {
            let is_gauge = GAUGES.contains(&field.as_str());
            let (name, kind) =
                if is_gauge { (field.clone(), Kind::Gauge) } else { (format!("{field}_total"), Kind::Counter) };
            page.add(&name, kind, &help, &labels, value);
        }
    }
    if let Some(most) = stats.max_waiters {
        let help = "The setting dlock.max-waiters; 0 is no limit.";
        page.add("dlock_max_waiters", Kind::Gauge, help, &[("server", server)], &most.to_string());
    }
}

/// Adds a contended lock: three series.
pub fn add_lock(page: &mut Page, server: &str, lock: &LockInfo) {
    let name = label(&lock.name);
    let labels = [("server", server), ("lock", name.as_str())];
    let longest = lock.queue.first().map(|waiter| waiter.waiting).unwrap_or_default();
    let held = lock.holds.first().map(|hold| hold.age).unwrap_or_default();
    let mut add = |name, help, value: String| page.add(name, Kind::Gauge, help, &labels, &value);
    add("dlock_lock_waiters", "Requests that wait for a lock.", lock.waiters.to_string());
    add("dlock_lock_wait_seconds", "For how long the head of the queue waits.", longest.as_secs_f64().to_string());
    add("dlock_lock_hold_seconds", "For how long the oldest hold is held.", held.as_secs_f64().to_string());
}

/// Returns the name of a lock as the value of a label. A long name is cut, and a hash keeps it distinct from others.
fn label(name: &[u8]) -> String {
    let text = shown(name);
    match text.char_indices().nth(MAX_LABEL) {
        None => text,
        Some((end, _)) => {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            format!("{}…{:016x}", text.get(..end).unwrap_or_default(), hasher.finish())
        }
    }
}

/// The most characters of a name that are shown in front of its hash.
const MAX_LABEL: usize = 500;

/// Converts a number of microseconds.
fn seconds(value: &str) -> String {
    value.parse::<f64>().map_or("NaN".to_owned(), |micros| (micros / 1e6).to_string())
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const UP: &str = "Whether the server answers.";

/// The fields that are not counters: their values go up and down.
const GAUGES: [&str; 5] =
    ["dlock_waiters", "dlock_queues", "dlock_sessions", "dlock_named_sessions", "dlock_last_token"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_counters_gauges_and_quantiles() {
        let fields = [
            ("dlock_version", "0.1.0"),
            ("dlock_grants", "12"),
            ("dlock_waiters", "3"),
            ("dlock_wait_usec_total", "1500000"),
            ("dlock_wait_usec", "p50=1000.0,p99=20000,p99.9=30000"),
            ("dlock_something", "text"),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let mut page = Page::default();
        let mut stats = ServerStats::default();
        (stats.fields, stats.max_waiters) = (fields, Some(10));
        add_stats(&mut page, "a\"b", &stats);
        let text = page.text();
        for line in [
            r#"dlock_build_info{server="a\"b",version="0.1.0"} 1"#,
            "# TYPE dlock_grants_total counter",
            r#"dlock_grants_total{server="a\"b"} 12"#,
            "# TYPE dlock_waiters gauge",
            r#"dlock_waiters{server="a\"b"} 3"#,
            r#"dlock_wait_seconds_total{server="a\"b"} 1.5"#,
            r#"dlock_wait_seconds{server="a\"b",quantile="0.5"} 0.001"#,
            r#"dlock_wait_seconds{server="a\"b",quantile="0.999"} 0.03"#,
            r#"dlock_max_waiters{server="a\"b"} 10"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("something"), "{text}");
    }
}
