//! `INFO key [OWNER owner | FULL [COUNT n]]`

use super::Malformed;
use super::words::{Words, is, owner};
use crate::engine::Detail;

/// The arguments of `INFO`: how much to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info(pub Detail);

impl Info {
    /// Reads the words after the key.
    ///
    /// # Errors
    /// What is wrong with the first word that is wrong.
    pub fn parse<'call>(words: impl Iterator<Item = &'call [u8]>) -> Result<Info, Malformed> {
        let mut words = Words::new(words);
        let detail = match words.word() {
            None => Detail::Summary,
            Some(word) if is(word, "OWNER") => Detail::OfOwner(owner(words.value()?)?),
            Some(word) if is(word, "FULL") => match words.word() {
                None => Detail::Full(DEFAULT_COUNT),
                Some(word) if is(word, "COUNT") => {
                    let count = usize::try_from(words.integer()?).map_err(|_| Malformed::Count)?;
                    Detail::Full(if count == 0 { MOST_SHOWN } else { count.min(MOST_SHOWN) })
                }
                Some(_) => return Err(Malformed::Syntax),
            },
            Some(_) => return Err(Malformed::Syntax),
        };
        match words.word() {
            None => Ok(Info(detail)),
            Some(_) => Err(Malformed::Syntax),
        }
    }
}

const DEFAULT_COUNT: usize = 10;
/// A list has at most so many: to send one hold costs 3 µs, and meanwhile the server does nothing else.
const MOST_SHOWN: usize = 1000;
