//! The inputs of the engine: commands, events and the time. Each file is methods of the `Engine`; no other folder of
//! the engine calls them.

pub(super) mod acquire;
mod command;
pub(super) mod deadlock;
pub(super) mod events;
pub(super) mod inspect;
pub(super) mod join;
mod leave;
pub(super) mod macquire;
pub(super) mod named_session;
mod open;
pub(super) mod release;
mod renew;
mod several;
#[cfg(feature = "check")]
pub(super) mod snapshot;
pub(super) mod tick;
