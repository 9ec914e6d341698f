//! `RELEASE key owner [READ | WRITE] [ALL] [TOKEN token] [REQUEST id]`

use super::Malformed;
use super::words::{Words, is, mode, once};
use crate::{Command, Entries, Mode, Owner, Request, Token};

/// The arguments of `RELEASE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Whose.
    pub owner: Owner,
    /// In which mode, if it says so.
    pub mode: Option<Mode>,
    /// How much of it.
    pub entries: Entries,
    /// Only the hold with this token.
    pub token: Option<Token>,
    /// `REQUEST`.
    pub request: Option<Request>,
}

impl Release {
    /// Reads the words after the key.
    ///
    /// # Errors
    /// What is wrong with the first word that is wrong.
    pub fn parse<'call>(words: impl Iterator<Item = &'call [u8]>) -> Result<Release, Malformed> {
        let mut words = Words::new(words);
        let owner = words.owner()?;
        let (mut named, mut all, mut token, mut request) = (None, None, None, None);
        while let Some(word) = words.word() {
            if let Some(mode) = mode(word) {
                once(&mut named, mode)?;
            } else if is(word, "ALL") {
                once(&mut all, Entries::All)?;
            } else if is(word, "TOKEN") {
                once(&mut token, words.token()?)?;
            } else if is(word, "REQUEST") {
                once(&mut request, words.request(Command::Release)?)?;
            } else {
                return Err(Malformed::Syntax);
            }
        }
        Ok(Release { owner, mode: named, entries: all.unwrap_or(Entries::One), token, request })
    }
}
