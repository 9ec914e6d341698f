//! Names that are not UTF-8 stay distinct wherever they are printed.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::process::{With, dlock, outcome};
use dlock_testkit::redis::Cmd;
use dlock_testkit::{Client, Server};

/// Names that a lossy conversion makes equal: bytes that are not UTF-8, and text that looks like their escapes.
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
fn names_stay_distinct_in_json_and_in_tables() {
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
fn owners_that_are_not_text_stay_distinct_in_a_graph() {
    let server = Server::start();
    for owner in [b"o\xff", b"o\xfe"] {
        server.client().int(request("DLOCK.RLOCK", b"doc", owner));
    }
    let _writer = server.waiter("DLOCK.WLOCK doc w BLOCK 0");
    let dot = outcome(dlock(&server).with(["graph", "--format", "dot"])).stdout;
    let edges: HashSet<_> = dot.lines().filter_map(|line| line.split_once(" -> ")?.1.split(" [").next()).collect();
    assert_eq!(edges.len(), 2, "{dot}");
}

/// Names and owners that attack a terminal, or the person who reads it.
const HOSTILE: [&str; 6] = [
    "\u{1b}]0;title\u{7}\u{1b}[2J",
    "\u{9b}31m",
    "a\r\nb\tc\u{7f}",
    "\u{202e}turned\u{2066}",
    "hid\u{200b}den\u{feff}\u{e0041}",
    "\u{2028}line",
];

#[test]
fn no_name_controls_the_terminal_hides_text_or_breaks_a_table() {
    let server = Server::start();
    let mut client = server.client();
    let huge = "n".repeat(1 << 20);
    let mut waiters = Vec::new();
    // The longest name that can be waited for, and one that is longer.
    let long = "n".repeat(65_536);
    for name in HOSTILE.into_iter().chain([long.as_str(), huge.as_str()]) {
        client.int(request("DLOCK.ACQUIRE", name.as_bytes(), HOSTILE.concat().as_bytes()));
        if name != huge {
            waiters.push(server.waiter(request("DLOCK.ACQUIRE", name.as_bytes(), b"bob").arg("BLOCK").arg(0).clone()));
        }
    }
    let is_bad =
        |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}\u{2028}".contains(c));
    let print = |arguments: &[&str], code| {
        // The output is read while it is written, since a pipe does not take all of it.
        let done = dlock(&server).with(arguments).output().expect("dlock");
        let [stdout, stderr] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).expect("readable output"));
        assert_eq!(done.status.code(), Some(code), "{stderr}");
        let is_json = !arguments.contains(&"--table") && stdout.starts_with(['[', '{']);
        let found = [&stdout, &stderr].into_iter().flat_map(|text| text.chars());
        let bad: Vec<_> = found.filter(|c| if is_json { *c != '\n' && c.is_control() } else { is_bad(*c) }).collect();
        assert!(bad.is_empty(), "{:?}: {bad:?}", arguments[0]);
        stdout
    };
    for arguments in [&["ls"][..], &["ls", "--table"], &["graph"], &["graph", "--format", "dot"], &["metrics"]] {
        let output = print(arguments, 0);
        // No column is as wide as the longest name.
        let most = if arguments[0] == "metrics" { 100_000 } else { 3 << 20 };
        assert!(output.len() < most, "{arguments:?}: {} bytes", output.len());
    }
    for name in HOSTILE {
        print(&["info", "--table", "--", name], 0);
        print(&["info", "--json", "--", name], 0);
        print(&["release", "--", name, "nobody"], 1);
        print(&["run", "--no-wait", "--", name, "true"], 1);
    }
    print(&["break", "--yes", "--", HOSTILE[0]], 0);
    client.ok("FLUSHALL");
    for arguments in [&["log", "-n", "100"][..], &["log", "-n", "100", "--table"]] {
        print(arguments, 0);
    }
}
