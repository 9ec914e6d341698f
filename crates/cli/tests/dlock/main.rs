//! What the `dlock` command promises, as a person uses it: real servers, processes, signals and terminals.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

#[cfg(feature = "tls")]
#[path = "../../../client/tests/guards/certified.rs"]
#[allow(dead_code, reason = "the fixture of the client's tests, of which these need a part")]
mod certified;
mod ended;
mod manual;
mod process;
mod quorum;
mod run;
mod seen;
mod signals;
#[path = "../../../../tests/server/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the fixture of the server tests, of which these need a part")]
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
mod waiting;
