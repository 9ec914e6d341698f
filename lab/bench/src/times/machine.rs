//! The machine and the versions, for the reader of the figures.

use std::fs;
use std::num::NonZero;
use std::thread;
use std::time::SystemTime;

use crate::error::Error;
use crate::ledger::Ledger;
use crate::server::Programs;

pub fn describe(programs: &Programs, rounds: usize, ledger: &mut Ledger) -> Result<(), Error> {
    let mut open = programs.open()?;
    ledger.note_fact("server", &open.server.version()?);
    let info = open.control.info("dlock")?;
    let version = info.lines().find_map(|line| line.strip_prefix("dlock_version:")).unwrap_or_default();
    ledger.note_fact("dlock", version);
    ledger.note_fact("machine", &machine());
    ledger.note_fact("kernel", read("/proc/sys/kernel/osrelease").trim());
    ledger.note_fact("date", &date());
    ledger.note_fact("rounds", &rounds.to_string());
    Ok(())
}

/// Processors and memory.
fn machine() -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, m)| m);
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let kilobytes = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    format!("{processors} x {}, {} GB", model.unwrap_or("unknown processor"), kilobytes.div_ceil(1 << 20))
}

/// Year, month and day of today (UTC).
fn date() -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let [year, month, day] = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Returns the Gregorian date of a day since 1970. Counted in years that begin in March, so that the leap day is the
/// last.
fn civil(days: u64) -> [u64; 3] {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    [era * 400 + year_of_era + u64::from(month <= 2), month, day]
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn days_have_their_dates() {
        for (days, date) in
            [(0, [1970, 1, 1]), (11_016, [2000, 2, 29]), (11_017, [2000, 3, 1]), (20_777, [2026, 11, 20])]
        {
            assert_eq!(civil(days), date);
        }
    }
}
