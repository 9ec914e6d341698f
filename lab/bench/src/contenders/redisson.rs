//! The operations of Redisson's locks on the server, in scripts of our own: the same commands in the same order.
//!
//! An unlock keeps its verdict in a key, the latch, for a repeat of the same unlock; the client deletes it with a request
//! of its own. The measured operation includes that request.

use std::ops::Range;

use super::{Contender, Kind, LEASE, Prepare, RunsOn, over, run_through, script};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::owners;
use crate::resp::{Expect, Request};

pub fn all() -> Vec<Contender> {
    let contender =
        |name, label, kind, prepare: Prepare| Contender::new(name, label, RunsOn::PlainServer, kind, prepare);
    vec![
        contender("redisson-lock", "Redisson lock", Kind::Pair, lock),
        contender("redisson-read", "Redisson read lock", Kind::Pair, read),
        contender("redisson-write", "Redisson write lock", Kind::Pair, write),
        contender("redisson-fair", "Redisson fair lock", Kind::Pair, fair),
        contender("redisson-renew", "Redisson lock, renewal", Kind::Renewal, renew),
        contender("redisson-read-1", "Redisson read lock, 1 other reader", Kind::Beside(1), |c, n| {
            read_beside(c, n, 1)
        }),
        contender("redisson-read-100", "Redisson read lock, 100 other readers", Kind::Beside(100), |c, n| {
            read_beside(c, n, 100)
        }),
        contender("redisson-read-10000", "Redisson read lock, 10,000 other readers", Kind::Beside(10_000), |c, n| {
            read_beside(c, n, 10_000)
        }),
    ]
}

fn lock(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    let scripts = LockScripts::load(connection)?;
    Ok(over(numbers, |key, owner| {
        let names = Names::of(key, owner);
        [scripts.enter(&names), scripts.leave(&names), names.forget()]
    }))
}

pub struct LockScripts {
    enter: Vec<u8>,
    leave: Vec<u8>,
}

impl LockScripts {
    pub fn load(connection: &mut Connection) -> Result<Self, Error> {
        Ok(Self {
            enter: script(connection, include_str!("lua/redisson_lock.lua"))?,
            leave: script(connection, include_str!("lua/redisson_unlock.lua"))?,
        })
    }

    pub fn enter(&self, names: &Names) -> Request {
        Request::new(&[b"EVALSHA", &self.enter, b"1", &names.key, LEASE, &names.owner], Expect::Nil)
    }

    pub fn leave(&self, names: &Names) -> Request {
        names.leave(&self.leave, &[], &[MESSAGE, LEASE, &names.owner])
    }
}

/// `KEYS`: lock. `ARGV`: lease, owner.
const RENEW: &str = "
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 1
end
return 0
";

fn renew(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    let scripts = LockScripts::load(connection)?;
    let holds = over(numbers.clone(), |key, owner| [scripts.enter(&Names::of(key, owner))]);
    run_through(&holds, connection)?;
    let renew = script(connection, RENEW)?;
    Ok(over(numbers, |key, owner| {
        let names = Names::of(key, owner);
        [Request::new(&[b"EVALSHA", &renew, b"1", key, LEASE, &names.owner], Expect::Integer(1))]
    }))
}

fn write(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    let enter = script(connection, include_str!("lua/redisson_write_lock.lua"))?;
    let leave = script(connection, include_str!("lua/redisson_write_unlock.lua"))?;
    Ok(over(numbers, |key, owner| {
        let names = Names::of(key, owner);
        let writer = names.writer();
        [
            Request::new(&[b"EVALSHA", &enter, b"1", key, LEASE, &writer], Expect::Nil),
            names.leave(&leave, &[], &[MESSAGE, LEASE, &writer]),
            names.forget(),
        ]
    }))
}

fn fair(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    let enter = script(connection, include_str!("lua/redisson_fair_lock.lua"))?;
    let leave = script(connection, include_str!("lua/redisson_fair_unlock.lua"))?;
    Ok(over(numbers, |key, owner| {
        let names = Names::of(key, owner);
        let queue = joined(&[b"redisson_lock_queue:{", key, b"}"]);
        let deadlines = joined(&[b"redisson_lock_timeout:{", key, b"}"]);
        [
            Request::new(
                &[b"EVALSHA", &enter, b"3", key, &queue, &deadlines, LEASE, &names.owner, WAIT, CLOCK],
                Expect::Nil,
            ),
            names.leave(&leave, &[&queue, &deadlines], &[MESSAGE, LEASE, &names.owner, CLOCK]),
            names.forget(),
        ]
    }))
}

