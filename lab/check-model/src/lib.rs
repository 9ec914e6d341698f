//! Model checking: every behavior of small instances of the engine, breadth first.
//!
//! An instance is a `World` of the testkit: a server, its replica, and the model of the contract. After each step, every
//! reply, every grant, every look at a lock, the timer, the counters, the engine's tables and the replica are held
//! against that model.
//!
//! | module | what |
//! |---|---|
//! | [`instances`] | the small instances |
//! | [`scope`] | what an instance is: who takes part, and what may happen in which state |
//! | `fingerprint` | which states are the same |
//! | [`explorer`] | visits the states, and prints a row of the table |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a checker that panics has failed, which is what it is for"
)]

pub mod explorer;
mod fingerprint;
pub mod instances;
pub mod scope;
