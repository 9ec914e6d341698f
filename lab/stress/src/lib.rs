//! A real server with the module, or `dlock serve`, held against a model, or loaded for long.
//!
//! | file | knows |
//! |---|---|
//! | `model` | what the contract says of a server: the naive model of the testkit, as clients see it |
//! | `step` | what can happen, how it is drawn, and which words say it |
//! | `round`, `longer` | how a step is played on both |
//! | `judge` | whether what the server shows is what the model has |
//! | `differential` | rounds of steps, each with a seed that repeats it |
//! | `soak` | millions of operations, during which the server's memory does not grow |
//!
//! Anything that the server must never do (end, be silent, reply something that is no reply) is a panic.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a harness that cannot go on has nobody to tell but the one who runs it"
)]

pub mod differential;
mod judge;
mod longer;
mod model;
mod round;
pub mod soak;
mod step;