/// Each lock has one reader.
fn read(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    let scripts = ReadScripts::load(connection)?;
    Ok(over(numbers, |key, owner| scripts.pair(&Names::of(key, owner))))
}

/// Newcomers enter and leave beside that many readers who stay.
fn read_beside(connection: &mut Connection, numbers: Range<usize>, others: usize) -> Result<Load, Error> {
    let scripts = ReadScripts::load(connection)?;
    let names = |n| Names::of(&owners::key(0), &owners::owner(n));
    run_through(&Load::new((0..others).map(|n| [scripts.enter(&names(n))])), connection)?;
    Ok(Load::new(numbers.map(|n| {
        let names = names(others + n);
        [scripts.enter(&names), scripts.leave(&names, Expect::Integer(0)), names.forget()]
    })))
}

struct ReadScripts {
    enter: Vec<u8>,
    leave: Vec<u8>,
}

impl ReadScripts {
    fn load(connection: &mut Connection) -> Result<Self, Error> {
        Ok(Self {
            enter: script(connection, include_str!("lua/redisson_read_lock.lua"))?,
            leave: script(connection, include_str!("lua/redisson_read_unlock.lua"))?,
        })
    }

    fn pair(&self, names: &Names) -> [Request; 3] {
        [self.enter(names), self.leave(names, Expect::Integer(1)), names.forget()]
    }

    fn enter(&self, names: &Names) -> Request {
        Request::new(
            &[b"EVALSHA", &self.enter, b"2", &names.key, &names.holds(), LEASE, &names.owner, &names.writer()],
            Expect::Nil,
        )
    }

    fn leave(&self, names: &Names, expect: Expect) -> Request {
        let braced = joined(&[b"{", &names.key, b"}"]);
        let keys: [&[u8]; 5] = [&names.key, &names.channel, &names.latch, &names.holds(), &braced];
        let head: [&[u8]; 3] = [b"EVALSHA", &self.leave, b"5"];
        Request::new(&[&head[..], &keys, &[MESSAGE, &names.owner, b"publish", LATCH_LEASE]].concat(), expect)
    }
}

/// The names of the keys, channels and owners of one lock and one client.
pub struct Names {
    key: Vec<u8>,
    /// A client and one of its threads.
    owner: Vec<u8>,
    channel: Vec<u8>,
    latch: Vec<u8>,
}

impl Names {
    pub fn of(key: &[u8], owner: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            owner: joined(&[owner, b":1"]),
            channel: joined(&[b"redisson_lock__channel:{", key, b"}"]),
            latch: joined(&[b"redisson_unlock_latch:{", key, b"}:0123456789abcdef0123456789abcdef"]),
        }
    }

    fn writer(&self) -> Vec<u8> {
        joined(&[&self.owner, b":write"])
    }

    fn holds(&self) -> Vec<u8> {
        joined(&[b"{", &self.key, b"}:", &self.owner, b":holds"])
    }

    /// Returns an unlock by a script. `KEYS`: the lock, these keys, channel, latch. `ARGV`: these arguments, the publishing
    /// command, the lease of the latch.
    fn leave(&self, digest: &[u8], keys: &[&[u8]], args: &[&[u8]]) -> Request {
        let count = (keys.len() + 3).to_string();
        let head: [&[u8]; 4] = [b"EVALSHA", digest, count.as_bytes(), &self.key];
        let names: [&[u8]; 2] = [&self.channel, &self.latch];
        let last: [&[u8]; 2] = [b"publish", LATCH_LEASE];
        Request::new(&[&head[..], keys, &names, args, &last].concat(), Expect::Integer(1))
    }

    /// Returns the request that deletes the latch.
    pub fn forget(&self) -> Request {
        Request::new(&[b"DEL", &self.latch], Expect::Integer(1))
    }
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// The message of an unlock, to those who wait.
const MESSAGE: &[u8] = b"0";
/// The lease of the latch: timeout, retries and their delays at Redisson's defaults.
const LATCH_LEASE: &[u8] = b"18000";
/// The wait of the fair lock, in milliseconds: its default.
const WAIT: &[u8] = b"300000";
/// The clock of the fair lock's client. Nobody is in the queue, so it does not matter.
const CLOCK: &[u8] = b"1795214026913";
