//! The words of a command about locks.

use dlock_core::{Command, Mode, Want};
use dlock_testkit::histories::How;

/// The parts of a command.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    pub verb: &'a str,
    /// The keys, with spaces between them. Only `MACQUIRE` has more than one.
    pub keys: &'a str,
    /// The owner; the token of `CHECK`.
    pub third: &'a str,
    rest: &'a str,
}

impl<'a> Words<'a> {
    /// Returns the parts of a `DLOCK` command with arguments; `None` for any other command.
    pub fn of(command: &'a str) -> Option<Words<'a>> {
        let (verb, rest) = command.strip_prefix("DLOCK.")?.split_once(' ')?;
        let (count, rest) = match verb {
            "MACQUIRE" => rest.split_once(' ').and_then(|(count, rest)| Some((count.parse().ok()?, rest)))?,
            _ => (1_usize, rest),
        };
        let end = rest.match_indices(' ').nth(count.checked_sub(1)?).map_or(rest.len(), |(end, _)| end);
        let (keys, rest) = rest.split_at_checked(end)?;
        let rest = rest.trim_start();
        let (third, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(Words { verb, keys, third, rest })
    }

    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.keys.split(' ')
    }

    /// Returns the first key. Only `MACQUIRE` has more than one.
    pub fn key(&self) -> &'a str {
        self.keys().next().unwrap_or_default()
    }

    /// Returns whether the command names this owner and this key.
    pub fn names(&self, key: &str, owner: &str) -> bool {
        self.third == owner && self.keys().any(|other| other == key)
    }

    /// Returns the mode in which an acquiring command enters; `None` for others.
    pub fn enters(&self) -> Option<Mode> {
        Some(match How::new(Command::acquiring(self.verb)?).want {
            Want::ExclusiveOnce | Want::Exclusive => Mode::Exclusive,
            Want::Shared | Want::Permits { .. } | Want::Slot { .. } => Mode::Shared,
        })
    }

    /// Returns the limit of a `SACQUIRE`.
    pub fn limit(&self) -> Option<u64> {
        self.first_number().filter(|_| self.verb == "SACQUIRE")
    }

    pub fn has(&self, option: &str) -> bool {
        self.rest.split_whitespace().any(|word| word == option)
    }

    /// Returns the word after an option.
    pub fn value(&self, option: &str) -> Option<&'a str> {
        let mut words = self.rest.split_whitespace();
        words.find(|word| *word == option)?;
        words.next()
    }

    /// Returns the word after the owner, if it is a number.
    pub fn first_number(&self) -> Option<u64> {
        self.rest.split_whitespace().next()?.parse().ok()
    }

    pub fn number(&self, option: &str) -> Option<u64> {
        self.value(option)?.parse().ok()
    }
}
