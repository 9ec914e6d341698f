//! What stands behind the owner in a command of a story.

use std::str::SplitWhitespace;

use dlock_core::{Command, Entries, Lease, LeaseChoice, Mode, Request, Token, UnixMs};

use crate::stage::time;
use crate::tokens::TokenNames;

/// The options of a command. Each command uses those it has.
pub struct Options {
    pub lease: LeaseChoice,
    pub mode: Option<Mode>,
    pub entries: Entries,
    pub token: Option<Token>,
    pub min_token: Option<Token>,
    pub request: Option<Request>,
    pub patience: Patience,
}

/// What a request does that cannot be granted at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    None,
    Block,
}

impl Options {
    pub fn parse(command: Command, words: &mut Words, names: &mut TokenNames) -> Options {
        let mut options = Options {
            lease: LeaseChoice::Own,
            mode: None,
            entries: Entries::One,
            token: None,
            min_token: None,
            request: None,
            patience: Patience::None,
        };
        while let Some(word) = words.next() {
            match word {
                "EX" => options.lease = LeaseChoice::For(words.lease(1000)),
                "PX" => options.lease = LeaseChoice::For(words.lease(1)),
                "EXAT" => options.lease = LeaseChoice::Until(words.time(1000)),
                "PXAT" => options.lease = LeaseChoice::Until(words.time(1)),
                "READ" => options.mode = Some(Mode::Shared),
                "WRITE" => options.mode = Some(Mode::Exclusive),
                "ALL" => options.entries = Entries::All,
                "TOKEN" => options.token = Some(names.resolve(words.word())),
                "MINTOKEN" => options.min_token = Some(names.resolve(words.word())),
                "REQUEST" => options.request = Request::new(command, words.word().as_bytes()),
                "BLOCK" => options.patience = Patience::Block,
                _ => panic!("{word}: no such option"),
            }
        }
        options
    }
}

/// The words of a command.
pub struct Words<'a>(pub SplitWhitespace<'a>);

impl<'a> Words<'a> {
    pub fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    pub fn word(&mut self) -> &'a str {
        self.next().expect("one word more")
    }

    pub fn number(&mut self) -> u64 {
        let word = self.word();
        word.parse().unwrap_or_else(|_| panic!("{word}: not a number"))
    }

    pub fn lease(&mut self, unit: u64) -> Lease {
        Lease::new(self.number() * unit).expect("a lease in its range")
    }

    pub fn time(&mut self, unit: u64) -> UnixMs {
        time(self.number() * unit)
    }
}
