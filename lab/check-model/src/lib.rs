//! Model checking: visits every state of small instances of the engine, breadth first.
//!
//! An instance is a `World` of the testkit: a server, its replica, and the model of the contract. After each step,
//! every reply, every grant, what `INFO` shows, the timer, the counters, the engine's tables and the replica are
//! compared with the model.
//!
//! | module | contents |
//! |---|---|
//! | [`instances`] | the small instances |
//! | [`scope`] | what an instance is: who takes part, and what may happen in which state |
//! | `fingerprint` | which states count as the same |
//! | [`explorer`] | visits the states of an instance, and prints its row in the table of `make check-model` |

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
