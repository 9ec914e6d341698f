//! The options of `flock`, names that begin with a dash, and runs inside runs.

use crate::process::{Notes, Running, With, bare, dlock, outcome};
use dlock_testkit::{Server, soon};

#[test]
fn the_options_of_flock_mean_the_same() {
    let server = Server::start();
    let code = |arguments: &[&str]| outcome(dlock(&server).with(["run"]).with(arguments)).code;
    for exclusive in ["-x", "-e", "--exclusive"] {
        assert_eq!(code(&[exclusive, "job", "--", "sh", "-c", "exit 3"]), Some(3), "{exclusive}");
    }
    for shell in ["-c", "--command"] {
        assert_eq!(code(&["job", shell, "exit 4"]), Some(4), "{shell}");
        assert_eq!(code(&[shell, "exit 4", "job"]), Some(4), "{shell}");
    }
    assert_eq!(code(&["-k", "a", "-k", "b", "-c", "test \"$DLOCK_NAME\" = 'a b'"]), Some(0));
    server.client().int("DLOCK.ACQUIRE taken me PX 600000");
    for no_wait in ["--nb", "--nonblock", "-n"] {
        assert_eq!(code(&[no_wait, "taken", "--", "true"]), Some(1), "{no_wait}");
    }
    assert_eq!(code(&["--timeout", "0.1", "-E", "7", "taken", "-c", "true"]), Some(7));
    assert_eq!(code(&["-x", "--shared", "job", "--", "true"]), Some(64), "one or the other");
    assert_eq!(code(&["job", "-c", "true", "more"]), Some(64));
    assert_eq!(code(&["job", "-c"]), Some(64));
    assert_eq!(code(&["-c", "true"]), Some(64), "there is no lock");
}

#[test]
fn the_shell_of_a_command_line_is_that_of_flock() {
    let (server, notes) = (Server::start(), Notes::new());
    let shell = notes.path("shell");
    std::fs::write(&shell, "#!/bin/sh\necho \"$@\"\n").expect("a file");
    std::fs::set_permissions(&shell, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a file of ours");
    let mut command = dlock(&server).with(["run", "job", "-c", "a b"]);
    command.env("SHELL", &shell);
    assert_eq!(outcome(command).stdout, "-c a b\n");
    let mut command = dlock(&server).with(["run", "job", "-c", "echo ran"]);
    command.env_remove("SHELL");
    assert_eq!(outcome(command).stdout, "ran\n");
}

#[test]
fn options_of_flock_that_mean_something_else_here_are_refused_with_the_word_to_use() {
    for (arguments, word) in [
        (&["-s", "job", "--", "true"][..], "--shared"),
        (&["-u", "job"], "dlock release"),
        (&["--unlock", "job"], "dlock release"),
        (&["-F", "job", "true"], "dlock run"),
        (&["--no-fork", "job", "true"], "dlock run"),
        (&["-o", "job", "true"], "no file descriptor"),
        (&["--close", "job", "true"], "no file descriptor"),
    ] {
        let refused = outcome(bare().with(["run"]).with(arguments));
        assert_eq!(refused.code, Some(64), "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(word), "{arguments:?}: {}", refused.stderr);
    }
}

#[test]
fn a_name_may_begin_with_a_dash() {
    let server = Server::start();
    let done = outcome(dlock(&server).with(["run", "--", "-dash", "--", "sh", "-c", "echo $DLOCK_NAME; exit 5"]));
    assert_eq!((done.code, done.stdout.as_str()), (Some(5), "-dash\n"), "{}", done.stderr);
    let done = outcome(dlock(&server).with(["run", "--", "job", "sh", "-c", "exit 6"]));
    assert_eq!(done.code, Some(6));
}

#[test]
fn a_run_inside_one_of_the_same_name_says_that_it_waits_for_itself() {
    let server = Server::start();
    let inner = |options: &[&str]| {
        let dlock = env!("CARGO_BIN_EXE_dlock");
        let mut command = crate::process::dlock(&server);
        command.args(["run", "job", "--", dlock, "run"]).args(options).args(["job", "--", "true"]);
        command
    };
    let done = outcome(inner(&["--wait", "1500ms"]));
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("job: waits for itself"), "{}", done.stderr);
    let done = outcome(inner(&["--no-wait"]));
    assert!(done.stderr.contains("the owner of this environment"), "{}", done.stderr);
    // A run that waits for another owner does not say so.
    server.client().int("DLOCK.ACQUIRE job stranger PX 600000");
    let mut command = dlock(&server).with(["run", "--wait", "1500ms", "job", "--", "true"]);
    command.env("DLOCK_NAME", "job").env("DLOCK_OWNER", "another");
    command.stderr(std::process::Stdio::piped());
    let running = Running::start(command);
    soon("it waits", || server.queue("job").len() == 1);
    let done = running.outcome();
    assert!(!done.stderr.contains("itself") && done.stderr.contains("stranger"), "{}", done.stderr);
}

#[test]
fn a_run_in_the_environment_of_an_acquisition_names_its_owner() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE job ci:7 PX 600000");
    let mut command = dlock(&server).with(["run", "--no-wait", "job", "--", "true"]);
    command.env("DLOCK_NAME", "job").env("DLOCK_OWNER", "ci:7");
    let done = outcome(command);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("held by ci:7") && done.stderr.contains("`dlock acquire`"), "{}", done.stderr);
}
