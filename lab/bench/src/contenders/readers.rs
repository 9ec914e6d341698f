//! dlock's commands on one lock that many owners hold shared: none may cost more because of the others.

use std::ops::Range;

use super::{Contender, Kind, LEASE, Prepare, RunsOn, run_through};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::owners;
use crate::resp::{Expect, Request};

pub fn all() -> Vec<Contender> {
    let contender = |name, label, others, prepare: Prepare| {
        Contender::new(name, label, RunsOn::Module, Kind::Beside(others), prepare)
    };
    vec![
        contender("rlock-1", "RLOCK + RELEASE, 1 other reader", 1, |c, n| rlock(c, n, 1)),
        contender("rlock-100", "RLOCK + RELEASE, 100 other readers", 100, |c, n| rlock(c, n, 100)),
        contender("rlock-10000", "RLOCK + RELEASE, 10,000 other readers", 10_000, |c, n| rlock(c, n, 10_000)),
        contender("renew-1", "RENEW, 1 reader", 1, |c, _| renew(c, 1)),
        contender("renew-100", "RENEW, 100 readers", 100, |c, _| renew(c, 100)),
        contender("renew-10000", "RENEW, 10,000 readers", 10_000, |c, _| renew(c, 10_000)),
    ]
}

/// Newcomers enter and leave in turn beside that many readers who stay, so that no place in the lock's order is
/// favoured.
fn rlock(connection: &mut Connection, newcomers: Range<usize>, others: usize) -> Result<Load, Error> {
    admit(connection, others)?;
    let key = owners::key(0);
    Ok(Load::new(newcomers.map(|n| {
        let owner = owners::owner(others + n);
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
    run_through(&Load::new((0..readers).map(|n| [enter(&key, &owners::owner(n))])), connection)
}

fn enter(key: &[u8], owner: &[u8]) -> Request {
    Request::new(&[b"DLOCK.RLOCK", key, owner, b"PX", LEASE], Expect::Positive)
}
