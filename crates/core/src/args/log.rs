//! `LOG GET [count] | LEN | RESET | HELP`

use super::Malformed;
use super::words::{Words, integer, is};

/// The arguments of `LOG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// The newest entries, at most this many.
    Get(usize),
    /// The number of entries.
    Len,
    /// Removes all entries.
    Reset,
    /// The list of the subcommands.
    Help,
}

/// The name of a subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subcommand {
    /// `GET`.
    Get,
    /// `LEN`.
    Len,
    /// `RESET`.
    Reset,
    /// `HELP`.
    Help,
}

impl Subcommand {
    /// Returns the subcommand of this name, in any case; `None` if there is none.
    pub fn of(word: &[u8]) -> Option<Subcommand> {
        let all = [Subcommand::Get, Subcommand::Len, Subcommand::Reset, Subcommand::Help];
        all.into_iter().find(|subcommand| is(word, subcommand.name()))
    }

    /// Returns the error for a word that is no subcommand. `command` is the name of the command.
    pub fn unknown(word: &[u8], command: &str) -> String {
        let shown = String::from_utf8_lossy(word.get(..128).unwrap_or(word));
        format!("ERR unknown subcommand '{shown}'. Try {command} HELP.")
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Subcommand::Get => "GET",
            Subcommand::Len => "LEN",
            Subcommand::Reset => "RESET",
            Subcommand::Help => "HELP",
        }
    }
}

impl Log {
    /// The answer to `HELP`, line by line.
    pub const HELP: [&str; 12] = [
        "DLOCK.LOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "GET [<count>]",
        "    Return the newest <count> entries (default: 10, -1 means all). An entry has the",
        "    fields id, time, event, db, key, owner, mode, token, waited, held, client, addr, name,",
        "    session.",
        "LEN",
        "    Return the number of entries.",
        "RESET",
        "    Remove all entries.",
        "HELP",
        "    Print this help.",
        "See CONFIG GET dlock.log-* for what is logged.",
    ];

    /// Reads the words after the subcommand.
    ///
    /// # Errors
    /// A [`Malformed`]: too many words, or else a wrong count.
    pub fn parse<'call>(subcommand: Subcommand, words: impl Iterator<Item = &'call [u8]>) -> Result<Log, Malformed> {
        let mut words = Words::new(words);
        let log = match subcommand {
            Subcommand::Get => match words.word() {
                None => Log::Get(DEFAULT_COUNT),
                Some(word) if words.word().is_none() => Log::Get(count(integer(word, "count")?)?),
                Some(_) => return Err(Malformed::Arity),
            },
            Subcommand::Len => Log::Len,
            Subcommand::Reset => Log::Reset,
            Subcommand::Help => Log::Help,
        };
        if words.word().is_some() { Err(Malformed::Arity) } else { Ok(log) }
    }
}

fn count(count: i64) -> Result<usize, Malformed> {
    match count {
        -1 => Ok(usize::MAX),
        count => usize::try_from(count).map_err(|_| Malformed::LogCount),
    }
}

const DEFAULT_COUNT: usize = 10;
