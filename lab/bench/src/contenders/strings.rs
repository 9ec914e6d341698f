//! Locks made of string keys, by `SET NX PX`, as programs have them without a module.

use std::ops::Range;

use super::{Contender, Kind, LEASE, Prepare, RunsOn, over, run_through, script};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::resp::{Expect, Reply, Request};

pub const SET_DEL: &str = "set-del";
pub const SET_SCRIPT: &str = "set-script";

/// The script of the documentation of `SET`, which deletes the lock of its owner only.
pub const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
/// A script that extends the lock of its owner only.
const COMPARE_AND_RENEW: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

pub fn all() -> Vec<Contender> {
    let contender =
        |name, label, kind, prepare: Prepare| Contender::new(name, label, RunsOn::PlainServer, kind, prepare);
    vec![
        contender(SET_DEL, "SET NX PX + DEL", Kind::Pair, set_del),
        contender(SET_SCRIPT, "SET NX PX + script", Kind::Pair, set_script),
        contender("set-cad", "SET NX PX + DELIFEQ or DELEX", Kind::Pair, set_compare_and_delete),
        contender("script-renew", "script: compare, PEXPIRE", Kind::Renewal, script_renew),
        contender("set-ifeq", "SET IFEQ PX", Kind::Renewal, set_ifeq),
    ]
}

/// The release does not compare the owner: a late owner deletes the lock of the next one.
fn set_del(_: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    Ok(over(numbers, |key, owner| [set(key, owner), Request::new(&[b"DEL", key], Expect::Integer(1))]))
}

/// The release compares the owner first, which takes a script.
fn set_script(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    let digest = script(connection, COMPARE_AND_DELETE)?;
    Ok(over(numbers, |key, owner| {
        [set(key, owner), Request::new(&[b"EVALSHA", &digest, b"1", key, owner], Expect::Integer(1))]
    }))
}

/// The release compares the owner and deletes the key in one command, on servers that have one.
fn set_compare_and_delete(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    if has(connection, b"DELIFEQ")? {
        return Ok(over(numbers, |key, owner| {
            [set(key, owner), Request::new(&[b"DELIFEQ", key, owner], Expect::Integer(1))]
        }));
    }
    if has(connection, b"DELEX")? {
        return Ok(over(numbers, |key, owner| {
            [set(key, owner), Request::new(&[b"DELEX", key, b"IFEQ", owner], Expect::Integer(1))]
        }));
    }
    Err(Error::Lacking("DELIFEQ or DELEX".into()))
}

fn script_renew(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    hold(connection, numbers.clone())?;
    let digest = script(connection, COMPARE_AND_RENEW)?;
    Ok(over(numbers, |key, owner| [Request::new(&[b"EVALSHA", &digest, b"1", key, owner, LEASE], Expect::Integer(1))]))
}

fn set_ifeq(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    // Sets nothing, because there is no such key. A server without `IFEQ` replies with an error.
    if let Reply::Error(_) = connection.call(&[b"SET", b"probe", b"a", b"IFEQ", b"b"])? {
        return Err(Error::Lacking("SET IFEQ".into()));
    }
    hold(connection, numbers.clone())?;
    Ok(over(numbers, |key, owner| [Request::new(&[b"SET", key, owner, b"IFEQ", owner, b"PX", LEASE], Expect::Ok)]))
}

/// Takes the locks that the measured requests renew.
fn hold(connection: &mut Connection, numbers: Range<usize>) -> Result<(), Error> {
    run_through(&over(numbers, |key, owner| [set(key, owner)]), connection)
}

fn has(connection: &mut Connection, command: &[u8]) -> Result<bool, Error> {
    let reply = connection.call(&[b"COMMAND", b"INFO", command])?;
    Ok(matches!(reply, Reply::Array(commands) if commands.iter().any(|command| *command != Reply::Nil)))
}

fn set(key: &[u8], owner: &[u8]) -> Request {
    Request::new(&[b"SET", key, owner, b"NX", b"PX", LEASE], Expect::Ok)
}
