//! Semaphores: one more permit is taken and given back while others hold theirs.
//!
//! The scripts of Redisson's two semaphores are our own: the same commands in the same order. Its `RSemaphore` counts
//! only, and a permit is lost with its holder. The script on a sorted set is the common recipe.

use std::ops::Range;

use super::{Contender, Kind, LEASE, Prepare, RunsOn, run_through, script};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::owners;
use crate::resp::{Expect, Request};

/// Names and labels of the semaphores. The name of a contender also has how many permits are taken: `sacquire-100`.
pub const SEMAPHORES: [(&str, &str); 4] = [
    ("sacquire", "SACQUIRE PX + RELEASE"),
    ("zset-semaphore", "sorted set, script"),
    ("redisson-semaphore", "Redisson RSemaphore"),
    ("redisson-permits", "Redisson RPermitExpirableSemaphore"),
];

/// Permits that others hold.
pub const TAKEN: [usize; 3] = [1, 100, 10_000];

pub fn all() -> Vec<Contender> {
    let contender = |name, label, runs_on, taken, prepare: Prepare| {
        Contender::new(name, label, runs_on, Kind::Permits(taken), prepare)
    };
    let own = |name, label, taken, prepare| contender(name, label, RunsOn::Module, taken, prepare);
    let rival = |name, label, taken, prepare| contender(name, label, RunsOn::PlainServer, taken, prepare);
    vec![
        own("sacquire-1", "SACQUIRE + RELEASE, 1 permit taken", 1, |c, n| permit(c, n, 1)),
        own("sacquire-100", "SACQUIRE + RELEASE, 100 permits taken", 100, |c, n| permit(c, n, 100)),
        own("sacquire-10000", "SACQUIRE + RELEASE, 10,000 permits taken", 10_000, |c, n| permit(c, n, 10_000)),
        rival("zset-semaphore-1", "sorted set, script, 1 permit taken", 1, |c, n| sorted_set(c, n, 1)),
        rival("zset-semaphore-100", "sorted set, script, 100 permits taken", 100, |c, n| sorted_set(c, n, 100)),
        rival("zset-semaphore-10000", "sorted set, script, 10,000 permits taken", 10_000, |c, n| {
            sorted_set(c, n, 10_000)
        }),
        rival("redisson-semaphore-1", "RSemaphore, 1 permit taken", 1, |c, n| counter(c, n, 1)),
        rival("redisson-semaphore-100", "RSemaphore, 100 permits taken", 100, |c, n| counter(c, n, 100)),
        rival("redisson-semaphore-10000", "RSemaphore, 10,000 permits taken", 10_000, |c, n| counter(c, n, 10_000)),
        rival("redisson-permits-1", "RPermitExpirableSemaphore, 1 permit taken", 1, |c, n| leased(c, n, 1)),
        rival("redisson-permits-100", "RPermitExpirableSemaphore, 100 permits taken", 100, |c, n| leased(c, n, 100)),
        rival("redisson-permits-10000", "RPermitExpirableSemaphore, 10,000 permits taken", 10_000, |c, n| {
            leased(c, n, 10_000)
        }),
    ]
}

fn permit(connection: &mut Connection, numbers: Range<usize>, taken: usize) -> Result<Load, Error> {
    let limit = limit(taken);
    let take = |n: usize| {
        let owner = owners::owner(n);
        Request::new(&[b"DLOCK.SACQUIRE", KEY, &owner, limit.as_bytes(), b"PX", LEASE], Expect::Positive)
    };
    run_through(&Load::new((0..taken).map(|n| [take(n)])), connection)?;
    Ok(Load::new(numbers.map(|n| {
        let release = Request::new(&[b"DLOCK.RELEASE", KEY, &owners::owner(taken + n)], Expect::Integer(1));
        [take(taken + n), release]
    })))
}

