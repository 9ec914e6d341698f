//! The lock of dlock as a pure state machine: no server, no clock, no randomness.
//!
//! A [`Lock`] is the value of one key: the holds on it. Reading it never changes it, and there is one way to change
//! it: [`Lock::apply`] with an [`Effect`]. A command asks the lock for a decision ([`Lock::acquire`],
//! [`Lock::release`], [`Lock::renew`]); the decision carries the effect. The primary applies that effect and
//! replicates it, a replica applies what it gets, so both have the same lock by construction.
//!
//! | file | knows |
//! |---|---|
//! | `types` | owner, token, lease, time, mode, hold: values that cannot be wrong |
//! | `holds` | how the holds of one lock are stored and found |
//! | `lock` | the locking rules |
//! | `view` | what can be read of a lock without changing it |
//! | `effect` | the one way a lock changes |
//! | `clock` | the token clock of a server |
//! | `codec` | bytes of a lock (RDB) and of an effect (replication) |
#![forbid(unsafe_code)]

mod clock;
mod codec;
mod effect;
mod holds;
mod lock;
mod types;
mod view;

pub use clock::TokenClock;
pub use codec::{DecodeError, decode_effect, decode_lock, encode_effect, encode_lock};
pub use effect::{Applied, Change, Effect, Expiry};
pub use lock::{
    Acquire, Acquired, Entries, Entry, Lock, Reentry, Refusal, Release, Released, Renew, RenewToken, Renewed,
};
pub use types::{Hold, Lease, LeaseChoice, Mode, Owner, OwnerText, Token, UnixMs};
pub use view::{LockMode, Summary};
