//! The arguments of commands, read once from left to right into values that cannot be wrong.
//!
//! The words after the key come as an iterator over bytes: the module hands in the server's own strings, a test whatever
//! it likes. Nothing is copied but an owner and a request id.

mod acquire;
mod check;
mod info;
mod log;
mod malformed;
mod release;
mod renew;
mod session;
mod words;

pub use acquire::{Acquire, AcquireAll};
pub use check::Check;
pub use info::Info;
pub use log::{Log, Subcommand};
pub use malformed::{BadLease, CapBy, Excerpt, Malformed, Syntax};
pub use release::Release;
pub use renew::Renew;
pub use session::Session;

pub use crate::settings::Limits;
