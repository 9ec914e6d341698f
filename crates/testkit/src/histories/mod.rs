//! Random histories of one lock and its line, on the core and on a model that is too simple to be wrong. The core's own
//! tests draw them, a fuzzer makes them of bytes.
//!
//! | file | knows |
//! |---|---|
//! | `history` | which steps there are and how they are drawn |
//! | `naive` | what the contract says of each step: a list of holds and loops over it |
//! | `crowd` | the same for a line: who comes, waits and goes |
//! | `naive_line` | what the contract says of the line: a list |
//! | `bound` | bound holds, in a list |
//! | `world` | how a step runs on the core, a replica and the model, and that all three agree |
//! | `shop` | how an event runs on the core and the model, line and lock, and that both agree |
//! | `plain` | what the core says, in the plain numbers of the model |
//! | `quick` | that the short ways of taking, renewing and giving up agree with the long ones |
//! | `reached` | what a history came to |

pub mod bound;
pub mod crowd;
pub mod history;
pub mod naive;
pub mod naive_line;
mod plain;
mod quick;
pub mod reached;
pub mod shop;
pub mod world;
