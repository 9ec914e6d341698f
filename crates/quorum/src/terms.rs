//! How many servers, for how long, and how long a grant is good for.

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

/// Returns by how much two clocks may come apart while `time` passes: a hundredth and 1 ms; and 1 ms more, since
/// servers count whole ones.
///
/// The former bounds the rates of the client's monotonic clock and of a server's clock together with the steps by which a
/// server's clock is set forward.
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
        // Servers are told no more, so no more is counted on.
        let newcomer = newcomer - Duration::from_nanos(u64::from(newcomer.subsec_nanos()) % 1_000_000);
        Ok(Terms { members, lease, timeout, newcomer, without: None })
    }

    /// Returns terms by which the lock is not renewed unless its holder asks for it: all requests ask for the full
    /// lease.
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

    /// Returns how long a hold lives on a server without renewal.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns how long a server has to answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the lease of a client that asks for a lock that may be held. If it is killed while it asks, what some
    /// servers have granted ends soon.
    pub(crate) fn newcomers_lease(&self) -> Duration {
        self.newcomer
    }

    /// Returns until when a hold is good that servers were asked for, or to renew, at `sent`, for this long.
    pub(crate) fn valid_until(sent: Duration, lease: Duration) -> Duration {
        (sent + lease).saturating_sub(drift_bound(lease))
    }

    /// Returns whether a rule is kept. Only a check leaves one out, and then has to find the violation.
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    #[cfg(test)]
    pub(crate) fn leaving_out(self, without: Option<Rule>) -> Terms {
        Terms { without, ..self }
    }
}

/// A rule that clients keep: they do not rely on one alone. `docs/quorum.md` says what each rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The servers of one majority have the same token: at least the token of the lock is not enough.
    #[cfg(test)]
    SameToken,
    /// The servers that have the token are those whose holds still live.
    #[cfg(test)]
    SameMajority,
    /// The servers of a majority that have different tokens are raised to the highest.
    Raising,
    /// A client takes the lock only if the gate server has let it in.
    Gate,
    /// A hold whose time has passed stays lost.
    LostForGood,
    /// A server that does not count yet does not count for a hold that was repaired there, either.
    YoungRepairs,
}

/// The lease of a newcomer, in timeouts of a server.
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
    fn a_newcomer_counts_on_whole_milliseconds_only() {
        let terms = Terms::new(3, SECOND, Duration::from_micros(15_550), SECOND).unwrap();
        assert_eq!(terms.newcomers_lease(), Duration::from_millis(155));
    }

    #[test]
    fn validity_is_the_lease_less_the_drift() {
        let terms = Terms::new(3, SECOND, SECOND / 10, SECOND).unwrap();
        assert_eq!(Terms::valid_until(SECOND, terms.lease()), Duration::from_millis(1988));
    }
}
