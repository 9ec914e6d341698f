//! Model checking: every behaviour of small instances of the engine, breadth first, with Stateright.
//!
//! | module | what |
//! |---|---|
//! | [`explorer`] | an instance as a Stateright model: a state is the actions that led to it |
//! | [`engine`] | the engine of `dlock-core` over keys in memory, with a replica beside it |
//! | [`quorum`] | two clients of three servers, and the network between them |
//! | [`report`] | explores scopes and prints a table |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a checker that panics has failed, which is what it is for"
)]

pub mod engine;
pub mod explorer;
pub mod quorum;
pub mod report;
