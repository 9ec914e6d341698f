//! Locks made of string keys: the rivals that dlock is compared with.

use super::{Contender, LEASE, RunsOn, over_keys};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::{Load, Request};
use crate::resp::{Expect, Reply};

pub const SET_SCRIPT: &str = "set-script";

pub fn all() -> Vec<Contender> {
    vec![
        Contender { name: "set-del", label: "SET NX PX + DEL", runs_on: RunsOn::PlainServer, prepare: set_del },
        Contender { name: SET_SCRIPT, label: "SET NX PX + script", runs_on: RunsOn::PlainServer, prepare: set_script },
    ]
}

/// No owner check: whoever comes late deletes the lock of the next owner.
fn set_del(_: &mut Connection) -> Result<Load, Error> {
    Ok(over_keys(|key, owner| [set(key, owner), Request::new(&[b"DEL", key], Expect::Integer(1))]))
}

/// The release compares the owner first, which takes a script.
fn set_script(connection: &mut Connection) -> Result<Load, Error> {
    let digest = match connection.call(&[b"SCRIPT", b"LOAD", COMPARE_AND_DELETE])? {
        Reply::Bulk(digest) => digest,
        other => return Err(Error::Reply(format!("SCRIPT LOAD got {other:?}"))),
    };
    Ok(over_keys(|key, owner| {
        [set(key, owner), Request::new(&[b"EVALSHA", &digest, b"1", key, owner], Expect::Integer(1))]
    }))
}

fn set(key: &[u8], owner: &[u8]) -> Request {
    Request::new(&[b"SET", key, owner, b"NX", b"PX", LEASE], Expect::Ok)
}

/// As in the Redis documentation of `SET`.
const COMPARE_AND_DELETE: &[u8] =
    b"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
