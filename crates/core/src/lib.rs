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
//! | `line` | who waits, in which order, and whose turn it is |
//! | `deadlock` | whether a request would wait for itself |
//! | `sessions` | which holds are bound to which connection |
//! | `clock` | the token clock of a server |
//! | `codec` | bytes of a lock (RDB) and of an effect (replication) |
//! | [`args`] | what the arguments of a command say |
#![forbid(unsafe_code)]

pub mod args;
mod clock;
mod codec;
mod deadlock;
mod effect;
mod holds;
mod line;
mod lock;
mod sessions;
mod types;
mod view;

pub use clock::TokenClock;
pub use codec::{DecodeError, decode_effect, decode_lock, encode_effect, encode_lock, encode_put};
pub use deadlock::{MAX_OWNERS_SEARCHED, Step, find_cycle};
pub use effect::{Applied, Change, Effect, Expiry, Waiters};
pub use line::{Line, Place, Served, TwoUpgrades, Waiting};
pub use lock::{
    Acquire, Acquired, Entries, Entry, Lock, Reentry, Refusal, Release, Released, Renew, RenewToken, Renewed,
};
pub use sessions::{Binding, Sessions, time_to_move};
pub use types::{Command, Hold, Lease, LeaseChoice, Mode, Owner, OwnerText, Request, Token, UnixMs};
pub use view::{LockMode, Summary};
