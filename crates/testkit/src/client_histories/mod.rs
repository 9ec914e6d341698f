//! Histories of clients: events, and the decisions that the pure code of every package must make
//! (`tests/clients/histories/README.md`).
//!
//! | module | contents |
//! |---|---|
//! | `text` | parser and writer of the files |
//! | `play` | plays histories on the state machine of a package or the reference |
//! | `validity`, `attempt` | the reference: the validity of a hold, and an acquisition |
//! | `planted` | former bugs of packages, which can be planted in the reference |
//! | `world`, `attempt_world` | simulations of a server, a network and a program, with their invariants |
//! | `generated` | writes histories of the simulations to files |

pub mod attempt;
pub mod attempt_world;
pub mod generated;
pub mod planted;
pub mod play;
pub mod text;
pub mod validity;
pub mod world;
