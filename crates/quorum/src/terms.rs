//! The terms of an acquisition: the number of servers, the lease, the timeout, and how long a grant is valid.

use core::fmt;
use std::time::Duration;

/// The terms of an acquisition. All clients of a quorum use the same servers and the same longest lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    members: usize,
    lease: Duration,
    timeout: Duration,
    newcomer: Duration,
    without: Option<Rule>,
}

/// Terms under which a quorum would not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermsError {
    /// No servers at all.
    NoMembers,
    /// The lease is longer than the longest lease of the quorum.
    LeaseTooLong,
    /// The timeout of a server is 0 or more than a quarter of the lease.
    TimeoutTooLong,
}

impl fmt::Display for TermsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TermsError::NoMembers => "a quorum needs servers",
            TermsError::LeaseTooLong => "the lease is longer than the longest lease of the quorum",
            TermsError::TimeoutTooLong => "the timeout of a server must be over 0 and at most a quarter of the lease",
        })
    }
}

impl std::error::Error for TermsError {}

/// Returns by how much two clocks may drift apart while `time` passes: 1 % of it and 2 ms.
///
/// The 1 % and one of the ms cover the rates of the client's monotonic clock and of a server's clock, and the steps by
/// which a server's clock is set forward. The other ms is there because servers count in whole ms.
pub fn drift_bound(time: Duration) -> Duration {
    time / 100 + Duration::from_millis(2)
}

impl Terms {
    /// Returns terms for this many servers, each of which gets `timeout` to answer.
    ///
    /// # Errors
    /// [`TermsError`], if the lease is longer than `longest_lease` or not much longer than the timeout.
    pub fn new(
        members: usize,
        lease: Duration,
        timeout: Duration,
        longest_lease: Duration,
    ) -> Result<Terms, TermsError> {
        if members == 0 {
            return Err(TermsError::NoMembers);
        }
        if lease > longest_lease {
            return Err(TermsError::LeaseTooLong);
        }
        if timeout.is_zero() || timeout > lease / 4 {
            return Err(TermsError::TimeoutTooLong);
        }
        let newcomer = lease.min(timeout * NEWCOMER);
        // A lease is sent in whole milliseconds, so the client does not count on a fraction.
        let newcomer = newcomer - Duration::from_nanos(u64::from(newcomer.subsec_nanos()) % 1_000_000);
        Ok(Terms { members, lease, timeout, newcomer, without: None })
    }

    /// Returns terms for a lock that is only renewed on demand: all requests ask for the full lease.
    #[must_use]
    pub fn without_renewal(self) -> Terms {
        Terms { newcomer: self.lease, ..self }
    }

    /// Returns how many servers there are.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Returns how many are a majority: two majorities share a server.
    pub fn majority(&self) -> usize {
        self.members / 2 + 1
    }

    /// Returns the lease: how long a server keeps a hold without renewal.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns how long a server has to answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the lease that a client first asks for, without knowing whether the lock is free. A short lease ends the
    /// holds of a client that is killed before it has a majority.
    pub(crate) fn newcomers_lease(&self) -> Duration {
        self.newcomer
    }

    /// Returns until when a hold is valid that was requested or renewed at `sent` for this lease.
    pub(crate) fn valid_until(sent: Duration, lease: Duration) -> Duration {
        (sent + lease).saturating_sub(drift_bound(lease))
    }

    /// Returns whether a rule is kept. Only a test leaves a rule out, and must then find a violation.
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    #[cfg(test)]
    pub(crate) fn leaving_out(self, without: Option<Rule>) -> Terms {
        Terms { without, ..self }
    }
}

/// A rule of the protocol that a test can leave out. `docs/quorum.md` says what each rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A majority of servers has exactly the token of the lock. A higher token does not count.
    #[cfg(test)]
    SameToken,
    /// The servers that have the token are the servers whose holds are still live.
    #[cfg(test)]
    SameMajority,
    /// If a majority has granted different tokens, the lower ones are raised to the highest.
    Raising,
    /// A client takes the lock only if the gate server has granted it.
    Gate,
    /// A hold whose time has passed stays lost.
    LostForGood,
    /// A hold that was repaired on a server that is too young to count does not count, either.
    YoungRepairs,
}

/// The longest lease that a client first asks for, in timeouts of a server.
const NEWCOMER: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_majority_is_more_than_half() {
        let majority = |members| Terms::new(members, SECOND, SECOND / 10, SECOND).unwrap().majority();
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(majority), [1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn terms_that_cannot_work_are_refused() {
        assert_eq!(Terms::new(0, SECOND, SECOND / 10, SECOND), Err(TermsError::NoMembers));
        assert_eq!(Terms::new(3, SECOND * 2, SECOND / 10, SECOND), Err(TermsError::LeaseTooLong));
        assert_eq!(Terms::new(3, SECOND, SECOND / 3, SECOND), Err(TermsError::TimeoutTooLong));
        assert_eq!(Terms::new(3, SECOND, Duration::ZERO, SECOND), Err(TermsError::TimeoutTooLong));
    }

    #[test]
    fn a_newcomers_lease_is_in_whole_milliseconds() {
        let terms = Terms::new(3, SECOND, Duration::from_micros(15_550), SECOND).unwrap();
        assert_eq!(terms.newcomers_lease(), Duration::from_millis(155));
    }

    #[test]
    fn validity_is_the_lease_less_the_drift() {
        let terms = Terms::new(3, SECOND, SECOND / 10, SECOND).unwrap();
        assert_eq!(Terms::valid_until(SECOND, terms.lease()), Duration::from_millis(1988));
    }
}
