//! The promises of `dlock agent`, tested with its process, real servers and real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

mod figures;
mod guarded;
mod kills;
mod limits;
mod locks;
mod page;
mod passing;
#[path = "../shared/permitted.rs"]
mod permitted;
mod process;
mod protocol;
mod repeated;
#[path = "../shared/scrapes.rs"]
mod scrapes;
mod sessions;
mod stopping;
