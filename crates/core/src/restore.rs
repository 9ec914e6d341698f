//! The check of a lock that is restored into a key, from another server or from an old file.

use std::fmt;

use crate::clock::TokenClock;
use crate::lock::Lock;
use crate::types::{Lease, Now, UnixMs};

/// Why a lock cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRestored {
    /// A token is more than an hour ahead of the clock.
    TokenAhead,
    /// A token is further ahead than the server allows for a key that does not move.
    TokenLead,
    /// A deadline is later than that of the longest lease.
    Deadline,
    /// A cap is later than the deadline of the longest lease.
    Cap,
}

/// The text behind `ERR`.
impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotRestored::TokenAhead => "a fencing token is more than an hour ahead of the clock",
            NotRestored::TokenLead => "a fencing token is further ahead of the clock than dlock.max-token-lead",
            NotRestored::Deadline => "a deadline is more than 365 days and an hour ahead of the clock",
            NotRestored::Cap => "a cap is more than 365 days and an hour ahead of the clock",
        })
    }
}

impl std::error::Error for NotRestored {}

impl Lock {
    /// Checks that a server whose clock is at most an hour ahead can have granted the lock.
    ///
    /// The tokens of a restored lock raise the tokens of all later grants. They may therefore not be above `highest`,
    /// the limit of `MINTOKEN`, unless the key moves here from another node. `is_settled` returns whether it does not
    /// move, and is called only if a token is above the limit.
    ///
    /// # Errors
    /// [`NotRestored`]: the first rule that the lock breaks.
    pub fn check_restored(&self, now: Now, highest: u64, is_settled: impl FnOnce() -> bool) -> Result<(), NotRestored> {
        if self.stored_holds().any(|hold| TokenClock::is_too_far_ahead(hold.token, now.us())) {
            return Err(NotRestored::TokenAhead);
        }
        if self.stored_holds().any(|hold| hold.token.get() > highest) && is_settled() {
            return Err(NotRestored::TokenLead);
        }
        let latest = UnixMs::new(now.ms().get() + Lease::MAX.get() + TokenClock::MAX_AHEAD_US / 1000);
        if self.last_deadline() > Some(latest) {
            return Err(NotRestored::Deadline);
        }
        if self.stored_holds().any(|hold| hold.cap() > Some(latest)) {
            return Err(NotRestored::Cap);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Change, Effect, Expiry, Memory};
    use crate::owner::Owner;
    use crate::types::{Bond, Extras, Hold, Mode, Token};

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn a_lock_that_no_server_can_have_granted_is_not_restored() {
        let now = Now::from_us(1_000_000_000_000);
        let (token, end) = (now.us() + HOUR_MS * 1000, now.ms().get() + Lease::MAX.get() + HOUR_MS);
        let check = |token, deadline, cap: Option<u64>, highest, is_settled| {
            lock(token, deadline, cap).check_restored(now, highest, || is_settled)
        };
        assert_eq!(check(token, end, Some(end), u64::MAX, true), Ok(()));
        assert_eq!(check(token + 1, end, None, u64::MAX, false), Err(NotRestored::TokenAhead));
        assert_eq!(check(token, end, None, token - 1, true), Err(NotRestored::TokenLead));
        assert_eq!(check(token, end, None, token - 1, false), Ok(()), "a key that moves here keeps its tokens");
        assert_eq!(check(token, end + 1, None, u64::MAX, true), Err(NotRestored::Deadline));
        assert_eq!(check(token, end, Some(end + 1), u64::MAX, true), Err(NotRestored::Cap));
    }

    fn lock(token: u64, deadline: u64, cap: Option<u64>) -> Lock {
        let hold = Hold {
            owner: Owner::new(b"a").unwrap(),
            mode: Mode::Exclusive,
            count: 1,
            lease: Lease::MAX,
            deadline: UnixMs::new(deadline),
            token: Token::new(token).unwrap(),
            extras: Extras::of(None, cap.map(UnixMs::new), None),
            bond: Bond::NONE,
        };
        let mut lock = Lock::default();
        let put = Effect { clock: UnixMs::ZERO, change: Change::Put { hold, expiry: Expiry::Anew } };
        lock.apply(put, &mut Memory::new());
        lock
    }
}
