//! Values of the command line: times, and names of locks.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::deadline::MIN_LEASE;

/// Reads the name of a lock. An empty name is an error: it may come from a shell variable that is not set.
pub fn lock_name() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new()
        .try_map(|name| if name.is_empty() { Err("the name of a lock is empty") } else { Ok(name) })
}

/// Reads the lease of `dlock run`, which ends its command before the lease ends.
pub fn lease(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        lease if lease < MIN_LEASE => {
            Err(format!("at least {MIN_LEASE:?}: the command has to end a second before its lock"))
        }
        lease => Ok(lease),
    }
}

/// Reads a lease of at least a millisecond, the server's unit.
pub fn some_time(text: &str) -> Result<Duration, String> {
    at_least(text, Duration::from_millis(1))
}

/// Reads a lease that has some time left when the client has read the grant.
pub fn sure_lease(text: &str) -> Result<Duration, String> {
    at_least(text, SHORTEST_SURE)
}

fn at_least(text: &str, least: Duration) -> Result<Duration, String> {
    match duration(text)? {
        time if time < least => Err(format!("at least {least:?}")),
        time => Ok(time),
    }
}

/// Reads `1.5`, `500ms`, `30s`, `5m`, `2h`, `1d`, and times as they are printed: `1h30m`, `2m05s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    // A value from an environment file may have blanks at its ends.
    let text = text.trim();
    let (mut rest, mut seconds, mut above) = (text, 0.0, f64::INFINITY);
    loop {
        let (number, after) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len()));
        let (name, next) = after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        let unit = match name {
            "ms" => 0.001,
            "" if rest != text => return Err("a unit of time is missing at the end (ms, s, m, h or d)".to_owned()),
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(format!("no unit of time: {name} (ms, s, m, h or d)")),
        };
        // Each of several parts is a whole number, of a smaller unit than the part before.
        let is_part = rest != text || !next.is_empty();
        if unit >= above || (is_part && !number.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err("the parts of a time go from long to short, as in 1h30m".to_owned());
        }
        seconds += number.parse::<f64>().map_err(|_| "not a number".to_owned())? * unit;
        if next.is_empty() {
            break;
        }
        (rest, above) = (next, unit);
    }
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if seconds <= A_YEAR => Ok(time),
        _ => Err("from 0 to 365 days".to_owned()),
    }
}

/// The shortest lease that leaves a client any time: clients end a lease up to 2 ms before the server does.
const SHORTEST_SURE: Duration = Duration::from_millis(3);

const A_YEAR: f64 = 365.0 * 86400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_are_seconds_without() {
        for (text, ms) in [("0", 0), ("2", 2000), ("1.5s", 1500), ("250ms", 250), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1", "1w", "1 s", "inf", "NaN", "1e300", "366d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_is_read_as_it_is_printed() {
        for ms in [0, 1, 850, 12_300, 245_000, 11_220_000, 187_200_000] {
            let time = Duration::from_millis(ms);
            assert_eq!(duration(&crate::output::time(time)), Ok(time));
        }
        for (text, seconds) in [("1h30m", 5400), ("2m05s", 125), ("1d2h3m4s", 93_784)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["1h30", "30m1h", "1h1h", "1h-30m", "1h 30m", "1.5h30m", "1h1.5m", "1hm", "365d1s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
