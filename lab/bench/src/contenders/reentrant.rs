//! A reentrant lock in a hash, in which scripts count the owner's entries, and do no more than the lock needs.

use std::ops::Range;

use super::{Contender, Kind, LEASE, Prepare, RunsOn, over, script};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::resp::{Expect, Reply, Request};

pub fn all() -> Vec<Contender> {
    let contender =
        |name, label, prepare: Prepare| Contender::new(name, label, RunsOn::PlainServer, Kind::Pair, prepare);
    vec![
        contender("reentrant", "reentrant hash, EVALSHA", by_script),
        contender("reentrant-fcall", "reentrant hash, FCALL", by_function),
    ]
}

/// `KEYS`: lock. `ARGV`: owner, lease in ms. Replies 1 if the owner has entered, 0 if another owner holds the lock.
const ENTER: &str = "
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 1
end
return 0
";

/// `KEYS`: lock. `ARGV`: owner. Replies 1 if the lock is free now, 0 if the owner still holds it, nil if it did not.
const LEAVE: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return nil
end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
  return 0
end
redis.call('del', KEYS[1])
return 1
";

fn by_script(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    let enter = script(connection, ENTER)?;
    let leave = script(connection, LEAVE)?;
    Ok(pair(numbers, b"EVALSHA", &enter, &leave))
}

fn by_function(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    let library = include_bytes!("lua/reentrant_library.lua");
    match connection.call(&[b"FUNCTION", b"LOAD", b"REPLACE", library])? {
        Reply::Bulk(_) => Ok(pair(numbers, b"FCALL", b"bench_enter", b"bench_leave")),
        other => Err(Error::Reply(format!("FUNCTION LOAD got {other:?}"))),
    }
}

fn pair(numbers: Range<usize>, call: &[u8], enter: &[u8], leave: &[u8]) -> Load {
    over(numbers, |key, owner| {
        [
            Request::new(&[call, enter, b"1", key, owner, LEASE], Expect::Integer(1)),
            Request::new(&[call, leave, b"1", key, owner], Expect::Integer(1)),
        ]
    })
}
