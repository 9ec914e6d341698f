//! The promises of `dlock serve`: the process, real sockets, no Redis.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

mod clock;
mod commands;
#[cfg(feature = "tls")]
mod encrypted;
mod limits;
mod model;
mod page;
mod process;
mod quorum;
mod same;
