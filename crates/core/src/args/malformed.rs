//! Why arguments are invalid, and what the client reads: the server's own text first, then the argument at fault.

use std::borrow::Cow;
use std::fmt;

use super::AcquireAll;
use crate::{Lease, Owner, RequestId, SessionId, Token};

/// Why the arguments are invalid. The name in a variant is that of the argument at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Too few arguments, or too many.
    Arity,
    /// The key's name has no bytes.
    EmptyKey,
    /// The options do not fit the command.
    Syntax(Syntax),
    /// Not an integer, or beyond 64 bits.
    Integer(&'static str),
    /// A lease that is not positive, has passed, or is beyond 64 bits.
    ExpireTime(&'static str, BadLease),
    /// A lease longer than `dlock.max-lease`, and the value of that setting.
    LeaseTooLong(&'static str, Lease),
    /// `MAXHOLD` is out of range.
    Cap,
    /// A lease longer than the cap, the source of the cap, and the cap.
    LeaseOverCap(&'static str, CapBy, Lease),
    /// `SESSION` with a cap that is too short for a hold that is bound.
    SessionCap(CapBy),
    /// An owner of no bytes, or of too many.
    Owner,
    /// A token out of range.
    Token(&'static str),
    /// A `MINTOKEN` further ahead of the clock than `dlock.max-token-lead`, and the value of that setting in ms.
    TokenAhead(u64),
    /// A number of log entries below -1.
    LogCount,
    /// A negative `COUNT`.
    Count,
    /// `BLOCK` is not an integer, or too large.
    Timeout,
    /// `BLOCK` is negative.
    NegativeTimeout,
    /// A request id of no bytes, or of too many.
    RequestId,
    /// `REQUEST` with an owner that the server generates (`*`).
    RequestOfFreshOwner,
    /// A session id of no bytes, or of too many.
    SessionId,
    /// The time between heartbeats is out of range.
    SessionTimeout,
    /// `SESSION` with a lease that is too short to be bound.
    SessionLease,
    /// The limit of a semaphore is out of range.
    Limit,
    /// `PERMITS` is out of range.
    Permits,
    /// `PERMITS` is larger than the limit.
    PermitsOverLimit,
    /// `numkeys` is 0 or negative.
    NoKeys,
    /// `numkeys` is larger than the number of keys given, or leaves no room for the owner.
    TooManyKeys,
    /// More keys than one request may have.
    KeyCount,
    /// The request names this key twice.
    SameKey(Excerpt),
}

/// An error in the options of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// The command has no such option.
    Unknown(Excerpt),
    /// The option's value is missing.
    NoValue(&'static str),
    /// The option is given twice.
    Twice(&'static str),
    /// The two options exclude each other.
    Together(&'static str, &'static str),
    /// The first option is valid only directly after the second.
    OnlyAfter(&'static str, &'static str),
}

/// Why a lease is not a valid time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLease {
    /// A length of 0 or less.
    NotPositive,
    /// An end that has passed.
    Past,
    /// The end is beyond 64 bits.
    TooLarge,
}

/// The source of the limit on how long a hold may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapBy {
    /// `MAXHOLD`.
    Option,
    /// `dlock.max-hold`.
    Setting,
}

impl fmt::Display for CapBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CapBy::Option => "MAXHOLD",
            CapBy::Setting => "dlock.max-hold",
        })
    }
}

/// The beginning of a word that a client sent. Shown in printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt(Box<[u8]>);

impl Excerpt {
    /// The most bytes of the word that are kept.
    const MAX_LEN: usize = 32;

    /// Returns the beginning of this word.
    #[cold]
    pub fn of(word: &[u8]) -> Excerpt {
        Excerpt(word.get(..Self::MAX_LEN).unwrap_or(word).into())
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syntax::Unknown(word) => write!(f, "unknown option '{word}'"),
            Syntax::NoValue(option) => write!(f, "{option} needs a value"),
            Syntax::Twice(option) => write!(f, "{option} is given twice"),
            Syntax::Together(option, other) => write!(f, "{option} and {other} cannot be used together"),
            Syntax::OnlyAfter(option, other) => write!(f, "{option} is valid only directly after {other}"),
        }
    }
}

