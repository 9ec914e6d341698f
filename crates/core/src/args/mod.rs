//! The arguments of commands, read once from left to right into values that are valid by their types.
//!
//! The words after the key are an iterator over bytes, so that the module can pass the server's own strings. The parser
//! copies only owners, request ids and session ids, and the beginning of a word that an error quotes.

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
