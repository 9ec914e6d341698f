//! The token clock of a server: fencing tokens that only go up.

use crate::{Hold, Token};

/// Remembers the highest token a server has seen, so that every grant gets a higher one.
///
/// A token is max(last + 1, Unix time in µs, `MINTOKEN`). If `last` is lost, the clock alone keeps tokens rising.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenClock {
    last: u64,
}

impl TokenClock {
    /// How far ahead of the server's clock a token in a dump may be, in µs: an hour.
    pub const MAX_AHEAD_US: u64 = 3_600_000_000;

    /// How far behind the server's clock the highest token may be, in µs, to be saved for a restart: a day. An older
    /// one matters only if the server's clock is set back by more than a day.
    pub const MATTERS_US: u64 = 86_400_000_000;

    /// Returns a clock that has seen no token.
    pub const fn new() -> TokenClock {
        TokenClock { last: 0 }
    }

    /// Returns the token that the next grant gets at `now_us` (Unix time in µs, or `MINTOKEN` if that is higher).
    /// `None`: the highest possible token has been seen.
    ///
    /// The clock moves when the grant is applied, by [`TokenClock::observe`].
    pub fn next(&self, now_us: u64) -> Option<Token> {
        Token::new(now_us.max(self.last.saturating_add(1)))
    }

    /// Advances the clock to a token, if that is higher.
    pub fn observe(&mut self, token: Token) {
        self.last = self.last.max(token.get());
    }

    /// Advances the clock to the tokens of these holds.
    pub fn observe_all<'a>(&mut self, holds: impl Iterator<Item = &'a Hold>) {
        for hold in holds {
            self.observe(hold.token);
        }
    }

    /// Returns the highest token seen, 0 if none.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns whether `token` is too far ahead of `now_us` to be taken from a dump.
    pub fn is_too_far_ahead(token: Token, now_us: u64) -> bool {
        token.get() > now_us.saturating_add(Self::MAX_AHEAD_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u64) -> Token {
        Token::new(n).unwrap()
    }

    #[test]
    fn tokens_follow_the_clock_and_never_go_back() {
        let mut clock = TokenClock::new();
        assert_eq!(clock.next(1000), Some(token(1000)));
        clock.observe(token(1000));
        assert_eq!(clock.next(1000), Some(token(1001)));
        assert_eq!(clock.next(999), Some(token(1001)), "the server's clock went back");
        assert_eq!(clock.next(5000), Some(token(5000)));
        clock.observe(token(7000));
        clock.observe(token(20));
        assert_eq!((clock.last(), clock.next(5000)), (7000, Some(token(7001))));
    }

    #[test]
    fn there_is_no_token_after_the_last() {
        let mut clock = TokenClock::new();
        clock.observe(Token::MAX);
        assert_eq!(clock.next(1), None);
    }

    #[test]
    fn a_token_may_be_one_hour_ahead() {
        let hour = 3_600_000_000;
        assert!(!TokenClock::is_too_far_ahead(token(hour + 5), 5));
        assert!(TokenClock::is_too_far_ahead(token(hour + 6), 5));
    }
}
