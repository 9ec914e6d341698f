//! `RENEW key owner [EX s | PX ms | EXAT s | PXAT ms] [READ | WRITE] [SESSION] [TOKEN token | MINTOKEN token]`

use super::words::{Words, is, may_bind, mode, once};
use super::{Limits, Malformed};
use crate::{LeaseChoice, Mode, Owner, RenewToken, TokenClock};

/// The arguments of `RENEW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The owner.
    pub owner: Owner,
    /// The lease.
    pub lease: LeaseChoice,
    /// The mode, if the command names one.
    pub mode: Option<Mode>,
    /// `TOKEN` or `MINTOKEN`; the latter at most an hour ahead of the clock.
    pub token: RenewToken,
    /// `SESSION`.
    pub session: bool,
}

impl Renew {
    /// Reads the words after the key.
    ///
    /// # Errors
    /// What is wrong with the first word that is wrong, or with all of them together.
    pub fn parse<'call>(words: impl Iterator<Item = &'call [u8]>, limits: Limits) -> Result<Renew, Malformed> {
        let mut words = Words::new(words);
        let owner = words.owner()?;
        let (mut chosen, mut named, mut said, mut session) = (None, None, None, None);
        while let Some(word) = words.word() {
            if let Some(mode) = mode(word) {
                once(&mut named, mode)?;
            } else if is(word, "TOKEN") {
                once(&mut said, RenewToken::Is(words.token()?))?;
            } else if is(word, "MINTOKEN") {
                once(&mut said, RenewToken::AtLeast(words.token()?))?;
            } else if is(word, "SESSION") {
                once(&mut session, ())?;
            } else {
                once(&mut chosen, words.lease(word, limits)?.ok_or(Malformed::Syntax)?)?;
            }
        }
        let (lease, token) = (chosen.unwrap_or(LeaseChoice::Own), said.unwrap_or(RenewToken::Any));
        if matches!(token, RenewToken::AtLeast(least) if TokenClock::is_too_far_ahead(least, limits.now_us)) {
            return Err(Malformed::TokenAhead);
        }
        if session.is_some() {
            may_bind(lease)?;
        }
        Ok(Renew { owner, lease, mode: named, token, session: session.is_some() })
    }
}