impl Malformed {
    /// Returns the error that the client of `command` gets.
    #[cold]
    pub fn text(&self, command: &str) -> Cow<'static, str> {
        let fixed = match self {
            Malformed::Arity => return of_command("wrong number of arguments for", command).into(),
            Malformed::Syntax(what) => return format!("ERR syntax error: {what}").into(),
            Malformed::Integer(name) => return format!("ERR value is not an integer or out of range: {name}").into(),
            Malformed::ExpireTime(option, why) => {
                let why = match why {
                    BadLease::NotPositive => "must be 1 or more",
                    BadLease::Past => "is in the past",
                    BadLease::TooLarge => "is too large",
                };
                return format!("{}: {option} {why}", of_command("invalid expire time in", command)).into();
            }
            Malformed::LeaseTooLong(option, max) => {
                return format!("ERR lease is longer than dlock.max-lease, which is {} ms: {option}", max.get()).into();
            }
            Malformed::Cap => return format!("ERR MAXHOLD must be between 1 and {}", Lease::MAX.get()).into(),
            Malformed::LeaseOverCap(option, by, cap) => {
                return format!("ERR lease is longer than {by}, which is {} ms: {option}", cap.get()).into();
            }
            Malformed::SessionCap(by) => {
                return format!("ERR SESSION needs at least {} ms: {by}", Lease::MIN_BOUND.get()).into();
            }
            Malformed::KeyCount => return format!("ERR numkeys can't be greater than {}", AcquireAll::MAX_KEYS).into(),
            Malformed::Owner => return format!("ERR owner must have 1 to {} bytes", Owner::MAX_LEN).into(),
            Malformed::Token(name) => {
                return format!("ERR token must be between 1 and {}: {name}", Token::MAX.get()).into();
            }
            Malformed::TokenAhead(lead) => {
                let what = "ERR token is further ahead of the server's clock than dlock.max-token-lead";
                return format!("{what}, which is {lead} ms: MINTOKEN").into();
            }
            Malformed::RequestId => {
                return format!("ERR request id must have 1 to {} bytes", RequestId::MAX_LEN).into();
            }
            Malformed::SessionId => {
                return format!("ERR session id must have 1 to {} bytes", SessionId::MAX_LEN).into();
            }
            Malformed::SessionTimeout => "ERR a session's time must be between 300 and 3600000 ms: PX",
            Malformed::SessionLease => {
                return format!("ERR SESSION needs a lease of at least {} ms", Lease::MIN_BOUND.get()).into();
            }
            Malformed::SameKey(key) => return format!("ERR a key is given twice: '{key}'").into(),
            Malformed::EmptyKey => "ERR the key name is empty",
            Malformed::Limit => "ERR limit must be between 1 and 4294967295",
            Malformed::Permits => "ERR PERMITS must be between 1 and 4294967295",
            Malformed::PermitsOverLimit => "ERR PERMITS can't be larger than limit",
            Malformed::NoKeys => "ERR numkeys should be greater than 0",
            Malformed::TooManyKeys => {
                "ERR Number of keys can't be greater than number of args: numkeys keys and an owner must follow"
            }
            Malformed::LogCount => "ERR count should be greater than or equal to -1",
            Malformed::Count => "ERR COUNT can't be negative",
            Malformed::Timeout => "ERR timeout is not an integer or out of range: BLOCK",
            Malformed::NegativeTimeout => "ERR timeout is negative: BLOCK",
            Malformed::RequestOfFreshOwner => {
                "ERR REQUEST cannot be combined with owner '*': choose the owner name yourself"
            }
        };
        fixed.into()
    }
}

fn of_command(what: &str, command: &str) -> String {
    format!("ERR {what} '{}' command", command.to_lowercase())
}
