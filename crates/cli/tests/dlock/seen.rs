//! `dlock info`, `ls`, `release`, `break` and `log` for programs: JSON and exit codes.

use crate::process::{With, bare, dlock, outcome};
use dlock_testkit::{Server, lock_info};

/// The output of a subcommand, which is one line of JSON.
#[track_caller]
fn json(server: &Server, arguments: &[&str]) -> (serde_json::Value, Option<i32>) {
    let outcome = outcome(dlock(server).with(arguments));
    assert_eq!(outcome.stderr, "");
    (serde_json::from_str(&outcome.stdout).expect("JSON"), outcome.code)
}

#[test]
fn info_shows_all_holders_and_waiters() {
    let (server, mut client) = Server::start().with_client();
    let tokens = ["a", "b"].map(|owner| client.int(format!("DLOCK.RLOCK doc {owner} PX 600000")));
    let _writer = server.waiter("DLOCK.WLOCK doc w BLOCK 0");
    let (info, code) = json(&server, &["info", "doc"]);
    assert_eq!(code, Some(0));
    for (field, value) in [("name", "doc"), ("mode", "shared")] {
        assert_eq!(info[field], value);
    }
    assert_eq!((&info["holders"], &info["waiters"], &info["token"]), (&2.into(), &1.into(), &tokens[1].into()));
    assert_eq!((&info["holds"][0]["owner"], &info["holds"][0]["token"]), (&"a".into(), &tokens[0].into()));
    assert!(info["holds"][0]["age"].as_u64().expect("ms") < 60_000, "{info}");
    assert!((1..=600_000).contains(&info["holds"][1]["ttl"].as_u64().expect("ms")), "{info}");
    assert_eq!(info["queue"][0]["owner"], "w");
    assert_eq!(json(&server, &["info", "free"]), (serde_json::Value::Null, Some(1)));
}

#[test]
fn info_shows_how_long_a_hold_can_last() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK doc a PX 60000 MAXHOLD 600000");
    client.int("DLOCK.RLOCK doc b PX 60000");
    let (info, _) = json(&server, &["info", "doc"]);
    assert!((500_000..=600_000).contains(&info["holds"][0]["cap"].as_u64().expect("ms")), "{info}");
    assert_eq!((&info["holds"][1]["cap"], &info["holds"][1]["slot"]), (&().into(), &().into()));
    let lines = |server| outcome(dlock(server).with(["info", "--table", "doc"])).stdout;
    let shown = lines(&server);
    assert!(
        shown.contains("SESSION  CAP\n") && shown.lines().nth(4).is_some_and(|line| line.ends_with("-")),
        "{shown}"
    );
    client.int("DLOCK.RELEASE doc a");
    assert!(lines(&server).contains("SESSION\n"), "{}", lines(&server));
}

