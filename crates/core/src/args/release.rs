//! `RELEASE key owner [READ | WRITE] [ALL | PERMITS k] [TOKEN token] [BREAK] [REQUEST id]`

use super::Malformed;
use super::words::{Words, is, mode, once, one_of, unknown};
use crate::{Command, Entries, Mode, Owner, RequestId, Token};

/// The arguments of `RELEASE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The owner.
    pub owner: Owner,
    /// The mode, if the command names one.
    pub mode: Option<Mode>,
    /// How many entries.
    pub entries: Entries,
    /// Only the hold with this token.
    pub token: Option<Token>,
    /// `BREAK`: the client that sends it is not the owner.
    pub is_break: bool,
    /// `REQUEST`.
    pub request: Option<RequestId>,
}

impl Release {
    /// Reads the words after the key.
    ///
    /// # Errors
    /// A [`Malformed`]: the first wrong word.
    pub fn parse<'call>(words: impl Iterator<Item = &'call [u8]>) -> Result<Release, Malformed> {
        let mut words = Words::new(words);
        let owner = words.owner()?;
        let (mut named, mut entries, mut token, mut breaks, mut request) = (None, None, None, None, None);
        while let Some(word) = words.word() {
            if let Some(mode) = mode(word) {
                one_of(&mut named, mode)?;
            } else if is(word, "ALL") {
                one_of(&mut entries, (Entries::All, "ALL"))?;
            } else if is(word, "PERMITS") {
                one_of(&mut entries, (Entries::Some(words.permits()?), "PERMITS"))?;
            } else if is(word, "TOKEN") {
                once(&mut token, words.token("TOKEN")?, "TOKEN")?;
            } else if is(word, "BREAK") {
                once(&mut breaks, (), "BREAK")?;
            } else if is(word, "REQUEST") {
                once(&mut request, words.request(Command::Release)?, "REQUEST")?;
            } else {
                return Err(unknown(word));
            }
        }
        let entries = entries.map_or(Entries::ONE, |(entries, _)| entries);
        Ok(Release { owner, mode: named.map(|(mode, _)| mode), entries, token, is_break: breaks.is_some(), request })
    }
}
