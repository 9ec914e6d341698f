//! Commands on keys that are no locks: what a module costs those who share its server.

use std::ops::Range;

use super::{Background, Contender, Kind, Prepare, RunsOn, over};
use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::resp::{Expect, Request};

/// The name and the label of each command. The names of contenders in [`all`] end with what else is on the server.
pub const COMMANDS: [(&str, &str); 4] = [
    ("set-ex", "SET EX"),
    ("set-ex-del", "SET EX + DEL"),
    ("hset-expire", "HSET + EXPIRE"),
    ("lpush-lpop", "LPUSH + LPOP"),
];

pub fn all() -> Vec<Contender> {
    let contender = |name, label, runs_on, background, prepare: Prepare| {
        Contender::new(name, label, runs_on, Kind::OtherKeys, prepare).beside(background)
    };
    let plain = |name, label, prepare| contender(name, label, RunsOn::PlainServer, Background::Nobody, prepare);
    let list = |name, label, prepare| contender(name, label, RunsOn::PlainServer, Background::List, prepare);
    let loaded = |name, label, prepare| contender(name, label, RunsOn::Module, Background::Nobody, prepare);
    let busy = |name, label, prepare| contender(name, label, RunsOn::Module, Background::Locks, prepare);
    vec![
        plain("set-ex", "SET EX", set),
        loaded("set-ex-loaded", "SET EX, module loaded", set),
        busy("set-ex-busy", "SET EX, module busy", set),
        plain("set-ex-del", "SET EX + DEL", set_del),
        loaded("set-ex-del-loaded", "SET EX + DEL, module loaded", set_del),
        busy("set-ex-del-busy", "SET EX + DEL, module busy", set_del),
        list("set-ex-del-blpop", "SET EX + DEL, BLPOP elsewhere", set_del),
        plain("hset-expire", "HSET + EXPIRE", hset_expire),
        loaded("hset-expire-loaded", "HSET + EXPIRE, module loaded", hset_expire),
        busy("hset-expire-busy", "HSET + EXPIRE, module busy", hset_expire),
        // `LPUSH` creates a key of the type that `BLPOP` waits for: the server's own work for a blocked client.
        plain("lpush-lpop", "LPUSH + LPOP", push_pop),
        busy("lpush-lpop-busy", "LPUSH + LPOP, module busy", push_pop),
        list("lpush-lpop-blpop", "LPUSH + LPOP, BLPOP elsewhere", push_pop),
    ]
}

fn set(_: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    Ok(over(numbers, |key, value| [Request::new(&[b"SET", key, value, b"EX", SECONDS], Expect::Ok)]))
}

/// Every `SET` creates a key.
fn set_del(_: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    Ok(over(numbers, |key, value| {
        [
            Request::new(&[b"SET", key, value, b"EX", SECONDS], Expect::Ok),
            Request::new(&[b"DEL", key], Expect::Integer(1)),
        ]
    }))
}

fn hset_expire(connection: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    // The field exists before the first measured `HSET`.
    let fill = over(numbers.clone(), |key, value| [Request::new(&[b"HSET", key, b"field", value], Expect::Integer(1))]);
    super::run_through(&fill, connection)?;
    Ok(over(numbers, |key, value| {
        [
            Request::new(&[b"HSET", key, b"field", value], Expect::Integer(0)),
            Request::new(&[b"EXPIRE", key, SECONDS], Expect::Integer(1)),
        ]
    }))
}

fn push_pop(_: &mut Connection, numbers: Range<usize>) -> Result<Load, Error> {
    Ok(over(numbers, |key, value| {
        [Request::new(&[b"LPUSH", key, value], Expect::Integer(1)), Request::new(&[b"LPOP", key], Expect::Bulk)]
    }))
}

const SECONDS: &[u8] = b"3600";
