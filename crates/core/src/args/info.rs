//! `INFO key [OWNER owner | FULL [COUNT n]]`

use super::words::{Words, exclude, is, owner, unknown};
use super::{Malformed, Syntax};
use crate::engine::Detail;

/// The arguments of `INFO`: how much to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info(pub Detail);

impl Info {
    /// Reads the words after the key.
    ///
    /// # Errors
    /// A [`Malformed`]: the first wrong word.
    pub fn parse<'call>(words: impl Iterator<Item = &'call [u8]>) -> Result<Info, Malformed> {
        let mut words = Words::new(words);
        let Some(word) = words.word() else { return Ok(Info(Detail::Summary)) };
        let (detail, given): (_, &[&'static str]) = if is(word, "OWNER") {
            (Detail::OfOwner(owner(words.value("OWNER")?)?), &["OWNER"])
        } else if is(word, "FULL") {
            match words.word() {
                None => return Ok(Info(Detail::Full(DEFAULT_COUNT))),
                Some(word) if is(word, "COUNT") => {
                    let count = usize::try_from(words.integer("COUNT")?).map_err(|_| Malformed::Count)?;
                    let count = if count == 0 { MOST_SHOWN } else { count.min(MOST_SHOWN) };
                    (Detail::Full(count), &["FULL", "COUNT"])
                }
                Some(word) => return Err(misplaced(word, &["FULL"])),
            }
        } else {
            return Err(misplaced(word, &[]));
        };
        match words.word() {
            None => Ok(Info(detail)),
            Some(word) => Err(misplaced(word, given)),
        }
    }
}

/// Returns the error for `word`, which cannot follow the options `given`.
#[cold]
fn misplaced(word: &[u8], given: &[&'static str]) -> Malformed {
    let Some(option) = ["OWNER", "FULL", "COUNT"].into_iter().find(|option| is(word, option)) else {
        return unknown(word);
    };
    match given {
        given if given.contains(&option) => exclude(option, option),
        _ if option == "COUNT" => Malformed::Syntax(Syntax::OnlyAfter("COUNT", "FULL")),
        given => given.first().map_or_else(|| unknown(word), |before| exclude(option, before)),
    }
}

const DEFAULT_COUNT: usize = 10;
/// The most holds that a list shows: sending one hold takes 3 µs, during which the server does nothing else.
const MOST_SHOWN: usize = 1000;
