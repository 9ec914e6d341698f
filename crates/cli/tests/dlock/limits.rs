//! At most N commands at a time, and several locks at once.

use std::fs;
use std::time::Duration;

use crate::process::{Notes, Running, With, dlock, outcome};
use dlock_testkit::{Server, lock_info, soon};

/// A `dlock run --limit 2`, whose command notes that it runs, and ends after [`go`].
fn run(server: &Server, notes: &Notes, number: usize, lease: &str) -> Running {
    let path = |name: &str| notes.path(&format!("{name}{number}")).display().to_string();
    let script = format!(
        "echo {number} >> {}; echo $$ > {}; while [ ! -e {} ]; do sleep 0.01; done",
        notes.path("log").display(),
        path("in"),
        path("go"),
    );
    Running::start(dlock(server).with(["run", "--limit", "2", "--lease", lease, "pool", "--", "sh", "-c", &script]))
}

fn entered(notes: &Notes) -> usize {
    notes.read("log").lines().count()
}

fn go(notes: &Notes, number: usize) {
    fs::write(notes.path(&format!("go{number}")), "").expect("a file");
}

#[test]
fn five_with_a_limit_of_two_run_two_at_a_time_and_in_order() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut all = Vec::new();
    for number in 0..5 {
        all.push(run(&server, &notes, number, "30s"));
        match number {
            0 | 1 => soon("it runs", || entered(&notes) == number + 1),
            _ => server.left_waiting(number as i64 - 1),
        }
    }
    for (number, running) in all.into_iter().enumerate() {
        assert_eq!(entered(&notes), 5.min(number + 2), "two at a time");
        go(&notes, number);
        assert_eq!(running.outcome().code, Some(0));
        soon("the next one runs", || entered(&notes) == 5.min(number + 3));
    }
    assert_eq!(notes.read("log"), "0\n1\n2\n3\n4\n");
    assert!(server.holders("pool").is_empty());
}

#[test]
fn kill_9_of_one_lets_the_next_in_within_its_lease() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut first = run(&server, &notes, 0, "3s");
    notes.line("in0");
    let _second = run(&server, &notes, 1, "3s");
    notes.line("in1");
    let third = run(&server, &notes, 2, "3s");
    server.left_waiting(1);
    let mut watch = server.client();
    let killed = watch.now();
    first.signal(libc::SIGKILL);
    notes.line("in2");
    // The lease, a few ms for the server's timer, and the start of a process on a busy machine.
    let took = watch.now() - killed;
    assert!(took < 3000 + 2000, "{took} ms");
    go(&notes, 2);
    assert_eq!(third.outcome().code, Some(0));
}

#[test]
fn a_command_takes_as_many_permits_as_it_names() {
    let (server, notes) = (Server::start(), Notes::new());
    let _heavy = Running::start(
        dlock(&server)
            .with(["run", "--limit", "3", "--permits", "2", "pool", "--"])
            .with(notes.script("exec sleep 1000")),
    );
    notes.pid();
    let count = lock_info(&mut server.client(), "pool").expect("taken").count;
    assert_eq!(count, 2);
    let try_it = |permits: &str| {
        outcome(dlock(&server).with(["run", "--no-wait", "--limit", "3", "--permits", permits, "pool", "--", "true"]))
            .code
    };
    assert_eq!((try_it("2"), try_it("1"), try_it("4")), (Some(1), Some(0), Some(64)));
}

#[test]
fn each_of_n_commands_has_a_number_of_its_own() {
    let (server, notes) = (Server::start(), Notes::new());
    let go = notes.path("go").display().to_string();
    let run = |number: usize| {
        let note = notes.path(&format!("slot{number}")).display().to_string();
        let script = format!("echo ${{DLOCK_SLOT-none}} > {note}; while [ ! -e {go} ]; do sleep 0.01; done");
        let options = ["run", "--limit", "3", "--slot", "gpu", "--", "sh", "-c", &script];
        Running::start(dlock(&server).with(options))
    };
    let mut all: Vec<_> = (0..3).map(run).collect();
    let mut slots: Vec<_> = (0..3).map(|number| notes.line(&format!("slot{number}"))).collect();
    let gone: usize = slots.iter().position(|slot| slot == "1").expect("a number 1");
    slots.sort_unstable();
    assert_eq!(slots, ["0", "1", "2"]);
    let shown = outcome(dlock(&server).with(["info", "--table", "gpu"])).stdout;
    assert!(shown.contains("SESSION  SLOT\n"), "{shown}");
    all[gone].signal(libc::SIGTERM);
    all.push(run(3));
    assert_eq!(notes.line("slot3"), "1");
    fs::write(&go, "").expect("a file");
    // A run without `--slot` inside a run with it has no `DLOCK_SLOT`.
    let inner = dlock(&server).with(["run", "--limit", "3", "--slot", "a", "--", env!("CARGO_BIN_EXE_dlock")]);
    let inner = inner.with(["run", "b", "--", "sh", "-c", "echo ${DLOCK_SLOT-none}"]);
    assert_eq!(outcome(inner).stdout, "none\n");
}

