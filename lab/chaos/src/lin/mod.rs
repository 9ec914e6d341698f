//! Linearizability: the contract explains everything that several connections saw of two locks, as if one client had
//! sent the same commands one after the other, each at some time between its sending and its reply.
//!
//! | file | knows |
//! |---|---|
//! | `record` | how histories are made on a real server |
//! | `model` | what the contract answers to a command at a time |
//! | `search` | whether there is an order that explains a history |

mod model;
mod record;
mod search;

pub use record::{Tally, record_and_check};

use crate::history::Reply;

/// A command of a history, with its times by the server's clock.
#[derive(Clone, Debug)]
pub struct Op {
    /// The command, as it was sent.
    pub command: String,
    /// Unix ms before which it was not executed.
    pub from_ms: u64,
    /// Unix ms after which it was not executed.
    pub until_ms: u64,
    /// The places of its sending and of its reply in the order of all events.
    pub sent: u64,
    pub replied: u64,
    pub reply: Reply,
}
