//! The keys of a lock server, in memory: what an [`Engine`](dlock_core::Engine) needs of a server, and what commands of
//! the server itself do to keys.
//!
//! [`Keys`] are the same for `dlock serve` and for the tests of the engine. They differ in their [`Surroundings`]: the
//! clock, the users, and who hears of a change.
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod keys;
mod open;
mod table;

pub use keys::Keys;
pub use open::MemoryKey;

use dlock_core::engine::{Permission, UserState};
use dlock_core::{Effect, Lock, Name, Now, Uptime};

/// The parts of a server that are no keys.
pub trait Surroundings {
    /// Returns the machine's time.
    fn now(&self) -> Now;

    /// Returns the time of the machine's monotonic clock.
    fn uptime(&self) -> Uptime;

    /// Returns the name of the user whose command is running.
    fn user(&mut self) -> Option<Vec<u8>>;

    /// Returns what the server knows of a user.
    fn user_state(&mut self, user: &[u8]) -> UserState;

    /// Returns what the server lets a timer do to this key.
    fn permission(&mut self, _name: Name<'_>) -> Permission {
        Permission::Full
    }

    /// Returns whether the client of the running command may run `INFO` on this key, and how many ns it took to find out.
    fn may_read(&mut self, _name: Name<'_>) -> (bool, u64) {
        (true, 0)
    }

    /// Hears that a key is about to be opened.
    fn opens(&mut self) {}

    /// Returns whether the server does not open the key that is about to be opened.
    fn refuses(&mut self) -> bool {
        false
    }

    /// Returns whether the server may refuse to open a key.
    fn may_refuse(&self) -> bool {
        false
    }

    /// Returns whether keys that have expired stay, because another server decides.
    fn keeps_expired(&self) -> bool {
        false
    }

    /// Hears of an effect on a key.
    fn replicate(&mut self, _name: Name<'_>, _effect: &Effect) {}

    /// Hears that the running command says what happens to a key.
    fn replicate_verbatim(&mut self, _name: Name<'_>) {}

    /// Hears that a key is gone; `lock` is `None` if it held another type. Nothing tells of a flush.
    fn gone(&mut self, _name: Name<'_>, _lock: Option<&Lock>, _how: Gone) {}

    /// Hears that clients which watch this key have to learn of a change.
    fn modified(&mut self, _name: Name<'_>) {}
}

/// How a key went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The key was deleted or replaced.
    Deleted,
    /// The key has another name now.
    Renamed,
    /// The key had expired when the engine looked at it: the engine knows.
    ExpiredForEngine,
    /// The key had expired, and nobody has told the engine.
    Expired,
}
