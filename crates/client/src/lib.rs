//! Locks for Rust, over the dlock module of Redis and Valkey.
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_client::Error> {
//! use std::time::Duration;
//!
//! let client = dlock_client::Client::open("redis://127.0.0.1")?;
//! let guard = client.acquire("job:1").wait(Duration::from_secs(10)).await?;
//! // The lock is held and its lease renewed. What it protects gets guard.token().
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! A [`Client`] makes [`Acquire`]s; awaiting one returns a [`Guard`] or an [`Error`]. All of it must be used inside a
//! tokio runtime with time and I/O enabled. The module [`blocking`] is for programs without one.
//!
//! Inside the crate, `options`, `attempt`, `validity`, `heartbeat`, `binding` and `limits` decide, without a socket, a
//! clock or a thread. `upgrade` waits by a timer for the end of an earlier upgrade. `profile` says how each connection is
//! made. `server`, `guard`, `named` and `quorum` do the input and output.
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod acquire;
mod again;
mod attempt;
mod backend;
mod binding;
pub mod blocking;
mod builder;
mod cleanup;
mod client;
mod error;
mod guard;
mod heartbeat;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic, reason = "a test that panics has failed, which is what it is for")]
mod histories;
mod holding;
mod inspect;
mod join;
mod limits;
mod named;
mod open;
mod operate;
mod options;
mod owner;
mod profile;
mod quorum;
mod relay;
mod renewal;
mod semaphore;
mod server;
mod session;
mod survey;
mod upgrade;
mod validity;
mod watch;

pub use acquire::Acquire;
pub use builder::ClientBuilder;
pub use client::Client;
pub use error::{Cause, Error};
pub use guard::Guard;
pub use inspect::{HoldInfo, HoldMode, LockInfo, LockMode, WaiterInfo};
pub use named::Session;
pub use operate::{Node, Operator};
pub use profile::{Credentials, Tls};
pub use quorum::builder::QuorumBuilder;
pub use relay::{Relay, RelayLink, Unanswered};
pub use semaphore::Semaphore;
pub use survey::{LogEntry, LogEvent, PerServer, ServerStats};
pub use watch::Watch;

// The examples of these pages are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/quorum.md")]
struct QuorumGuide;
