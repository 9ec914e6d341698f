//! `CHECK key token`

use super::Malformed;
use super::words::{Words, token};
use crate::Token;

/// The arguments of `CHECK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The token asked about.
    pub token: Token,
}

impl Check {
    /// Reads the words after the key.
    ///
    /// # Errors
    /// A [`Malformed`]: a wrong token, or more words than a token.
    pub fn parse<'call>(words: impl Iterator<Item = &'call [u8]>) -> Result<Check, Malformed> {
        let mut words = Words::new(words);
        let token = token(words.required()?, "token")?;
        match words.word() {
            None => Ok(Check { token }),
            Some(_) => Err(Malformed::Arity),
        }
    }
}
