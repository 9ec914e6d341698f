//! The lock of dlock as a pure state machine: no server, no clock, no randomness.
//!
//! A [`Lock`] is the value of one key: the holds on it. Reading it never changes it, and there is one way to change
//! it: [`Lock::apply`] with an [`Effect`]. A command asks the lock for a decision ([`Lock::acquire`],
//! [`Lock::release`], [`Lock::renew`]); the engine makes an effect of it. The primary applies that effect and
//! replicates it, a replica applies what it gets, so both have the same lock by construction.
//!
//! An [`Engine`] is what a server remembers beside its locks: waiters, sessions, and when which lock is due. It is a
//! state machine, too: it reaches locks through a [`Keyspace`] and hands out replies and events as data.
//!
//! | file | knows |
//! |---|---|
//! | `types` | token, lease, time, mode, hold: values that cannot be wrong |
//! | `owner` | the owner of a hold |
//! | `session` | what a hold can be bound to |
//! | `holds` | how the holds of one lock are stored and found |
//! | `lock` | the locking rules |
//! | `view` | what can be read of a lock without changing it |
//! | `effect` | the one way a lock changes |
//! | `clock` | the token clock of a server |
//! | `cluster_slot` | the slot of a key in a cluster |
//! | [`doubt`] | faults that a server survives |
//! | `codec` | bytes of a lock (RDB) and of an effect (replication) |
//! | `sink` | where these bytes go |
//! | `engine` | waiting, sessions, visits, deadlocks: everything that concerns more than one command |
//! | [`args`] | the arguments of commands |
//! | [`settings`] | what an operator may set |
//! | [`spec`] | the descriptions of commands |
//! | [`reply`] | how answers are written |
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

pub mod args;
mod clock;
mod cluster_slot;
mod codec;
pub mod doubt;
mod effect;
pub mod engine;
mod holds;
mod lock;
mod owner;
pub mod reply;
mod session;
pub mod settings;
mod sink;
pub mod spec;
mod types;
mod view;

pub use clock::TokenClock;
pub use codec::{DecodeError, decode_effect, decode_lock, encode_effect, encode_lock, encode_put, with_encoded_effect};
pub use effect::{Applied, Change, Effect, Expiry, Memory};
pub use engine::{Engine, Keyspace};
pub use holds::Trash;
pub use lock::{
    Acquired, Entries, Entry, Lock, Reach, Refusal, Release, Released, Renew, RenewToken, Renewed, Request, Terms, Want,
};
pub use owner::{Owner, OwnerText};
pub use session::{BindTo, Binding, NamedId, NoSession, SessionId, SessionKey};
pub use types::{
    Bond, ClientId, Command, Extras, Hold, Lease, LeaseChoice, Mode, Name, Now, RequestId, Token, UnixMs, Uptime,
};
pub use view::{LockMode, Summary};

/// Reports a state that cannot be reached: a debug build panics. A release build goes on without the step at hand, because
/// a server must not end, and has the engine look at every lock again.
#[cold]
#[track_caller]
fn broken(invariant: &str) {
    debug_assert!(false, "broken invariant: {invariant}");
    doubt::raise();
}
