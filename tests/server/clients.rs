//! A third-party client as its users have it: the `redis` crate with its own connection and conversions.

use std::collections::HashMap;

use redis::{Connection, ErrorKind, Value, cmd};

use crate::support::Server;

fn connect(server: &Server, protocol: &str) -> Connection {
    let url = format!("redis://127.0.0.1:{}/0?protocol={protocol}", server.port());
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

#[test]
fn the_redis_crate_locks_and_unlocks() {
    let server = Server::start();
    for protocol in ["resp2", "resp3"] {
        let mut con = connect(&server, protocol);
        let token: Option<u64> = cmd("DLOCK.ACQUIRE").arg("k").arg("me").arg("PX").arg(60_000).query(&mut con).unwrap();
        let token = token.expect("granted");
        let refused: Option<u64> = cmd("DLOCK.ACQUIRE").arg("k").arg("you").query(&mut con).unwrap();
        assert_eq!(refused, None);
        let left: Option<u64> = cmd("DLOCK.CHECK").arg("k").arg(token).query(&mut con).unwrap();
        assert!((1..=60_000).contains(&left.unwrap()));
        let info: HashMap<String, Value> = cmd("DLOCK.INFO").arg("k").query(&mut con).unwrap();
        assert_eq!(info["token"], Value::Int(token.cast_signed()));
        let info: Option<HashMap<String, Value>> = cmd("DLOCK.INFO").arg("none").query(&mut con).unwrap();
        assert_eq!(info, None);
        let released: Option<i64> =
            cmd("DLOCK.RELEASE").arg("k").arg("me").arg("TOKEN").arg(token).query(&mut con).unwrap();
        assert_eq!(released, Some(1));
        let (owner, token): (String, u64) = cmd("DLOCK.RLOCK").arg("k").arg("*").query(&mut con).unwrap();
        assert!(owner.len() == 36 && token > 0);
        let none: Option<(String, u64)> = cmd("DLOCK.WLOCK").arg("k").arg("*").query(&mut con).unwrap();
        assert_eq!(none, None);
        let released: i64 = cmd("DLOCK.RELEASE").arg("k").arg(owner).query(&mut con).unwrap();
        assert_eq!(released, 1);
    }
}

#[test]
fn the_redis_crate_gets_errors_as_errors() {
    let server = Server::start();
    let mut con = connect(&server, "resp3");
    let bad = cmd("DLOCK.ACQUIRE").arg("k").arg("me").arg("PX").arg(0).query::<Option<u64>>(&mut con).unwrap_err();
    assert!(matches!(bad.kind(), ErrorKind::Server(_)), "{bad:?}");
    let _: u64 = cmd("DLOCK.WLOCK").arg("k").arg("me").query(&mut con).unwrap();
    let _: u64 = cmd("DLOCK.RLOCK").arg("k").arg("me").query(&mut con).unwrap();
    let ambiguous = cmd("DLOCK.RELEASE").arg("k").arg("me").query::<Option<u64>>(&mut con).unwrap_err();
    assert_eq!(ambiguous.code(), Some("AMBIGUOUS"));
}

#[test]
fn the_redis_crate_pipelines_and_transacts() {
    let server = Server::start();
    let mut con = connect(&server, "resp2");
    let mut pipe = redis::pipe();
    pipe.cmd("DLOCK.ACQUIRE")
        .arg("a")
        .arg("me")
        .cmd("DLOCK.ACQUIRE")
        .arg("a")
        .arg("you")
        .cmd("DLOCK.RELEASE")
        .arg("a")
        .arg("me");
    let replies: (Option<u64>, Option<u64>, Option<i64>) = pipe.query(&mut con).unwrap();
    assert!(matches!(replies, (Some(_), None, Some(1))), "{replies:?}");
    let mut both = redis::pipe();
    both.atomic().cmd("DLOCK.ACQUIRE").arg("x").arg("me").cmd("DLOCK.ACQUIRE").arg("y").arg("me");
    let (x, y): (u64, u64) = both.query(&mut con).unwrap();
    assert!(y > x);
}
