//! Real servers, a client that shows replies exactly, and functions that wait for conditions.
//!
//! `DLOCK_SERVER` is the server's program (default: `redis-server` on the path), `DLOCK_MODULE` the module (default:
//! `target/release/libdlock.so`), and `DLOCK_MODULE_HOOKS` its debug build with the hooks for tests (default:
//! `target/debug/libdlock.so`).

pub mod aof;
#[cfg(feature = "certificates")]
pub mod certified;
pub mod child;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod cluster_replicas;
pub mod conformance;
pub mod crowds;
pub mod flood;
pub mod jumping;
pub mod lock;
pub mod network;
pub mod payload;
pub mod process;
pub mod proxy;
pub mod queue;
pub mod replica;
pub mod sentinel;
pub mod serve;
pub mod server;
pub mod session;
pub mod skip;
pub mod state;
pub mod stopwatch;
pub mod story;
pub mod turn;
pub mod version;
pub mod wait;
pub mod wire;
pub mod workload;

pub use client::Client;
pub use lock::{hold, lock_info};
pub use serve::Serve;
pub use server::{Server, Setup};
pub use stopwatch::Stopwatch;
pub use wait::{eventually, soon};
pub use wire::{bytes_of, int_of, list_of, text_of};

/// Builds a request from words of different types: `req!["DLOCK.ACQUIRE", key, b"\xff", "PX", 100]`.
#[macro_export]
macro_rules! req {
    ($name:expr $(, $word:expr)* $(,)?) => {{
        let mut cmd = $crate::redis::Cmd::new();
        cmd.arg($name);
        $( cmd.arg($word); )*
        cmd
    }};
}
