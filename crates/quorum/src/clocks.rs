//! The servers' clocks, and the token to ask for.
//!
//! Servers grant the same token if all are asked for one that is ahead of their clocks. The token to ask for is
//! computed from the clocks alone. If it was computed from tokens that other clients have got, tokens would run further
//! and further ahead.

use std::time::Duration;

/// The readings of the clocks of all servers.
#[derive(Clone, Debug)]
pub struct Clocks {
    readings: Vec<Option<Reading>>,
    timeout: Duration,
}

/// A server's clock, and the time of the reading by the caller's clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Duration,
    unix_us: u64,
}

impl Clocks {
    /// Returns clocks without a reading for this many servers. A reading is wrong by at most half of the time that its
    /// answer took. Answers that took longer than `timeout` are too inexact, and are ignored.
    pub fn new(members: usize, timeout: Duration) -> Clocks {
        Clocks { readings: vec![None; members], timeout }
    }

    /// Records the answer to a `TIME` that was sent at `sent` and answered at `received`.
    pub fn note(&mut self, member: usize, sent: Duration, received: Duration, unix_us: u64) {
        let took = received.saturating_sub(sent);
        if took <= self.timeout
            && let Some(place) = self.readings.get_mut(member)
        {
            *place = Some(Reading { at: sent + took / 2, unix_us });
        }
    }

    /// Returns the token to ask for: a margin ahead of the median of the clocks, so that a single clock that is too
    /// fast does not decide. Of an even number of clocks, the slower one in the middle is the median.
    pub fn floor(&self, now: Duration) -> Floor {
        let clocks = self.clocks(now);
        let median = clocks.get(clocks.len().saturating_sub(1) / 2).filter(|_| clocks.len() > self.readings.len() / 2);
        Floor { at: now, token: median.map(|clock| clock + MARGIN_US) }
    }

    /// Returns the present times of the clocks that are known, in ascending order.
    fn clocks(&self, now: Duration) -> Vec<u64> {
        let read = |reading: &Reading| {
            let age = now.checked_sub(reading.at).filter(|age| *age <= MAX_AGE)?;
            Some(reading.unix_us.saturating_add(micros(age)).min(LATEST_US))
        };
        let mut clocks: Vec<u64> = self.readings.iter().flatten().filter_map(read).collect();
        clocks.sort_unstable();
        clocks
    }

    /// Returns the token to ask for by the fastest clock, with which the simulation shows why the median is needed.
    #[cfg(test)]
    pub(crate) fn floor_of_the_fastest(&self, now: Duration) -> Floor {
        let clocks = self.clocks(now);
        let is_known = clocks.len() > self.readings.len() / 2;
        Floor { at: now, token: clocks.last().filter(|_| is_known).map(|clock| clock + MARGIN_US) }
    }
}

/// The token to ask for, which rises with the time. The token is unknown without the clocks of a majority, or when they
/// were read too long ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    at: Duration,
    token: Option<u64>,
}

impl Floor {
    pub(crate) fn token(&self, now: Duration) -> Option<u64> {
        let age = now.saturating_sub(self.at);
        if age > MAX_AGE { None } else { Some(self.token?.saturating_add(micros(age))) }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How far the token to ask for is ahead of the clock that it is computed from, in µs. A server grants this very token
/// if its clock is not further ahead than that.
pub(crate) const MARGIN_US: u64 = 10_000;

/// The highest reading of a clock, µs. Half of the highest token, so that the token to ask for is always a valid one.
const LATEST_US: u64 = 1 << 52;

/// How long a reading counts. Callers read the clocks more often.
const MAX_AGE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns clocks that were read 10 ms after the start. A reading of 0 is none.
    fn clocks(readings: &[u64]) -> Clocks {
        let mut clocks = Clocks::new(readings.len(), MS * 100);
        for (member, unix_us) in readings.iter().enumerate().filter(|(_, unix_us)| **unix_us > 0) {
            clocks.note(member, MS * 10, MS * 10, *unix_us);
        }
        clocks
    }

    fn token(readings: &[u64], at: Duration) -> Option<u64> {
        clocks(readings).floor(at).token(at)
    }

    #[test]
    fn a_clock_ahead_of_the_others_does_not_decide() {
        assert_eq!(token(&[1000, 2000, 9_000_000], MS * 10), Some(12_000));
        assert_eq!(token(&[5000, 1000, 9_000_000, 8_000_000], MS * 10), Some(15_000));
        assert_eq!(token(&[1000, 9_000_000, 0], MS * 10), Some(11_000));
        assert_eq!(token(&[5, 4, 3, 2, 1], MS * 10), Some(10_003));
        assert_eq!(token(&[7], MS * 10), Some(10_007));
    }

    #[test]
    fn the_token_to_ask_for_rises_with_the_time() {
        let floor = clocks(&[1000, 2000, 3000]).floor(MS * 10);
        assert_eq!(floor.token(MS * 15), Some(17_000));
        assert_eq!(token(&[1000, 2000, 3000], MS * 15), Some(17_000));
    }

    #[test]
    fn without_the_clocks_of_a_majority_the_token_to_ask_for_is_unknown() {
        assert_eq!(token(&[1000, 0, 0], MS * 10), None);
        assert_eq!(token(&[1000, 2000, 0], MS * 10), Some(11_000));
        assert_eq!(token(&[1000, 2000, 3000], MAX_AGE + MS * 11), None);
        assert_eq!(clocks(&[1, 2]).floor(MS * 10).token(MAX_AGE + MS * 11), None);
        let mut slow = Clocks::new(1, MS * 100);
        slow.note(0, MS, MS * 102, 1000);
        assert_eq!(slow.floor(MS * 200).token(MS * 200), None);
    }
}
