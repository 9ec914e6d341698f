//! `RENEW key owner [EX s | PX ms | EXAT s | PXAT ms] [READ | WRITE] [SESSION | SESSIONID id]
//! [TOKEN token | MINTOKEN token]`

use super::words::{Words, binding, check_lead, is, mode, one_of};
use super::{Limits, Malformed};
use crate::{BindTo, LeaseChoice, Mode, Owner, RenewToken, SessionId};

/// The arguments of `RENEW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The owner.
    pub owner: Owner,
    /// The lease.
    pub lease: LeaseChoice,
    /// The mode, if the command names one.
    pub mode: Option<Mode>,
    /// `TOKEN` or `MINTOKEN`; the latter at most `dlock.max-token-lead` ahead of the clock.
    pub token: RenewToken,
    /// `SESSION` or `SESSIONID`.
    pub session: BindTo<SessionId>,
}

impl Renew {
    /// Reads the words after the key.
    ///
    /// # Errors
    /// A [`Malformed`]: the first wrong word, or a wrong combination of words.
    #[inline(always)]
    pub fn parse<'call>(words: impl Iterator<Item = &'call [u8]>, limits: Limits) -> Result<Renew, Malformed> {
        let mut words = Words::new(words);
        let owner = words.owner()?;
        let (mut chosen, mut named, mut token, mut session) = (None, None, None, None);
        while let Some(word) = words.word() {
            if let Some(mode) = mode(word) {
                one_of(&mut named, mode)?;
            } else if is(word, "TOKEN") {
                one_of(&mut token, (RenewToken::Is(words.token("TOKEN")?), "TOKEN"))?;
            } else if is(word, "MINTOKEN") {
                one_of(&mut token, (RenewToken::AtLeast(words.token("MINTOKEN")?), "MINTOKEN"))?;
            } else if is(word, "SESSION") {
                one_of(&mut session, (BindTo::Connection, "SESSION"))?;
            } else if is(word, "SESSIONID") {
                one_of(&mut session, (BindTo::Named(words.session()?), "SESSIONID"))?;
            } else {
                one_of(&mut chosen, words.lease(word, limits)?)?;
            }
        }
        let token = token.map_or(RenewToken::Any, |(token, _)| token);
        if let RenewToken::AtLeast(least) = token {
            check_lead(least, limits)?;
        }
        let session = binding(session, chosen)?;
        let (lease, mode) = (chosen.map_or(LeaseChoice::Own, |(lease, _)| lease), named.map(|(mode, _)| mode));
        Ok(Renew { owner, lease, mode, token, session })
    }
}
