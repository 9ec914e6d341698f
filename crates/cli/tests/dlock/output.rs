//! Output that cannot be written: an error of subcommands that show something, unless its reader has closed the pipe.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use crate::process::{Outcome, Running, With, dlock, outcome};
use dlock_testkit::{Client, Server, soon};

/// Subcommands that show something and end, on a server where `job` is held and waited for.
const PRINTING: [&[&str]; 15] = [
    &["--version"],
    &["--help"],
    &["run", "--help"],
    &["ls"],
    &["ls", "--table"],
    &["info", "job"],
    &["info", "--table", "job"],
    &["info", "free"],
    &["log"],
    &["log", "--table"],
    &["graph"],
    &["graph", "--format", "dot"],
    &["metrics"],
    &["man"],
    &["completions", "bash"],
];

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("a device that is full").into()
}

/// Returns a pipe that nobody reads, for standard output.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn with_output(mut command: Command, output: Stdio) -> Outcome {
    command.stdout(output).stderr(Stdio::piped());
    Running::start(command).outcome()
}

fn held() -> (Server, Client) {
    let server = Server::start();
    server.client().int("DLOCK.ACQUIRE job alice PX 600000");
    let waiter = server.waiter("DLOCK.ACQUIRE job bob BLOCK 0");
    (server, waiter)
}

#[test]
fn a_full_disk_is_an_error_of_each_subcommand_that_shows_something() {
    let (server, _bob) = held();
    for arguments in PRINTING {
        let done = with_output(dlock(&server).with(arguments), full());
        assert_eq!(done.code, Some(74), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains("No space left on device"), "{arguments:?}: {}", done.stderr);
    }
    let watch = with_output(dlock(&server).with(["watch", "job"]), full());
    assert_eq!(watch.code, Some(74), "{}", watch.stderr);
    let follow = with_output(dlock(&server).with(["log", "--follow", "--table"]), full());
    assert_eq!(follow.code, Some(74), "{}", follow.stderr);
}

#[test]
fn a_pipe_that_nobody_reads_is_no_error_of_a_subcommand_that_shows_something() {
    let (server, _bob) = held();
    for arguments in PRINTING {
        let expected = if arguments == ["info", "free"] { 1 } else { 0 };
        let done = with_output(dlock(&server).with(arguments), unread());
        assert_eq!((done.code, done.stderr.as_str()), (Some(expected), ""), "{arguments:?}");
    }
    for endless in [&["watch", "job"][..], &["log", "--follow"]] {
        let done = with_output(dlock(&server).with(endless), unread());
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{endless:?}");
    }
}

#[test]
fn messages_that_cannot_be_written_change_no_exit_code() {
    let (server, _bob) = held();
    for stderr in [full, unread] {
        let code = |arguments: &[&str]| {
            let mut command = dlock(&server).with(arguments);
            command.stderr(stderr());
            Running::start(command).outcome().code
        };
        assert_eq!(code(&["run", "--no-wait", "job", "--", "true"]), Some(1));
        assert_eq!(code(&["run", "free", "--", "/no/such/program"]), Some(127));
        assert_eq!(code(&["release", "job", "nobody"]), Some(1));
        assert_eq!(code(&["-s", "redis://127.0.0.1:1", "ls"]), Some(69));
        assert_eq!(code(&["walk"]), Some(64));
        assert_eq!(code(&["failover"]), outcome(dlock(&server).with(["failover"])).code);
    }
    assert!(server.holders("free").is_empty());
}

#[test]
fn a_lost_lock_ends_the_command_even_if_no_message_can_be_written() {
    let server = Server::start();
    let mut command = dlock(&server);
    command.args(["run", "--lease", "3s", "job", "--", "sleep", "1000"]).stderr(full());
    let running = Running::start(command);
    soon("it holds the lock", || !server.holders("job").is_empty());
    server.client().int("DEL job");
    assert_eq!(running.outcome().code, Some(75));
}
