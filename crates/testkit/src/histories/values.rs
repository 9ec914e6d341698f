//! The plain values of histories: who, which lock, for how long.

use dlock_core::{Command, Mode};

/// The number of a key: see [`KEYS`].
pub type KeyNo = usize;

/// The number of an owner.
pub type Who = usize;

/// The number of a client. A client that is gone is followed by another with this number.
pub type ClientNo = usize;

/// The number of a named session. The first ends soon without heartbeats, the second only when it is closed.
pub type SessionNo = usize;

/// A command that has an id.
pub type Asked = (Command, u8);

/// Databases and names. `SWAPDB` exchanges the first three and the last three.
pub const KEYS: [(i32, &str); 6] = [(0, "k0"), (0, "k1"), (0, "k2"), (1, "k0"), (1, "k1"), (1, "k2")];

/// How many owners there are, beside those that the server draws.
pub const OWNERS: Who = 5;

/// The timeouts of the two named sessions, in ms: the first may be longer.
pub const SHORT_SESSION_MS: u64 = 300;

pub const LONG_SESSION_MS: u64 = 3_600_000;

/// How many clients there are at a time.
pub const CLIENTS: ClientNo = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    Full,
    ReleaseOnly,
    Elsewhere,
}

/// The lease of a request. An end is a time; in a history, it is in ms from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    Own,
    For(u64),
    Until(u64),
}

impl Lease {
    /// Returns the lease and the deadline; `None` if it has passed.
    pub fn resolve(self, now: u64, own: u64) -> Option<(u64, u64)> {
        match self {
            Lease::Own => Some((own, now + own)),
            Lease::For(ms) => Some((ms, now + ms)),
            Lease::Until(at) => (at > now).then(|| (at - now, at)),
        }
    }

    /// A lease that can stand beside `SESSION`.
    #[must_use]
    pub fn long(self) -> Lease {
        match self {
            Lease::Own => Lease::Own,
            Lease::For(ms) => Lease::For(ms.max(300)),
            Lease::Until(ms) => Lease::For(ms + 300),
        }
    }
}

/// An owner: found when the history is played, so that most release what they have, and some
/// upgrade it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Somebody {
    /// The owner of some hold.
    Holder(usize),
    Any(Who),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRule {
    Any,
    Is(TokenPick),
    /// At least the picked token and so much more.
    AtLeast(TokenPick, u64),
}

/// The token that a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenPick {
    Mine(Mode),
    Of(usize),
    Never,
}

/// A user.
pub type User = usize;
