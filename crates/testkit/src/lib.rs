//! Code that the tests, the harnesses of `lab/` and the simulations share. Every failure panics, which fails the test.
//!
//! | module | contents | feature |
//! |---|---|---|
//! | `servers` | real servers, a client, waits for conditions; re-exported at the root | `servers`, on by default |
//! | `histories` | random histories on the engine and on a model of it | `histories` |
//! | `keyspace`, `memory_server` | the keys of a server, and a server, in memory | `histories` |
//! | `exclusion` | checks of exclusion and of the order of tokens | `histories` |
//! | [`client_histories`] | histories that the packages play, and the simulation that generates them | |
//! | [`random`], [`bytes`] | choices from a seed, or from a fuzzer's bytes | |
//! | [`thread_time`] | how long a thread has run on a core | |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::new_without_default,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

pub mod bytes;
pub mod client_histories;
#[cfg(feature = "histories")]
pub mod exclusion;
#[cfg(feature = "histories")]
pub mod histories;
#[cfg(feature = "histories")]
pub mod keyspace;
#[cfg(feature = "histories")]
pub mod memory_server;
pub mod random;
#[cfg(feature = "servers")]
pub mod servers;
pub mod thread_time;

#[cfg(feature = "servers")]
pub use redis;
#[cfg(feature = "servers")]
pub use servers::*;
