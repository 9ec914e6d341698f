//! The words after the owner in a command of a scenario.

use std::num::NonZeroU32;
use std::str::SplitWhitespace;

use dlock_core::{
    BindTo, ClientId, Command, Entries, Lease, LeaseChoice, Mode, Owner, Request, RequestId, Token, UnixMs, Want,
};

use crate::interpreter::time;
use crate::tokens::TokenNames;

/// The options of all commands. Each command uses only its own.
pub struct Options {
    pub lease: LeaseChoice,
    pub cap: Option<Lease>,
    pub mode: Option<Mode>,
    pub entries: Option<Entries>,
    pub permits: NonZeroU32,
    pub slot: bool,
    pub token: Option<Token>,
    pub min_token: Option<Token>,
    pub request: Option<RequestId>,
    /// `BLOCK`, which has no value here: the scenario decides when the wait ends.
    pub blocks: bool,
    /// `SESSION`: the hold is bound to the connection of the client.
    pub binds: bool,
    /// The client that sends the command: 2 with `BY c2`, 1 without.
    pub client: ClientId,
}

impl Options {
    pub fn parse(command: Command, words: &mut Words, names: &mut TokenNames) -> Options {
        let mut options = Options {
            lease: LeaseChoice::Own,
            cap: None,
            mode: None,
            entries: None,
            permits: NonZeroU32::MIN,
            slot: false,
            token: None,
            min_token: None,
            request: None,
            blocks: false,
            binds: false,
            client: ClientId(1),
        };
        while let Some(word) = words.next() {
            match word {
                "EX" => options.lease = LeaseChoice::For(words.lease(1000)),
                "PX" => options.lease = LeaseChoice::For(words.lease(1)),
                "EXAT" => options.lease = LeaseChoice::Until(words.time(1000)),
                "PXAT" => options.lease = LeaseChoice::Until(words.time(1)),
                "MAXHOLD" => options.cap = Some(words.lease(1)),
                "READ" => options.mode = Some(Mode::Shared),
                "WRITE" => options.mode = Some(Mode::Exclusive),
                "ALL" => options.entries = Some(Entries::All),
                "PERMITS" => {
                    options.permits = words.nonzero();
                    options.entries = Some(Entries::Some(options.permits));
                }
                "SLOT" => options.slot = true,
                "TOKEN" => options.token = Some(names.resolve(words.word())),
                "MINTOKEN" => options.min_token = Some(names.resolve(words.word())),
                "REQUEST" => options.request = RequestId::new(command, words.word().as_bytes()),
                "BLOCK" => options.blocks = true,
                "SESSION" => options.binds = true,
                "BY" => options.client = words.client(),
                _ => panic!("{word}: no such option"),
            }
        }
        options
    }

    /// Returns the request of a command that acquires.
    pub fn request(self, owner: Owner, want: Want) -> Request {
        Request {
            cap: self.cap,
            id: self.request.map(Box::new),
            session: if self.binds { BindTo::Connection } else { BindTo::Nothing },
            min_token: self.min_token,
            ..Request::new(owner, want, self.lease)
        }
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

    pub fn nonzero(&mut self) -> NonZeroU32 {
        u32::try_from(self.number()).ok().and_then(NonZeroU32::new).expect("a number in its range")
    }

    /// Reads a client, such as `c2`.
    pub fn client(&mut self) -> ClientId {
        let word = self.word();
        let number = word.strip_prefix('c').and_then(|number| number.parse().ok());
        ClientId(number.unwrap_or_else(|| panic!("{word}: clients are called c1, c2, …")))
    }

    /// Reads a lease in units of this many milliseconds.
    pub fn lease(&mut self, unit: u64) -> Lease {
        Lease::new(self.number() * unit).expect("a lease in its range")
    }

    /// Reads a time in units of this many milliseconds.
    pub fn time(&mut self, unit: u64) -> UnixMs {
        time(self.number() * unit)
    }
}