#[test]
fn several_locks_are_taken_together_or_not_at_all() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut command = dlock(&server);
    let script = notes.script(&format!("echo $DLOCK_NAME $DLOCK_TOKEN > {}; read x", notes.path("env").display()));
    command.args(["run", "-k", "a", "-k", "b", "--"]).args(script).stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    let environment = notes.line("env");
    let mut client = server.client();
    let tokens = ["a", "b"].map(|name| lock_info(&mut client, name).expect("taken").token);
    assert_eq!(environment, format!("a b {}", tokens[0]));
    assert_eq!(tokens[0], tokens[1]);
    let refused = outcome(dlock(&server).with(["run", "--no-wait", "--lock", "c", "--lock", "b", "--", "true"]));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("c b: "), "{}", refused.stderr);
    assert!(server.holders("c").is_empty());
    drop(running.child().stdin.take());
    assert_eq!(running.outcome().code, Some(1), "`read` fails at the end of its input");
    assert!(server.holders("a").is_empty() && server.holders("b").is_empty());
}

#[test]
fn invalid_options_are_refused() {
    let server = Server::start();
    for wrong in [
        &["--limit", "0", "pool", "--", "true"][..],
        &["--permits", "1", "pool", "--", "true"],
        &["--slot", "pool", "--", "true"],
        &["--limit", "3", "--permits", "2", "--slot", "pool", "--", "true"],
        &["--limit", "2", "--shared", "pool", "--", "true"],
        &["-k", "a", "--limit", "2", "--", "true"],
        &["-k", "a", "--shared", "--", "true"],
        &["-k", "a"],
    ] {
        assert_eq!(outcome(dlock(&server).with(["run"]).with(wrong)).code, Some(64), "{wrong:?}");
    }
}

#[test]
fn a_run_that_begins_while_the_server_is_away_gets_the_lock_when_it_is_back() {
    let mut server = Server::start();
    server.kill9();
    let started =
        |options: &[&str]| Running::start(dlock(&server).with(["run"]).with(options).with(["job", "--", "true"]));
    let mut waiting = [started(&["--wait", "60s"]), started(&[]), started(&["--no-wait", "--outage", "60s"])];
    let over = started(&["--no-wait", "--outage", "300ms"]);
    assert_eq!(over.outcome().code, Some(69));
    std::thread::sleep(Duration::from_millis(300));
    assert!(waiting.iter_mut().all(|running| !running.has_ended()));
    server.boot();
    let codes = waiting.map(|running| running.outcome().code);
    // The run that does not wait may find the lock held by one of the others.
    assert_eq!(codes[..2], [Some(0), Some(0)]);
    assert!([Some(0), Some(1)].contains(&codes[2]), "{:?}", codes[2]);
}

#[test]
fn a_lock_that_too_few_replicas_have_is_not_acquired() {
    let (primary, replica) = Server::start().with_replica();
    let run = |replicas: &str, timeout: &str| {
        let options = ["--replicas", replicas, "--replicas-timeout", timeout];
        outcome(dlock(&primary).with(["run"]).with(options).with(["job", "--", "true"]))
    };
    let enough = run("1", "20s");
    assert_eq!(enough.code, Some(0), "{}", enough.stderr);
    let few = run("2", "50ms");
    assert_eq!(few.code, Some(69));
    assert!(few.stderr.contains("1 of 2 replicas acknowledged in time"), "{}", few.stderr);
    assert!(primary.holders("job").is_empty());
    drop(replica);
}
