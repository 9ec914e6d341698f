//! dlock's commands on locks with at most one holder. Pairs and renewals with `-px` in their names give the lease.
//! Without it, the lease of a pair is the server's setting, and a renewal keeps that of the hold.

use std::ops::Range;

use super::{Background, Contender, Kind, LEASE, Prepare, RunsOn, over};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::owners;
use crate::resp::{Expect, Reply, Request};

pub const ACQUIRE: &str = "acquire";

pub fn all() -> Vec<Contender> {
    let contender = |name, label, kind, prepare: Prepare| Contender::new(name, label, RunsOn::Module, kind, prepare);
    vec![
        contender(ACQUIRE, "ACQUIRE + RELEASE", Kind::Pair, |_, n| Ok(pair(b"DLOCK.ACQUIRE", &[], n))),
        contender("acquire-px", "ACQUIRE PX + RELEASE", Kind::Pair, |_, n| Ok(pair(b"DLOCK.ACQUIRE", PX, n))).exactly(),
        contender("acquire-px-busy", "ACQUIRE PX + RELEASE, busy server", Kind::Pair, |_, n| {
            Ok(pair(b"DLOCK.ACQUIRE", PX, n))
        })
        .beside(Background::Locks),
        contender("acquire-px-no-log", "ACQUIRE PX + RELEASE, no log", Kind::Pair, without_log)
            .beside(Background::Nobody),
        contender("racquire", "RACQUIRE + RELEASE", Kind::Pair, |_, n| Ok(pair(b"DLOCK.RACQUIRE", &[], n))),
        contender("racquire-px", "RACQUIRE PX + RELEASE", Kind::Pair, |_, n| Ok(pair(b"DLOCK.RACQUIRE", PX, n))),
        contender("racquire-px-busy", "RACQUIRE PX + RELEASE, busy server", Kind::Pair, |_, n| {
            Ok(pair(b"DLOCK.RACQUIRE", PX, n))
        })
        .beside(Background::Locks),
        contender("rlock", "RLOCK + RELEASE", Kind::Pair, |_, n| Ok(pair(b"DLOCK.RLOCK", &[], n))),
        contender("wlock", "WLOCK + RELEASE", Kind::Pair, |_, n| Ok(pair(b"DLOCK.WLOCK", &[], n))),
        contender("renew", "RENEW", Kind::Renewal, |connection, n| renew(connection, &[], n)),
        contender("renew-px", "RENEW PX", Kind::Renewal, |connection, n| renew(connection, PX, n)),
        contender("renew-px-busy", "RENEW PX, busy server", Kind::Renewal, |connection, n| renew(connection, PX, n))
            .beside(Background::Locks),
        contender("refused", "ACQUIRE, refused", Kind::Look, refused),
        contender("check", "CHECK", Kind::Look, check),
        contender("info", "INFO", Kind::Look, info),
    ]
}

/// A lease that is given.
const PX: &[&[u8]] = &[b"PX", LEASE];

fn pair(enter: &[u8], lease: &[&[u8]], numbers: Range<usize>) -> Load {
    over(numbers, |key, owner| {
        [
            Request::new(&[&[enter, key, owner], lease].concat(), Expect::Positive),
            Request::new(&[b"DLOCK.RELEASE", key, owner], Expect::Integer(1)),
        ]
    })
}

/// A server whose log is off.
fn without_log(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    match connection.call(&[b"CONFIG", b"SET", b"dlock.log-max-len", b"0"])? {
        Reply::Simple(_) => Ok(pair(b"DLOCK.ACQUIRE", PX, numbers)),
        _ => Err(Error::Lacking("dlock.log-max-len".into())),
    }
}

fn renew(connection: &mut Connection, lease: &[&[u8]], numbers: Range<usize>) -> Result<Load, Error> {
    hold_all(connection, numbers.clone())?;
    Ok(over(numbers, |key, owner| [Request::new(&[&[b"DLOCK.RENEW", key, owner], lease].concat(), Expect::Integer(1))]))
}

/// An owner holds every lock, and another one asks for it.
fn refused(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    hold_all(connection, numbers.clone())?;
    let strangers = numbers.end;
    Ok(Load::new(numbers.map(|n| {
        let (key, stranger) = (owners::key(n), owners::owner(strangers + n));
        [Request::new(&[b"DLOCK.ACQUIRE", &key, &stranger, b"PX", LEASE], Expect::Nil)]
    })))
}

fn check(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    let tokens = hold_all(connection, numbers.clone())?;
    Ok(Load::new(numbers.zip(tokens).map(|(n, token)| {
        [Request::new(&[b"DLOCK.CHECK", &owners::key(n), token.to_string().as_bytes()], Expect::Positive)]
    })))
}

fn info(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    hold_all(connection, numbers.clone())?;
    Ok(over(numbers, |key, _| [Request::new(&[b"DLOCK.INFO", key], INFO_FIELDS)]))
}

/// Acquires every lock of the load and returns the tokens.
fn hold_all(connection: &mut Connection, numbers: Range<usize>) -> Result<Vec<i64>, Error> {
    numbers
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
