//! Random histories that are played on the engine and on a simple model of it, the naive model. Both must agree.
//!
//! | file | contents |
//! |---|---|
//! | [`values`] | plain values: owners, keys, leases, tokens |
//! | [`ops`] | the operations of a history |
//! | [`how`] | the options of a request for a lock: drawn from bytes, written as words, translated for the core |
//! | `draw`, `drawn` | histories from random bytes |
//! | [`word`], [`words`] | operations as the words of commands |
//! | `naive` | the model: requests for locks |
//! | `named` | the model: named sessions |
//! | `leave` | the model: releases, renewals, and changes without a command |
//! | `served` | the model: grants to waiters, and changes to keys by commands of the server |
//! | `world` | plays a step on the engine and the model |
//! | `world/commands` | runs commands of locks |
//! | `world/keys` | changes keys as the server does |
//! | `world/sessions` | heartbeats and ends of named sessions |
//! | `world/turn` | the end of a turn: runs the timer, ends waits, and checks that nothing is left to do |
//! | `compare` | compares the engine, the model and a replica after a step |
//! | `deployed` | an engine and its model as a server of a deployment, which fails and is promoted |
//! | `plain`, `held` | translates the core's values into the plain numbers of the model, and back |
//! | `reached` | counts the states that histories reach |

mod compare;
mod deployed;
mod draw;
mod drawn;
mod held;
pub mod how;
pub mod leave;
pub mod naive;
pub mod named;
pub mod ops;
pub mod plain;
mod reached;
mod served;
pub mod values;
pub mod word;
pub mod words;
mod world;

pub use deployed::{SavedKeys, Snapshot};
pub use how::How;
pub use ops::*;
pub use reached::Reached;
pub use values::*;
pub use world::World;
