//! A whole deployment in one thread from one seed: a primary with two replicas and files, a second node of the cluster,
//! clients with connections that break, and clocks that are wrong. The servers run the engine of `dlock-core`.
//!
//! | file | knows |
//! |---|---|
//! | `plan` | which events there are, and how a seed draws them |
//! | `plan/sessions` | the same of named sessions and caps |
//! | `run` | how an event runs, and how time passes |
//! | `run/requests` | how a request gets from a client to a server, and how connections end |
//! | `run/beliefs` | what a client hears, and what it believes to hold then |
//! | `run/sessions` | heartbeats, what silences clients, and how they bind their holds again |
//! | `run/faults` | what fails, what an operator does, and how everything works again at the end |
//! | `servers` | the servers: what was replicated where, what a crash leaves, who is promoted |
//! | `clients` | the clients: connections, sessions, requests that are lost or late, what a client believes to hold |
//! | `oracle` | what must hold of these beliefs |
//! | `shrink` | the shortest history that still fails |
//! | `traces` | histories of one lock, in the words of the specification in `lab/spec` |
//!
//! Each server is a `World` of the testkit: every reply, every grant and every look at a lock is held against the model
//! of the contract. A server that is promoted, or restarts, goes on with what the model knew when the last effect that
//! this server has was replicated. So nothing more than later effects can be lost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a simulation that panics has found something, which is what it is for"
)]

mod clients;
mod oracle;
mod plan;
mod run;
mod servers;
mod shrink;
mod traces;

pub use plan::Plan;
pub use run::{Counts, play};
pub use shrink::{outcome, shortest};
pub use traces::trace;
