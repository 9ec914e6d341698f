//! Histories of a client: what the pure code of every package decides (`tests/clients/histories/README.md`).
//!
//! | module | what |
//! |---|---|
//! | `text` | the form of the files: reads and writes them |
//! | `play` | plays histories on a machine of whatever package |
//! | `validity`, `attempt` | the reference |
//! | `planted` | the ways in which packages were wrong, put back |
//! | `world`, `attempt_world` | a server with its own clock, a network that delays and loses, a program that pauses; the invariants |
//! | `generated` | writes histories of that world down |

pub mod attempt;
pub mod attempt_world;
pub mod generated;
pub mod planted;
pub mod play;
pub mod text;
pub mod validity;
pub mod world;