#[test]
fn ls_lists_locks_that_match() {
    let (server, mut client) = Server::start().with_client();
    client.ok("SET job:0 text");
    for name in ["job:2", "job:1", "other"] {
        client.int(format!("DLOCK.ACQUIRE {name} me PX 600000"));
    }
    let names = |arguments: &[&str]| {
        let (list, code) = json(&server, arguments);
        assert_eq!(code, Some(0));
        let list = list.as_array().expect("an array").clone();
        list.iter().map(|lock| lock["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["ls"]), ["job:1", "job:2", "other"]);
    assert_eq!(names(&["ls", "job:*", "--json"]), ["job:1", "job:2"]);
    assert!(names(&["ls", "nothing"]).is_empty());
}

#[test]
fn release_names_the_owner() {
    let server = Server::start();
    server.client().int("DLOCK.ACQUIRE job me PX 600000");
    let release = |owner: &str| outcome(dlock(&server).with(["release", "job", owner]));
    let wrong = release("you");
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("job is not held by you"), "{}", wrong.stderr);
    assert_eq!(release("me").code, Some(0));
    assert!(server.holders("job").is_empty());
}

#[test]
fn break_needs_a_terminal_or_yes() {
    let (server, mut client) = Server::start().with_client();
    for owner in ["a", "b"] {
        client.int(format!("DLOCK.RLOCK doc {owner} PX 600000"));
    }
    let mut next = server.waiter("DLOCK.WLOCK doc next PX 600000 BLOCK 0");
    let refused = outcome(dlock(&server).with(["break", "doc"]));
    assert_eq!(refused.code, Some(64));
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    assert_eq!(lock_info(&mut client, "doc").expect("a lock").holders, 2);
    let broken = outcome(dlock(&server).with(["break", "--yes", "doc"]));
    assert_eq!(broken.code, Some(0));
    let (before, after) = broken.stdout.split_once(" and b (held ").expect("both");
    assert!(before.starts_with("took doc from a (held ") && after.ends_with("); next has it now\n"), "{broken:?}");
    next.granted();
    assert_eq!(server.holders("doc"), ["next"]);
    assert_eq!(outcome(dlock(&server).with(["break", "--yes", "free"])).code, Some(0));
}

#[test]
fn break_tells_programs_who_lost_the_lock_and_who_has_it() {
    let (server, mut client) = Server::start().with_client();
    let token = client.int("DLOCK.ACQUIRE job alice PX 600000");
    let (told, code) = json(&server, &["break", "--yes", "--json", "job"]);
    assert_eq!(code, Some(0));
    assert_eq!((&told["taken"][0]["owner"], &told["taken"][0]["token"]), (&"alice".into(), &token.into()));
    assert!(told["holders"].as_array().expect("a list").is_empty(), "{told}");
    let (told, _) = json(&server, &["break", "--yes", "--json", "job"]);
    assert!(told["taken"].as_array().expect("a list").is_empty(), "it was free: {told}");
    // A client that only waits for several locks is no holder.
    client.int("DLOCK.ACQUIRE other bob PX 600000");
    let _several = server.waiter("DLOCK.MACQUIRE 2 other job carol BLOCK 0");
    assert_eq!(outcome(dlock(&server).with(["break", "--yes", "job"])).stdout, "job is free\n");
}

#[test]
fn break_leaves_a_trace_with_the_client_that_did_it() {
    let (server, mut client) = Server::start().with_client();
    let token = client.int("DLOCK.ACQUIRE job alice PX 600000");
    assert_eq!(outcome(dlock(&server).with(["break", "--yes", "job"])).code, Some(0));
    let (log, _) = json(&server, &["log", "--event", "break"]);
    let entry = &log[0];
    assert_eq!([&entry["event"], &entry["key"], &entry["owner"]], ["break", "job", "alice"], "{log}");
    assert_eq!(entry["token"], token);
    assert!(entry["addr"].as_str().is_some_and(|addr| addr.starts_with("127.0.0.1:")), "{log}");
    // A release in the name of the owner leaves no event.
    client.int("DLOCK.ACQUIRE job alice PX 600000");
    assert_eq!(outcome(dlock(&server).with(["release", "job", "alice"])).code, Some(0));
    assert_eq!(json(&server, &["log", "--event", "break"]).0.as_array().map(Vec::len), Some(1));
}

#[test]
fn other_keys_are_left_alone() {
    let server = Server::start();
    server.client().ok("SET text precious");
    for arguments in [&["break", "--yes", "text"][..], &["info", "text"]] {
        let outcome = outcome(dlock(&server).with(arguments));
        assert_eq!(outcome.code, Some(69));
        assert!(outcome.stderr.contains("WRONGTYPE"), "{}", outcome.stderr);
    }
    assert_eq!(outcome(dlock(&server).with(["release", "text", "me"])).code, Some(1), "it is not held");
    assert_eq!(server.client().text("GET text"), "precious");
}

#[test]
fn the_server_of_the_option_wins_over_that_of_the_environment() {
    let server = Server::start();
    server.client().int("DLOCK.ACQUIRE job me PX 600000");
    let mut command = bare();
    command.env("DLOCK_URL", "redis://127.0.0.1:1").args(["ls", "-s"]);
    command.arg(format!("redis://127.0.0.1:{}", server.port()));
    let outcome = outcome(command);
    assert!(outcome.stdout.contains("\"job\""), "{outcome:?}");
}

#[test]
fn an_event_that_no_server_logs_is_refused_with_the_ones_there_are() {
    let server = Server::start();
    for wrong in ["foo", "lapse,foo", "", "Lapse"] {
        let refused = outcome(dlock(&server).with(["log", "--event", wrong]));
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""), "{wrong}");
        for event in crate::manual::events() {
            assert!(refused.stderr.contains(&event), "{event}: {}", refused.stderr);
        }
    }
    for event in crate::manual::events() {
        assert_eq!(outcome(dlock(&server).with(["log", "--event", &event])).code, Some(0), "{event}");
    }
}
