//! Histories of a server, played on the engine and on the model.

use dlock_testkit::histories::{History, World};

/// Plays the bytes as a history.
pub fn machine(bytes: &[u8]) {
    World::play(&History::of_bytes(bytes));
}
