//! dlock's commands on one lock that many owners hold shared: none may cost more because of the others.

use super::{Contender, LEASE, RunsOn};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::{Load, Request};
use crate::owners;
use crate::resp::Expect;

pub const RLOCK_FEW: &str = "rlock-1";
pub const RLOCK_MANY: &str = "rlock-10000";
pub const RENEW_FEW: &str = "renew-1";
pub const RENEW_MANY: &str = "renew-10000";

pub fn all() -> Vec<Contender> {
    let contender = |name, label, prepare| Contender { name, label, runs_on: RunsOn::Module, prepare };
    vec![
        contender(RLOCK_FEW, "RLOCK + RELEASE, 1 other reader", |c| rlock(c, 1)),
        contender(RLOCK_MANY, "RLOCK + RELEASE, 10,000 other readers", |c| rlock(c, 10_000)),
        contender(RENEW_FEW, "RENEW, 1 reader", |c| renew(c, 1)),
        contender(RENEW_MANY, "RENEW, 10,000 readers", |c| renew(c, 10_000)),
    ]
}

/// Newcomers enter and leave beside that many readers who stay.
fn rlock(connection: &mut Connection, others: usize) -> Result<Load, Error> {
    admit(connection, others)?;
    let key = owners::key(0);
    Ok(Load::new((others..others + NEWCOMERS).map(|n| {
        let owner = owners::owner(n);
        [enter(&key, &owner), Request::new(&[b"DLOCK.RELEASE", &key, &owner], Expect::Integer(1))]
    })))
}

/// The readers renew in turn.
fn renew(connection: &mut Connection, readers: usize) -> Result<Load, Error> {
    admit(connection, readers)?;
    let key = owners::key(0);
    Ok(Load::new(
        (0..readers)
            .map(|n| [Request::new(&[b"DLOCK.RENEW", &key, &owners::owner(n), b"PX", LEASE], Expect::Integer(1))]),
    ))
}

fn admit(connection: &mut Connection, readers: usize) -> Result<(), Error> {
    let key = owners::key(0);
    Load::new((0..readers).map(|n| [enter(&key, &owners::owner(n))])).run(connection, readers)
}

fn enter(key: &[u8], owner: &[u8]) -> Request {
    Request::new(&[b"DLOCK.RLOCK", key, owner, b"PX", LEASE], Expect::Positive)
}

/// Owners that enter and leave in turn, so that no place in the lock's order is favoured.
const NEWCOMERS: usize = 64;
