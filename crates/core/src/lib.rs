//! The lock of dlock as a pure state machine: no server, no clock, no randomness.
//!
//! A [`Lock`] is the value of one key: the holds on it. Reading a lock never changes it, and there is one way to change
//! it: [`Lock::apply`] with an [`Effect`]. A command asks the lock for a decision ([`Lock::acquire`],
//! [`Lock::release`], [`Lock::renew`]), and the engine turns it into an effect. The primary applies that effect and
//! replicates it, and a replica applies the same effect, so both have the same lock by construction.
//!
//! An [`Engine`] has what a server remembers beside its locks: waiters, sessions, and when each lock needs a visit. An
//! engine is a state machine, too: it reaches locks through a [`Keyspace`] and returns replies and events as data.
//!
//! | file | knows |
//! |---|---|
//! | `types` | token, lease, time, mode, hold: values that are valid by their types |
//! | `owner` | the owner of a hold |
//! | `session` | what a hold can be bound to |
//! | `holds` | how the holds of one lock are stored and found |
//! | `lock` | the locking rules |
//! | `restore` | whether a lock from elsewhere may be restored |
//! | `view` | what can be read of a lock |
//! | `effect` | effects: the only way to change a lock |
//! | `clock` | the token clock of a server |
//! | `cluster_slot` | the slot of a key in a cluster |
//! | [`doubt`] | faults that a server survives |
//! | `codec` | bytes of a lock (RDB) and of an effect (replication) |
//! | `sink` | the buffers for the bytes of `codec` |
//! | `engine` | waiting, sessions, visits, deadlocks: everything that concerns more than one command |
//! | [`args`] | the arguments of commands |
//! | [`settings`] | what an operator may set |
//! | [`spec`] | the descriptions of commands |
//! | [`reply`] | how answers are written |
//!
//! # An engine over keys in memory
//! ```
//! use std::collections::BTreeMap;
//! use std::time::Duration;
//!
//! use dlock_core::engine::*;
//! use dlock_core::*;
//!
//! struct Keys(BTreeMap<Vec<u8>, (Lock, Option<UnixMs>)>, Now);
//! struct Key<'k>(&'k mut Keys, Vec<u8>);
//!
//! impl OpenKey for Key<'_> {
//!     fn name(&self) -> Name<'_> { Name { db: 0, key: &self.1 } }
//!     fn lock(&self) -> Option<&Lock> { self.0.0.get(&self.1).map(|key| &key.0) }
//!     fn lock_mut(&mut self) -> Option<&mut Lock> { self.0.0.get_mut(&self.1).map(|key| &mut key.0) }
//!     fn expiry(&self) -> Option<UnixMs> { self.0.0.get(&self.1)?.1 }
//!     fn was_removed(&self) -> bool { false }
//!     fn replicate(&mut self, _: &Effect) {}
//!     fn replicate_verbatim(&mut self) {}
//!     fn close(&mut self, end: KeyEnd, _: Signal) {
//!         match end {
//!             KeyEnd::Untouched => {}
//!             KeyEnd::Deleted => _ = self.0.0.remove(&self.1),
//!             KeyEnd::At(at) => self.0.0.entry(self.1.clone()).or_default().1 = Some(at),
//!             KeyEnd::Created(lock, at) => _ = self.0.0.insert(self.1.clone(), (*lock, at)),
//!         }
//!     }
//! }
//!
//! impl Keyspace for Keys {
//!     type Key<'k> = Key<'k>;
//!     fn open(&mut self, name: Name<'_>) -> Result<Key<'_>, NotOpen> { Ok(Key(self, name.key.into())) }
//!     fn open_at_last(&mut self, name: Name<'_>) -> Result<Key<'_>, NotOpen> { self.open(name) }
//!     fn may_refuse(&self) -> bool { false }
//!     fn peek<R>(&mut self, name: Name<'_>, look: impl FnOnce(&Lock) -> R) -> Result<R, WrongType> {
//!         Ok(look(self.0.get(name.key).map_or(&Lock::EMPTY, |key| &key.0)))
//!     }
//!     fn permission(&mut self, _: Name<'_>) -> Permission { Permission::Full }
//!     fn has_removed(&self) -> bool { false }
//!     fn may_read(&mut self, _: Name<'_>) -> (bool, u64) { (true, 0) }
//!     fn user(&mut self) -> Option<Vec<u8>> { None }
//!     fn user_state(&mut self, _: &[u8]) -> UserState { UserState::Enabled }
//!     fn now(&self) -> Now { self.1 }
//!     fn uptime(&self) -> Uptime { Uptime::from_us(self.1.us()) }
//!     fn worked(&self) -> Duration { Duration::from_micros(self.1.us()) }
//! }
//!
//! let now = Now::from_us(1_000_000);
//! let mut keys = Keys(BTreeMap::new(), now);
//! let mut engine = Engine::new(7, Settings::new(Lease::MAX));
//! let call = |client| Call { name: Name { db: 0, key: b"job" }, now, client: ClientId(client) };
//! let owner = |name: &str| Owner::new(name.as_bytes()).unwrap();
//! let request = |name| Request::new(owner(name), Want::Exclusive, LeaseChoice::Own);
//!
//! // The first owner gets the lock, the second one waits. A ticket, here "a" or "b", says whom to answer.
//! let first = engine.acquire(&mut keys, call(1), &request("a"), Some(|_| "a"));
//! assert!(matches!(first, Ok(Entered::Granted(_))));
//! let second = engine.acquire(&mut keys, call(2), &request("b"), Some(|_| "b"));
//! assert!(matches!(second, Ok(Entered::Waiting(_))));
//! # engine.take_outputs();
//!
//! // A release hands the lock over: the answer to the second owner is one of the outputs.
//! let release = Release { owner: &owner("a"), mode: None, entries: Entries::ONE, token: None, request: None };
//! engine.release(&mut keys, call(1), &release).unwrap();
//! let outputs = engine.take_outputs();
//! assert!(outputs.iter().any(|output| matches!(output, Output::Answer("b", Answer::Granted(..)))));
//! ```
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
mod restore;
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
pub use restore::NotRestored;
pub use session::{BindTo, Binding, NamedId, NoSession, SessionId, SessionKey};
pub use types::{
    Bond, ClientId, Command, Extras, Hold, Lease, LeaseChoice, Mode, Name, Now, RequestId, Token, UnixMs, Uptime,
};
pub use view::{LockMode, Summary};

/// Reports a broken invariant. A debug build panics. A release build skips the current step, because a server must not
/// end, and has the engine look at every lock again.
#[cold]
#[track_caller]
fn broken(invariant: &str) {
    debug_assert!(false, "broken invariant: {invariant}");
    doubt::raise();
}
