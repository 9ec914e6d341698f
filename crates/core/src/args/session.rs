//! `SESSION id PX ms [NX | XX]`, `SESSION id CLOSE` and `SESSION id LIST [COUNT n]`

use super::words::{Words, is, one_of, unknown};
use super::{Malformed, Syntax};
use crate::engine::OpenIf;
use crate::{Lease, SessionId};

/// The arguments of `SESSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The session.
    pub id: SessionId,
    /// The action on it.
    pub action: SessionAction,
}

/// What `SESSION` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionAction {
    /// Opens it, or keeps it open for so long.
    Keep(Lease, OpenIf),
    /// Ends it.
    Close,
    /// Shows its holds, at most this many.
    List(usize),
}

impl Session {
    /// Reads the words after the command's name.
    ///
    /// # Errors
    /// A [`Malformed`]: the first wrong word.
    pub fn parse<'call>(words: impl Iterator<Item = &'call [u8]>) -> Result<Session, Malformed> {
        let mut words = Words::new(words);
        let id = SessionId::new(words.required()?).ok_or(Malformed::SessionId)?;
        let word = words.required()?;
        let action = if is(word, "CLOSE") {
            SessionAction::Close
        } else if is(word, "LIST") {
            list(&mut words)?
        } else if is(word, "PX") {
            return keep(words, id);
        } else {
            return Err(unknown(word));
        };
        match words.word() {
            None => Ok(Session { id, action }),
            Some(word) => Err(unknown(word)),
        }
    }
}

fn keep<'call>(mut words: Words<impl Iterator<Item = &'call [u8]>>, id: SessionId) -> Result<Session, Malformed> {
    let ms = u64::try_from(words.integer("PX")?).ok().filter(|ms| (MIN_MS..=MAX_MS).contains(ms));
    let timeout = ms.and_then(Lease::new).ok_or(Malformed::SessionTimeout)?;
    let mut only = None;
    while let Some(word) = words.word() {
        if is(word, "NX") {
            one_of(&mut only, (OpenIf::New, "NX"))?;
        } else if is(word, "XX") {
            one_of(&mut only, (OpenIf::Open, "XX"))?;
        } else if is(word, "PX") {
            return Err(Malformed::Syntax(Syntax::Twice("PX")));
        } else {
            return Err(unknown(word));
        }
    }
    Ok(Session { id, action: SessionAction::Keep(timeout, only.map_or(OpenIf::Any, |(only, _)| only)) })
}

fn list<'call>(words: &mut Words<impl Iterator<Item = &'call [u8]>>) -> Result<SessionAction, Malformed> {
    let Some(word) = words.word() else { return Ok(SessionAction::List(DEFAULT_COUNT)) };
    if !is(word, "COUNT") {
        return Err(unknown(word));
    }
    let count = usize::try_from(words.integer("COUNT")?).map_err(|_| Malformed::Count)?;
    Ok(SessionAction::List(if count == 0 { MOST_SHOWN } else { count.min(MOST_SHOWN) }))
}

/// The shortest and the longest time between two heartbeats, in ms.
const MIN_MS: u64 = 300;
const MAX_MS: u64 = 3_600_000;
const DEFAULT_COUNT: usize = 100;
const MOST_SHOWN: usize = 10_000;
