//! The values that histories are made of: owners, keys, leases and tokens.

use dlock_core::{Command, Mode};

/// The number of a key: see [`KEYS`].
pub type KeyNo = usize;

/// The number of an owner: see [`plain::owner`](super::plain::owner).
pub type Who = usize;

/// The number of a client. When the connection of a client ends, the next client gets its number.
pub type ClientNo = usize;

/// The number of a named session. Without heartbeats, session 0 ends soon, and session 1 not before it is closed.
pub type SessionNo = usize;

/// A command and the id of its `REQUEST`.
pub type Asked = (Command, u8);

/// The database and the name of each key. `SWAPDB` exchanges the first three and the last three.
pub const KEYS: [(i32, &str); 6] = [(0, "k0"), (0, "k1"), (0, "k2"), (1, "k0"), (1, "k1"), (1, "k2")];

/// The number of owners, besides those that the server generates.
pub const OWNERS: Who = 5;

/// The shortest timeout of named session 0, in ms.
pub const SHORT_SESSION_MS: u64 = 300;

/// The timeout of named session 1, in ms.
pub const LONG_SESSION_MS: u64 = 3_600_000;

/// The default lease of most histories, in ms.
pub const USUAL_LEASE_MS: u64 = 500;

/// A default lease that is too short for the hold of a session, which needs 300 ms, in ms.
pub const SHORT_LEASE_MS: u64 = 60;

/// The number of readers in a crowd: more holds than the engine settles or frees at once (64).
pub const CROWD: usize = 70;

/// How many clients there are at a time.
pub const CLIENTS: ClientNo = 4;

/// The lease of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// No option: the default lease for a new hold, or the lease that the hold has.
    Own,
    /// `EX` or `PX`, in ms.
    For(u64),
    /// `EXAT` or `PXAT`: the end, in ms. In a history, the end counts from the time of the operation; who plays
    /// the operation makes a time of it.
    Until(u64),
}

impl Lease {
    /// Returns the lease and the deadline, or `None` if the deadline has passed. `own` is the lease without an option.
    /// The value of `Until` is a time here.
    pub fn resolve(self, now: u64, own: u64) -> Option<(u64, u64)> {
        match self {
            Lease::Own => Some((own, now + own)),
            Lease::For(ms) => Some((ms, now + ms)),
            Lease::Until(at) => (at > now).then(|| (at - now, at)),
        }
    }

    /// Returns a lease like this one that is allowed with `SESSION`: 300 ms or more, and without an absolute end. The
    /// value of `Until` counts from the time of the operation here.
    #[must_use]
    pub fn for_session(self) -> Lease {
        match self {
            Lease::Own => Lease::Own,
            Lease::For(ms) => Lease::For(ms.max(300)),
            Lease::Until(ms) => Lease::For(ms + 300),
        }
    }
}

/// The owner of an operation. `Holder` is looked up at the time of the operation, so that many operations meet a hold
/// of their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Somebody {
    /// The owner of the hold with this number, modulo the number of holds of the key.
    Holder(usize),
    /// The owner, whether it holds the lock or not.
    Any(Who),
}

/// The option `TOKEN` or `MINTOKEN` of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRule {
    Any,
    /// `TOKEN`.
    Is(TokenPick),
    /// `MINTOKEN`: the sum of the token and the number.
    AtLeast(TokenPick, u64),
}

/// A token, which is looked up at the time of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenPick {
    /// The token of the owner's hold in this mode.
    Mine(Mode),
    /// The token of the hold with this number, modulo the number of holds of the key.
    Of(usize),
    /// A token that no hold ever has.
    Never,
}

/// The number of a user.
pub type User = usize;
