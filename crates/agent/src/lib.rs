//! The agent of dlock offers locks over a quorum, Sentinel, a cluster or one server to every client of Redis. Its
//! `serve` is a server of locks in memory, which needs no Redis.
//!
//! [`Agent`] and [`Serve`] listen on Unix sockets or on loopback, speak RESP2 and RESP3, and offer the commands of the
//! module.
//!
//! | module | what |
//! |---|---|
//! | `listen`, `options` | sockets, and who may connect |
//! | `resp`, `inbox` | requests and replies as bytes |
//! | `connection`, `greeting`, `catalog` | a client, and what it gets without a server |
//! | `quorum` | the commands over a quorum: the table of holds, sessions, waiting |
//! | `pass`, `call`, `copies`, `beats` | the commands passed on to one server, Sentinel or a cluster |
//! | `serve` | `dlock serve`: a server of locks in memory |
//! | `stats`, `metrics`, `http`, `notify` | what an operator sees |
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod agent;
mod answer;
mod beats;
mod call;
mod catalog;
mod connection;
mod copies;
mod greeting;
mod hello;
mod http;
mod inbox;
mod listen;
mod metrics;
mod notify;
mod options;
mod pass;
mod quorum;
mod resp;
mod serve;
mod shared;
mod stats;

pub use agent::Agent;
pub use http::serve_metrics;
pub use options::{Listen, Login, Options};
#[doc(hidden)]
pub use resp::fuzz_requests;
pub use serve::{Certificates, Serve, ServeOptions};
