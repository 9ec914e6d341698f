//! dlock's commands on locks with a single holder.

use super::{Contender, KEYS, LEASE, RunsOn, over_keys};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::{Load, Request};
use crate::owners;
use crate::resp::{Expect, Reply};

pub const ACQUIRE: &str = "acquire";

pub fn all() -> Vec<Contender> {
    let contender = |name, label, prepare| Contender { name, label, runs_on: RunsOn::Module, prepare };
    vec![
        contender(ACQUIRE, "ACQUIRE + RELEASE", |_| Ok(pair(b"DLOCK.ACQUIRE"))),
        contender("racquire", "RACQUIRE + RELEASE", |_| Ok(pair(b"DLOCK.RACQUIRE"))),
        contender("wlock", "WLOCK + RELEASE", |_| Ok(pair(b"DLOCK.WLOCK"))),
        contender("refused", "ACQUIRE, refused", refused),
        contender("check", "CHECK", check),
        contender("info", "INFO", info),
    ]
}

fn pair(enter: &[u8]) -> Load {
    over_keys(|key, owner| {
        [
            Request::new(&[enter, key, owner, b"PX", LEASE], Expect::Positive),
            Request::new(&[b"DLOCK.RELEASE", key, owner], Expect::Integer(1)),
        ]
    })
}

/// Every lock is held by somebody else.
fn refused(connection: &mut Connection) -> Result<Load, Error> {
    hold_all(connection)?;
    Ok(Load::new((0..KEYS).map(|n| {
        let (key, stranger) = (owners::key(n), owners::owner(KEYS + n));
        [Request::new(&[b"DLOCK.ACQUIRE", &key, &stranger, b"PX", LEASE], Expect::Nil)]
    })))
}

fn check(connection: &mut Connection) -> Result<Load, Error> {
    let tokens = hold_all(connection)?;
    Ok(Load::new(tokens.iter().enumerate().map(|(n, token)| {
        [Request::new(&[b"DLOCK.CHECK", &owners::key(n), token.to_string().as_bytes()], Expect::Positive)]
    })))
}

fn info(connection: &mut Connection) -> Result<Load, Error> {
    hold_all(connection)?;
    Ok(over_keys(|key, _| [Request::new(&[b"DLOCK.INFO", key], INFO_FIELDS)]))
}

/// Acquires every key of the load and returns the tokens.
fn hold_all(connection: &mut Connection) -> Result<Vec<i64>, Error> {
    (0..KEYS)
        .map(|n| {
            let (key, owner) = (owners::key(n), owners::owner(n));
            match connection.call(&[b"DLOCK.ACQUIRE", &key, &owner, b"PX", LEASE])? {
                Reply::Integer(token) => Ok(token),
                other => Err(Error::Reply(format!("DLOCK.ACQUIRE of a free lock got {other:?}"))),
            }
        })
        .collect()
}

/// Six names, six values.
const INFO_FIELDS: Expect = Expect::Array(12);
