//! Names that are not UTF-8 stay apart wherever they are printed.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::process::{With, dlock, outcome};
use dlock_testkit::redis::Cmd;
use dlock_testkit::{Client, Server};

/// Names that a lossy form makes one: bytes that are no UTF-8, and text that looks like what may stand for them.
const NAMES: [&[u8]; 6] =
    [b"job\xff", b"job\xfe", "job\u{fffd}".as_bytes(), "job\u{fffd}ff".as_bytes(), b"job\\xff", b"job\n"];

fn held() -> (Server, Vec<Client>) {
    let server = Server::start();
    let waiters = NAMES.map(|name| {
        server.client().int(request("DLOCK.ACQUIRE", name, b"alice"));
        server.waiter(request("DLOCK.ACQUIRE", name, b"bob").arg("BLOCK").arg(0).clone())
    });
    (server, waiters.into())
}

fn request(command: &str, name: &[u8], owner: &[u8]) -> Cmd {
    let mut request = Cmd::new();
    request.arg(command).arg(name).arg(owner).arg("PX").arg(600_000);
    request
}

#[test]
fn each_name_has_a_series_of_its_own() {
    let (server, _waiters) = held();
    let page = outcome(dlock(&server).with(["metrics"])).stdout;
    let series: Vec<_> = page.lines().filter(|line| line.starts_with("dlock_lock_waiters{")).collect();
    assert_eq!(series.len(), NAMES.len(), "{page}");
    assert_eq!(series.iter().collect::<HashSet<_>>().len(), NAMES.len(), "{series:#?}");
}

#[test]
fn each_name_is_another_one_in_json_and_in_tables() {
    let (server, _waiters) = held();
    let list = outcome(dlock(&server).with(["ls", "--json"])).stdout;
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    let names: HashSet<_> = list.as_array().expect("a list").iter().map(|lock| lock["name"].clone()).collect();
    assert_eq!(names.len(), NAMES.len(), "{names:?}");
    let is_there = |name: &str| names.contains(&serde_json::Value::from(name));
    assert!(is_there("job\\xff") && is_there("job\n"), "readable names are as they are: {names:?}");
    let table = outcome(dlock(&server).with(["ls", "--table"])).stdout;
    let rows: HashSet<_> = table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(rows.len(), NAMES.len(), "{table}");
    for name in NAMES {
        let info = outcome(dlock(&server).with([OsString::from("info"), OsString::from_vec(name.to_vec())]));
        let info: serde_json::Value = serde_json::from_str(&info.stdout).expect("JSON");
        assert!(names.contains(&info["name"]), "{info}");
    }
}

#[test]
fn owners_that_are_not_text_are_other_nodes_of_a_graph() {
    let server = Server::start();
    for owner in [b"o\xff", b"o\xfe"] {
        server.client().int(request("DLOCK.RLOCK", b"doc", owner));
    }
    let _writer = server.waiter("DLOCK.WLOCK doc w BLOCK 0");
    let dot = outcome(dlock(&server).with(["graph", "--format", "dot"])).stdout;
    let edges: HashSet<_> = dot.lines().filter_map(|line| line.split_once(" -> ")?.1.split(" [").next()).collect();
    assert_eq!(edges.len(), 2, "{dot}");
}