/// `KEYS`: permits by the end of their lease. `ARGV`: limit, the client's clock, end of the lease, owner.
const ENTER_SORTED_SET: &str = "
redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[2])
if redis.call('zcard', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('zadd', KEYS[1], ARGV[3], ARGV[4])
  return 1
end
return 0
";

fn sorted_set(connection: &mut Connection, numbers: Range<usize>, taken: usize) -> Result<Load, Error> {
    let enter = script(connection, ENTER_SORTED_SET)?;
    let (limit, end) = (limit(taken), END.to_string());
    fill(connection, KEY, taken, &end)?;
    Ok(Load::new(numbers.map(|n| {
        let owner = owners::owner(taken + n);
        let args: [&[u8]; 4] = [limit.as_bytes(), NOW.as_bytes(), end.as_bytes(), &owner];
        [
            Request::new(&[&[&b"EVALSHA"[..], &enter, b"1", KEY], &args[..]].concat(), Expect::Integer(1)),
            Request::new(&[b"ZREM", KEY, &owner], Expect::Integer(1)),
        ]
    })))
}

/// `KEYS`: permits that are left. `ARGV`: permits wanted.
const TAKE_PERMITS: &str = "
local left = redis.call('get', KEYS[1])
if left ~= false and tonumber(left) >= tonumber(ARGV[1]) then
  redis.call('decrby', KEYS[1], ARGV[1])
  return 1
end
return 0
";

/// `KEYS`: permits that are left, channel. `ARGV`: permits given back, publishing command.
const GIVE_PERMITS_BACK: &str = "
local left = redis.call('incrby', KEYS[1], ARGV[1])
redis.call(ARGV[2], KEYS[2], left)
";

/// The free permits are a number, so it makes no difference how many are taken.
fn counter(connection: &mut Connection, numbers: Range<usize>, taken: usize) -> Result<Load, Error> {
    let enter = script(connection, TAKE_PERMITS)?;
    let leave = script(connection, GIVE_PERMITS_BACK)?;
    set_left(connection, taken)?;
    Ok(Load::new(numbers.map(|_| {
        [
            Request::new(&[b"EVALSHA", &enter, b"1", KEY, b"1"], Expect::Integer(1)),
            Request::new(&[b"EVALSHA", &leave, b"2", KEY, CHANNEL, b"1", b"publish"], Expect::Nil),
        ]
    })))
}

fn leased(connection: &mut Connection, numbers: Range<usize>, taken: usize) -> Result<Load, Error> {
    let enter = script(connection, include_str!("lua/redisson_permits.lua"))?;
    let leave = script(connection, include_str!("lua/redisson_permits_release.lua"))?;
    set_left(connection, taken)?;
    let end = END.to_string();
    fill(connection, ENDS, taken, &end)?;
    Ok(Load::new(numbers.map(|n| {
        let id = permit_id(taken + n);
        let enter: [&[u8]; 12] = [
            b"EVALSHA",
            &enter,
            b"3",
            KEY,
            ENDS,
            CHANNEL,
            b"1",
            end.as_bytes(),
            NOW.as_bytes(),
            NEVER,
            b"publish",
            &id,
        ];
        let leave: [&[u8]; 10] = [b"EVALSHA", &leave, b"3", KEY, CHANNEL, ENDS, &id, b"1", NOW.as_bytes(), b"publish"];
        [Request::new(&enter, Expect::Ok), Request::new(&leave, Expect::Integer(1))]
    })))
}

/// Adds `entries` entries of a sorted set that end late.
fn fill(connection: &mut Connection, key: &[u8], entries: usize, end: &str) -> Result<(), Error> {
    let add = |n: usize| [Request::new(&[b"ZADD", key, end.as_bytes(), &permit_id(n)], Expect::Integer(1))];
    run_through(&Load::new((0..entries).map(add)), connection)
}

/// Stores how many permits are left of [`limit`].
fn set_left(connection: &mut Connection, taken: usize) -> Result<(), Error> {
    let left = (taken * 2 - taken).to_string();
    connection.exchange(&[&Request::new(&[b"SET", KEY, left.as_bytes()], Expect::Ok)])
}

/// Half of the permits are taken.
fn limit(taken: usize) -> String {
    (taken * 2).to_string()
}

/// 16 bytes, as in Redisson.
fn permit_id(n: usize) -> Vec<u8> {
    let mut id = owners::owner(n);
    id.retain(|byte| *byte != b'-');
    id.truncate(16);
    id
}

const KEY: &[u8] = b"semaphore";
/// The ends of leases.
const ENDS: &[u8] = b"{semaphore}:timeout";
const CHANNEL: &[u8] = b"redisson_sc:{semaphore}";
/// The clock of the clients of rivals, in milliseconds, and the end of every lease.
const NOW: &str = "1795214026913";
const END: u64 = 1_795_217_626_913;
/// The end of a lease without an end.
const NEVER: &[u8] = b"922337203685477";
