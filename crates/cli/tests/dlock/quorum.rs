//! Several servers are a quorum.

use std::process::Command;

use crate::process::{Notes, Running, With, bare, outcome};
use dlock_testkit::{Server, Setup, soon};

fn servers(count: usize) -> Vec<Server> {
    let setup = Setup::new().conf("appendonly yes\nappendfsync always");
    (0..count).map(|_| setup.clone().start()).collect()
}

/// `dlock` with these servers, which keep their locks on disk.
fn dlock_on(servers: &[Server], arguments: &[&str]) -> Command {
    let mut command = bare();
    for server in servers {
        command.arg("-s").arg(format!("redis://127.0.0.1:{}", server.port()));
    }
    command.args(["--longest-lease", "1m", "--server-timeout", "700ms", "--persistent"]).args(arguments);
    command
}

#[test]
fn the_command_runs_under_a_lock_on_a_majority() {
    let mut servers = servers(3);
    servers[1].kill9();
    let (notes, mut left) = (Notes::new(), servers);
    let script = notes.script(&format!("echo $DLOCK_OWNER > {}; read x", notes.path("owner").display()));
    let mut command = dlock_on(&left, &["run", "job", "--"]);
    command.args(script).stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    let owner = notes.line("owner");
    left.remove(1);
    for server in &left {
        soon("it is held there", || server.holders("job") == [owner.clone()]);
    }
    drop(running.child().stdin.take());
    assert_eq!(running.outcome().code, Some(1));
    for server in &left {
        soon("it is free there", || server.holders("job").is_empty());
    }
}

#[test]
fn contention_and_too_few_servers_have_exit_codes_of_their_own() {
    let mut servers = servers(3);
    for server in &servers[1..] {
        server.client().int("DLOCK.ACQUIRE job other PX 600000");
    }
    let taken = outcome(dlock_on(&servers, &["run", "--no-wait", "job", "--", "echo", "ran"]));
    assert_eq!((taken.code, taken.stdout.as_str()), (Some(1), ""), "{}", taken.stderr);
    assert!(servers[0].holders("job").is_empty(), "what one granted is given back before the end");
    servers[0].kill9();
    servers[2].kill9();
    let few = outcome(dlock_on(&servers, &["run", "--outage", "1s", "free", "--", "echo", "ran"]));
    assert_eq!((few.code, few.stdout.as_str()), (Some(69), ""));
    assert!(few.stderr.contains("too few servers answer: 1 of 3"), "{}", few.stderr);
}

#[test]
fn the_command_ends_when_no_majority_can_be_renewed() {
    let mut servers = servers(3);
    let notes = Notes::new();
    let mut command = dlock_on(&servers, &["run", "--lease", "4s", "job", "--"]);
    command.args(notes.script(&format!("echo on > {}; exec sleep 600", notes.path("on").display())));
    let running = Running::start(command);
    notes.line("on");
    servers[0].kill9();
    servers[2].kill9();
    assert_eq!(running.outcome().code, Some(75));
}

#[test]
fn a_quorum_needs_its_longest_lease() {
    let outcome =
        outcome(bare().with(["-s", "redis://a", "-s", "redis://b", "-s", "redis://c", "run", "job", "--", "true"]));
    assert_eq!(outcome.code, Some(64));
    assert!(outcome.stderr.contains("--longest-lease"), "{}", outcome.stderr);
}
