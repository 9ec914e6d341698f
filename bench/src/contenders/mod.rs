//! Everything that is measured, one file a set.
//!
//! A new set is a file with an `all()` and a line in [`all`].

mod locks;
mod readers;
mod strings;

use crate::connection::Connection;
use crate::error::Error;
use crate::load::{Load, Request};
use crate::owners;

/// One thing that can be measured.
pub struct Contender {
    /// For `--only` and JSON.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    pub runs_on: RunsOn,
    /// Brings a fresh server into the state that the load needs, and makes the load.
    pub prepare: fn(&mut Connection) -> Result<Load, Error>,
}

/// The server a contender runs on. Rivals get one without the module, as their users have it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunsOn {
    PlainServer,
    Module,
}

/// The rival that ratios are given to: what most people use today.
pub use strings::SET_SCRIPT as BASELINE;

pub use locks::ACQUIRE;
pub use readers::{RENEW_FEW, RENEW_MANY, RLOCK_FEW, RLOCK_MANY};

/// All contenders, in the order of the table.
pub fn all() -> Vec<Contender> {
    [strings::all(), locks::all(), readers::all()].into_iter().flatten().collect()
}

/// Operations of `N` requests over [`KEYS`] keys, each key with an owner of its own.
fn over_keys<const N: usize>(operation: impl Fn(&[u8], &[u8]) -> [Request; N]) -> Load {
    Load::new((0..KEYS).map(|n| operation(&owners::key(n), &owners::owner(n))))
}

/// Locks that a load is spread over.
const KEYS: usize = 64;

/// Long enough that no lease ends during a run, on any machine.
const LEASE: &[u8] = b"600000";
