//! `dlock run` while it waits for the lock in the queue of the server.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{Notes, Running, With, dlock};
use dlock_testkit::Server;

#[test]
fn two_runs_of_one_name_come_one_after_the_other() {
    let (server, notes) = (Server::start(), Notes::new());
    let log = notes.path("log").display().to_string();
    let mut first = dlock(&server);
    let go = notes.path("go").display().to_string();
    let script = format!("echo in 1 >> {log}; while [ ! -e {go} ]; do sleep 0.01; done; echo out 1 >> {log}");
    first.args(["run", "job", "--"]).args(notes.script(&script));
    let first = Running::start(first);
    notes.pid();
    let script = format!("echo in 2 >> {log}");
    let second = Running::start(dlock(&server).with(["run", "--wait", "60s", "job", "--", "sh", "-c", &script]));
    server.left_waiting(1);
    std::fs::write(&go, "").expect("a file");
    assert_eq!((first.outcome().code, second.outcome().code), (Some(0), Some(0)));
    assert_eq!(notes.read("log"), "in 1\nout 1\nin 2\n");
}

#[test]
fn twenty_runs_that_wait_are_served_in_order() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut holder = server.client();
    holder.int("DLOCK.ACQUIRE job holder PX 600000");
    let mut line = Vec::new();
    for number in 1..=20 {
        let mut command = dlock(&server);
        let script = format!("echo {number} >> {}", notes.path("log").display());
        command.args(["run", "--wait", "10m", "job", "--", "sh", "-c", &script]);
        line.push(Running::start(command));
        server.left_waiting(number);
    }
    assert_eq!(holder.int("DLOCK.RELEASE job holder"), 1);
    for running in line {
        assert_eq!(running.outcome().code, Some(0));
    }
    let numbers: Vec<_> = notes.read("log").lines().map(str::to_owned).collect();
    assert_eq!(numbers, (1..=20).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_run_that_waits_sends_nothing() {
    let (server, mut holder) = Server::start().with_client();
    holder.int("DLOCK.ACQUIRE job holder PX 600000");
    let running = Running::start(dlock(&server).with(["run", "--lease", "3s", "job", "--", "true"]));
    server.left_waiting(1);
    let mut monitor = server.client();
    monitor.ok("MONITOR");
    // Longer than a third of the lease, after which a holder renews, and than the timeouts of the crate `redis`.
    if let Some(sent) = monitor.poll(Duration::from_millis(2500)) {
        panic!("a run that waits has sent {sent:?}");
    }
    assert_eq!(server.waiting(), 1);
    assert_eq!(holder.int("DLOCK.RELEASE job holder"), 1);
    assert_eq!(running.outcome().code, Some(0));
}

/// Returns the time from the release to the first byte that the command writes.
fn wake_up(server: &Server) -> Duration {
    let mut holder = server.client();
    holder.int("DLOCK.ACQUIRE job holder PX 600000");
    let mut command = dlock(server);
    command.args(["run", "--wait", "10m", "job", "--", "echo", "in"]).stdout(Stdio::piped());
    let mut running = Running::start(command);
    server.left_waiting(1);
    let mut output = running.child().stdout.take().expect("a pipe");
    let released = Instant::now();
    assert_eq!(holder.int("DLOCK.RELEASE job holder"), 1);
    output.read_exact(&mut [0]).expect("the command runs");
    let took = released.elapsed();
    assert_eq!(running.outcome().code, Some(0));
    took
}

/// Returns the time from a line that a shell waits for to the first byte that its command writes.
fn wake_up_of_a_shell() -> Duration {
    let mut command = Command::new("sh");
    command.args(["-c", "read line; /bin/echo in"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::start(command);
    let mut input = running.child().stdin.take().expect("a pipe");
    let mut output = running.child().stdout.take().expect("a pipe");
    let said = Instant::now();
    input.write_all(b"\n").expect("the shell reads");
    output.read_exact(&mut [0]).expect("the command runs");
    let took = said.elapsed();
    assert_eq!(running.outcome().code, Some(0));
    took
}

/// A command takes at most twice as long as a shell that waits for a line, if that is more: the machine is then busy. The
/// way to the shell has no server on it.
#[test]
fn a_command_runs_within_10_ms_of_the_release() {
    const ROUNDS: usize = 9;
    let server = Server::start();
    let mut tries = Vec::new();
    for _ in 0..8 {
        let (mut times, mut of_shell): (Vec<_>, Vec<_>) =
            (0..ROUNDS).map(|_| (wake_up(&server), wake_up_of_a_shell())).unzip();
        times.sort();
        of_shell.sort();
        let (median, of_shell) = (times[ROUNDS / 2], of_shell[ROUNDS / 2]);
        if median <= Duration::from_millis(10).max(2 * of_shell) {
            eprintln!("median of {ROUNDS}: {median:?}, of a shell: {of_shell:?}");
            return;
        }
        tries.push((median, of_shell));
    }
    panic!("the medians of {ROUNDS}, and those of a shell: {tries:?}");
}
