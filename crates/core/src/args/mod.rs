//! The arguments of commands, read once from left to right into values that cannot be wrong.
//!
//! The words after the key come as an iterator over bytes: the module hands in the server's own strings, a test whatever
//! it likes. Nothing is copied but an owner and a request id.

mod acquire;
mod check;
mod info;
mod log;
mod release;
mod renew;
mod words;

pub use acquire::{Acquire, AcquireAll};
pub use check::Check;
pub use info::Info;
pub use log::{Log, Subcommand};
pub use release::Release;
pub use renew::Renew;

use crate::{Lease, UnixMs};

/// Why the arguments are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The number of arguments.
    Arity,
    /// An unknown, repeated or misplaced option, or one without its value.
    Syntax,
    /// Not an integer, or beyond 64 bits.
    Integer,
    /// A lease that is not positive, overflows, or has passed.
    ExpireTime,
    /// A lease over the longest that may be asked for, which is this.
    LeaseTooLong(Lease),
    /// An owner of no bytes, or of too many.
    Owner,
    /// A token out of range.
    Token,
    /// A `MINTOKEN` more than an hour ahead of the clock.
    TokenAhead,
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
    /// `REQUEST` with an owner that the server draws.
    RequestOfFreshOwner,
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
    /// `numkeys` is larger than the number of keys given.
    TooManyKeys,
    /// More keys than one request may have.
    KeyCount,
    /// A key is given twice.
    SameKey,
}

/// The bounds of leases and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The server's clock, unix µs.
    pub now_us: u64,
    /// The longest lease a command may ask for.
    pub max_lease: Lease,
}

impl Limits {
    fn now(&self) -> UnixMs {
        UnixMs::new(self.now_us / 1000)
    }
}
