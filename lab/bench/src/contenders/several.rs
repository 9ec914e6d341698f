//! Several free locks that one owner takes together and gives back.

use std::ops::Range;

use super::redisson::{LockScripts, Names};
use super::{Contender, Kind, LEASE, Prepare, RunsOn, script};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::owners;
use crate::resp::{Expect, Request};

/// The rows of the page, by name and label. A contender has the name of its row, followed by the number of locks.
pub const SEVERAL: [(&str, &str); 3] = [
    ("macquire", "MACQUIRE PX + RELEASE of each"),
    ("set-all", "script: SET NX PX of all or none + script"),
    ("redisson-multi", "Redisson locks, one after the other"),
];

pub const LOCKS_AT_ONCE: [usize; 3] = [2, 8, 64];

pub fn all() -> Vec<Contender> {
    let contender = |name, label, runs_on, locks, prepare: Prepare| {
        Contender::new(name, label, runs_on, Kind::Several(locks), prepare)
    };
    let own = |name, label, locks, prepare| contender(name, label, RunsOn::Module, locks, prepare);
    let rival = |name, label, locks, prepare| contender(name, label, RunsOn::PlainServer, locks, prepare);
    vec![
        own("macquire-2", "MACQUIRE PX + RELEASE, 2 locks", 2, |_, n| Ok(together(n, 2))),
        own("macquire-8", "MACQUIRE PX + RELEASE, 8 locks", 8, |_, n| Ok(together(n, 8))),
        own("macquire-64", "MACQUIRE PX + RELEASE, 64 locks", 64, |_, n| Ok(together(n, 64))),
        rival("set-all-2", "SET NX PX of all or none, 2 locks", 2, |c, n| by_script(c, n, 2)),
        rival("set-all-8", "SET NX PX of all or none, 8 locks", 8, |c, n| by_script(c, n, 8)),
        rival("set-all-64", "SET NX PX of all or none, 64 locks", 64, |c, n| by_script(c, n, 64)),
        rival("redisson-multi-2", "Redisson, 2 locks", 2, |c, n| one_by_one(c, n, 2)),
        rival("redisson-multi-8", "Redisson, 8 locks", 8, |c, n| one_by_one(c, n, 8)),
        rival("redisson-multi-64", "Redisson, 64 locks", 64, |c, n| one_by_one(c, n, 64)),
    ]
}

fn together(numbers: Range<usize>, locks: usize) -> Load {
    let count = locks.to_string();
    over_sets(numbers, locks, |keys, owner| {
        let take = [&[&b"DLOCK.MACQUIRE"[..], count.as_bytes()], keys, &[owner, b"PX", LEASE]].concat();
        let leave = keys.iter().map(|key| Request::new(&[b"DLOCK.RELEASE", key, owner], Expect::Integer(1)));
        [Request::new(&take, Expect::Positive)].into_iter().chain(leave).collect()
    })
}

/// `KEYS`: locks. `ARGV`: owner, lease. 1: all are taken, 0: none.
const SET_ALL: &str = "
for at, key in ipairs(KEYS) do
  if not redis.call('set', key, ARGV[1], 'nx', 'px', ARGV[2]) then
    for taken = 1, at - 1 do
      redis.call('del', KEYS[taken])
    end
    return 0
  end
end
return 1
";

/// `KEYS`: locks. `ARGV`: owner. Returns how many were the owner's.
const DELETE_ALL: &str = "
local deleted = 0
for _, key in ipairs(KEYS) do
  if redis.call('get', key) == ARGV[1] then
    deleted = deleted + redis.call('del', key)
  end
end
return deleted
";

fn by_script(connection: &mut Connection, numbers: Range<usize>, locks: usize) -> Result<Load, Error> {
    let enter = script(connection, SET_ALL)?;
    let leave = script(connection, DELETE_ALL)?;
    let (count, all) = (locks.to_string(), i64::try_from(locks).unwrap_or(0));
    Ok(over_sets(numbers, locks, |keys, owner| {
        let take = [&[&b"EVALSHA"[..], &enter, count.as_bytes()], keys, &[owner, LEASE]].concat();
        let leave = [&[&b"EVALSHA"[..], &leave, count.as_bytes()], keys, &[owner]].concat();
        vec![Request::new(&take, Expect::Integer(1)), Request::new(&leave, Expect::Integer(all))]
    }))
}

fn one_by_one(connection: &mut Connection, numbers: Range<usize>, locks: usize) -> Result<Load, Error> {
    let scripts = LockScripts::load(connection)?;
    Ok(over_sets(numbers, locks, |keys, owner| {
        let names: Vec<Names> = keys.iter().map(|key| Names::of(key, owner)).collect();
        let enter = names.iter().map(|names| scripts.enter(names));
        let leave = names.iter().flat_map(|names| [scripts.leave(names), names.forget()]);
        enter.chain(leave).collect()
    }))
}

/// Every number stands for `locks` locks with an owner of its own.
fn over_sets(numbers: Range<usize>, locks: usize, operation: impl Fn(&[&[u8]], &[u8]) -> Vec<Request>) -> Load {
    Load::new(numbers.map(|n| {
        let keys: Vec<Vec<u8>> = (0..locks).map(|lock| owners::key(n * locks + lock)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        operation(&keys, &owners::owner(n))
    }))
}
