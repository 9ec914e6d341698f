//! The keys of a lock server, in memory: the [`Keyspace`](dlock_core::Keyspace) of an [`Engine`](dlock_core::Engine),
//! and the changes that commands of the server itself make to keys.
//!
//! `dlock serve` and the tests of the engine share [`Keys`] and differ in their [`Surroundings`]: the clock, the users,
//! and what happens when a key changes.
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod keys;
mod open;
mod table;

pub use keys::Keys;
pub use open::MemoryKey;

use std::time::Duration;

use dlock_core::engine::{Permission, UserState};
use dlock_core::{Effect, Lock, Name, Now, Uptime};

/// The parts of a server besides its keys: clocks, users, permissions, replication and notifications.
pub trait Surroundings {
    /// Returns the machine's time.
    fn now(&self) -> Now;

    /// Returns the time of the machine's monotonic clock.
    fn uptime(&self) -> Uptime;

    /// Returns for how long the server has worked. A server that cannot tell counts all time.
    fn worked(&self) -> Duration {
        Duration::from_micros(self.uptime().us())
    }

    /// Returns the name of the user whose command is running, if the server has users.
    fn user(&mut self) -> Option<Vec<u8>>;

    /// Returns the state of a user.
    fn user_state(&mut self, user: &[u8]) -> UserState;

    /// Returns what the server lets a timer do to this key.
    fn permission(&mut self, _name: Name<'_>) -> Permission {
        Permission::Full
    }

    /// Returns whether the client of the running command may run `INFO` on this key, and how many ns it takes to tell.
    fn may_read(&mut self, _name: Name<'_>) -> (bool, u64) {
        (true, 0)
    }

    /// Called before a key is opened.
    fn opens(&mut self) {}

    /// Returns whether the server refuses to open the key that the engine asks for now.
    fn refuses(&mut self) -> bool {
        false
    }

    /// Returns whether the server may refuse to open a key at any time.
    fn may_refuse(&self) -> bool {
        false
    }

    /// Returns whether expired keys stay, as on a replica, which waits for its primary to delete them.
    fn keeps_expired(&self) -> bool {
        false
    }

    /// Replicates an effect on a key.
    fn replicate(&mut self, _name: Name<'_>, _effect: &Effect) {}

    /// Replicates the running command as it is, instead of its effect on this key.
    fn replicate_verbatim(&mut self, _name: Name<'_>) {}

    /// Called when a key is gone, except after a flush. `lock` is `None` if the key held another type.
    fn gone(&mut self, _name: Name<'_>, _lock: Option<&Lock>, _how: Gone) {}

    /// Called when a key has changed visibly. Clients that watch the key must be told.
    fn modified(&mut self, _name: Name<'_>) {}
}

/// Why a key is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The key was deleted or replaced.
    Deleted,
    /// The key was renamed or moved.
    Renamed,
    /// The engine met the expired key, and need not be told.
    ExpiredForEngine,
    /// The server met the expired key, and the engine must be told.
    Expired,
}
