//! The machine and the versions of a measurement.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use crate::result::Result;

pub fn all() -> Result<BTreeMap<String, String>> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let models: Vec<&str> =
        cpuinfo.lines().filter_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1)).collect();
    let memory = read("/proc/meminfo");
    let kilobytes =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    let gigabytes = kilobytes.unwrap_or(0_u64).div_ceil(1 << 20);
    let release = read("/etc/os-release");
    let system = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let facts = [
        ("machine", format!("{} x {}, {gigabytes} GB", models.len(), models.first().unwrap_or(&"unknown processor"))),
        ("system", system.unwrap_or("unknown").trim_matches('"').to_owned()),
        ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("date", String::from_utf8(Command::new("date").args(["-u", "+%F"]).output()?.stdout)?.trim().to_owned()),
        ("fsync", format!("{:.0}", fsync()?)),
        ("clients", clients()),
    ];
    Ok(facts.map(|(name, value)| (name.to_owned(), value)).into())
}

/// The median of appending 100 bytes and syncing them, in µs, where the servers keep their data.
fn fsync() -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let mut file = File::create(folder.path().join("synced"))?;
    let mut took = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        file.write_all(&[b'x'; 100])?;
        file.sync_data()?;
        took.push(began.elapsed().as_secs_f64() * 1e6);
    }
    took.sort_by(f64::total_cmp);
    Ok(took.get(100).copied().unwrap_or(f64::NAN))
}

/// Returns the crates that speak to the servers, with their versions.
fn clients() -> String {
    let lock = include_str!("../Cargo.lock");
    let version = |name: &str| {
        let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\""));
        lines.nth(1).and_then(|line| line.split('"').nth(1)).unwrap_or("unknown").to_owned()
    };
    let names = ["redis", "dlock-client", "etcd-client", "zookeeper-client", "tokio-postgres"];
    names.map(|name| format!("{name} {}", version(name))).join(", ")
}
