//! `ACQUIRE | RACQUIRE | RLOCK | WLOCK key owner [EX s | PX ms | EXAT s | PXAT ms] [BLOCK ms] [SESSION] [REQUEST id]`

use super::words::{Words, is, may_bind, once, owner};
use super::{Limits, Malformed};
use crate::{Command, LeaseChoice, Owner, Request};

/// The arguments of the commands that take a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// For whom; `None`: for an owner that the server makes up (`*`).
    pub owner: Option<Owner>,
    /// For how long.
    pub lease: LeaseChoice,
    /// For how long to wait, in ms, 0 for ever; `None`: not at all.
    pub block: Option<u64>,
    /// `SESSION`.
    pub binds: bool,
    /// `REQUEST`; never with an owner that is made up.
    pub request: Option<Request>,
}

impl Acquire {
    /// Reads the words after the key. `command` is the one that takes them.
    ///
    /// # Errors
    /// What is wrong with the first word that is wrong, or with all of them together.
    pub fn parse<'call>(
        words: impl Iterator<Item = &'call [u8]>,
        command: Command,
        limits: Limits,
    ) -> Result<Acquire, Malformed> {
        let mut words = Words::new(words);
        let named = words.required()?;
        let owner = if named == b"*" { None } else { Some(owner(named)?) };
        let (mut chosen, mut block, mut session, mut request) = (None, None, None, None);
        while let Some(word) = words.word() {
            if is(word, "BLOCK") {
                once(&mut block, words.timeout()?)?;
            } else if is(word, "SESSION") {
                once(&mut session, ())?;
            } else if is(word, "REQUEST") {
                once(&mut request, words.request(command)?)?;
            } else {
                once(&mut chosen, words.lease(word, limits)?.ok_or(Malformed::Syntax)?)?;
            }
        }
        if owner.is_none() && request.is_some() {
            return Err(Malformed::RequestOfFreshOwner);
        }
        let lease = chosen.unwrap_or(LeaseChoice::Own);
        if session.is_some() {
            may_bind(lease)?;
        }
        Ok(Acquire { owner, lease, block, binds: session.is_some(), request })
    }
}
