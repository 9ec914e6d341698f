//! `SESSION id PX ms [NX | XX]`, `SESSION id CLOSE [USER name]`, `SESSION id LIST [USER name] [COUNT n]` and
//! `SESSION LIST [COUNT n]`

use super::words::{Words, is, once, one_of, unknown};
use super::{Malformed, Syntax};
use crate::engine::OpenIf;
use crate::{Lease, SessionId};

/// The arguments of `SESSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Session<'call> {
    /// Opens a session, or keeps an open one, for this long.
    Keep(SessionId, Lease, OpenIf),
    /// Ends a session of this user; `None`: of the user that sends the command.
    Close(SessionId, Option<&'call [u8]>),
    /// Shows the holds of a session of this user (`None`: of the user that sends the command), at most this many.
    List(SessionId, Option<&'call [u8]>, usize),
    /// Shows the open sessions, at most this many.
    ListAll(usize),
}

impl<'call> Session<'call> {
    /// Reads the words after the command's name. `LIST` alone or before `COUNT` lists all sessions; before any other
    /// word it is a session's id.
    ///
    /// # Errors
    /// A [`Malformed`] for the first wrong word.
    pub fn parse(words: impl Iterator<Item = &'call [u8]>) -> Result<Session<'call>, Malformed> {
        let mut words = Words::new(words);
        let id = words.required()?;
        let action = match words.word() {
            None if is(id, "LIST") => return Ok(Session::ListAll(DEFAULT_COUNT)),
            Some(word) if is(id, "LIST") && is(word, "COUNT") => {
                let count = count(&mut words)?;
                return words.word().map_or(Ok(Session::ListAll(count)), |word| Err(misplaced(word, &["COUNT"])));
            }
            // An id that is invalid is reported before a missing word.
            None => return SessionId::new(id).map_or(Err(Malformed::SessionId), |_| Err(Malformed::Arity)),
            Some(action) => action,
        };
        let id = SessionId::new(id).ok_or(Malformed::SessionId)?;
        if is(action, "CLOSE") {
            let mut user = None;
            while let Some(word) = words.word() {
                if !is(word, "USER") {
                    return Err(unknown(word));
                }
                once(&mut user, words.value("USER")?, "USER")?;
            }
            Ok(Session::Close(id, user))
        } else if is(action, "LIST") {
            list(words, id)
        } else if is(action, "PX") {
            keep(words, id)
        } else {
            Err(unknown(action))
        }
    }
}

/// Reads the words after `SESSION id PX`.
fn keep<'call>(
    mut words: Words<impl Iterator<Item = &'call [u8]>>,
    id: SessionId,
) -> Result<Session<'call>, Malformed> {
    let ms = u64::try_from(words.integer("PX")?).ok().filter(|ms| (MIN_MS..=MAX_MS).contains(ms));
    let timeout = ms.and_then(Lease::new).ok_or(Malformed::SessionTimeout)?;
    let mut only = None;
    while let Some(word) = words.word() {
        if is(word, "NX") {
            one_of(&mut only, (OpenIf::New, "NX"))?;
        } else if is(word, "XX") {
            one_of(&mut only, (OpenIf::Open, "XX"))?;
        } else {
            return Err(misplaced(word, &["PX"]));
        }
    }
    Ok(Session::Keep(id, timeout, only.map_or(OpenIf::Any, |(only, _)| only)))
}

/// Reads the words after `SESSION id LIST`.
fn list<'call>(
    mut words: Words<impl Iterator<Item = &'call [u8]>>,
    id: SessionId,
) -> Result<Session<'call>, Malformed> {
    let (mut user, mut most) = (None, None);
    while let Some(word) = words.word() {
        if is(word, "USER") {
            once(&mut user, words.value("USER")?, "USER")?;
        } else if is(word, "COUNT") {
            once(&mut most, count(&mut words)?, "COUNT")?;
        } else {
            return Err(unknown(word));
        }
    }
    Ok(Session::List(id, user, most.unwrap_or(DEFAULT_COUNT)))
}

/// Reads the value of `COUNT`. 0 stands for as many as the server shows.
fn count<'call>(words: &mut Words<impl Iterator<Item = &'call [u8]>>) -> Result<usize, Malformed> {
    let count = usize::try_from(words.integer("COUNT")?).map_err(|_| Malformed::Count)?;
    Ok(if count == 0 { MOST_SHOWN } else { count.min(MOST_SHOWN) })
}

/// Returns the error for a word that cannot follow: one of the options `given` is there twice, any other is unknown.
fn misplaced(word: &[u8], given: &[&'static str]) -> Malformed {
    let given = given.iter().find(|option| is(word, option));
    given.map_or_else(|| unknown(word), |option| Malformed::Syntax(Syntax::Twice(option)))
}

/// The shortest and the longest timeout of a session, in ms.
const MIN_MS: u64 = 300;
const MAX_MS: u64 = 3_600_000;
/// How many holds or sessions are shown without `COUNT`, and at most.
const DEFAULT_COUNT: usize = 100;
const MOST_SHOWN: usize = 10_000;
