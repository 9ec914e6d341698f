//! The engine of `dlock-core`, with every command that matters, on one or two locks.
//!
//! | file | knows |
//! |---|---|
//! | `action` | what may happen |
//! | `scope` | who takes part, and which actions there are in which state |
//! | `world` | how an action is done |
//! | `rules` | what the contract says of a request: whether it could go, what it waits for |
//! | `properties` | what must hold of every action: of tokens, queues, the timer and the replica |
//! | `properties/holds` | what must hold of holds |
//! | `properties/requests` | what must hold of requests: who is served, what is refused, what comes twice |
//! | `fingerprint` | which states are the same |

pub mod action;
mod fingerprint;
mod properties;
mod rules;
pub mod scope;
mod world;

pub use scope::{Scope, scopes};
pub use world::World;
