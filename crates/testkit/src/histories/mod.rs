//! Random histories on the engine and on a model of it that is too simple to be wrong.
//!
//! | file | knows |
//! |---|---|
//! | [`values`] | who, which lock, for how long: plain values |
//! | [`ops`] | what can happen |
//! | [`how`] | the options of a request: how they are drawn, written, and given to the core |
//! | `draw`, `drawn` | how histories are drawn |
//! | [`word`], [`words`] | operations as the words of commands |
//! | `naive` | what the contract says of requests: lists, and loops over them |
//! | `named` | the same of named sessions |
//! | `leave` | the same of releases, renewals and of what happens without a command |
//! | `served` | the model as a server that answers waiters by itself |
//! | `world` | how a step runs on the engine and the model |
//! | `world/commands` | how commands run |
//! | `world/keys` | what the server does to keys |
//! | `world/turn` | the end of a turn: the timer, the ends of waits, and what must be so then |
//! | `compare` | that both agree after it, and a replica with them |
//! | `deployed` | an engine and its model as one server of a deployment, which fails and is promoted |
//! | `plain`, `held` | what the core says, in the plain numbers of the model |
//! | `reached` | the states that a history reached |

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
