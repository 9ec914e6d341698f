//! Signals, children and an environment that `dlock` inherits from its parent.

use std::process::Stdio;

use crate::process::{Notes, Running, With, bare, dlock, outcome};
use dlock_testkit::process::{Children, adopt_orphans, free_port, inherit_children};
use dlock_testkit::skip::skipped;
use dlock_testkit::{Server, soon};

const WAYS: [Children; 3] = [Children::Ignored, Children::Forgotten, Children::Blocked];

#[test]
fn the_code_of_the_command_is_known_and_the_lock_released_whatever_a_parent_does_with_its_children() {
    let server = Server::start();
    for how in WAYS {
        for (script, code) in [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", 137)] {
            let mut command = dlock(&server).with(["run", "job", "--", "sh", "-c", script]);
            inherit_children(&mut command, how);
            let done = outcome(command);
            assert_eq!((done.code, done.stderr.as_str()), (Some(code), ""), "{how:?} {script}");
            assert!(server.holders("job").is_empty(), "{how:?} {script}");
        }
    }
}

#[test]
fn with_retry_failed_a_failed_run_does_not_count_whatever_a_parent_does_with_its_children() {
    let server = Server::start();
    for how in WAYS {
        let mut command = dlock(&server);
        command.args(["run", "--once", "1d", "--retry-failed", "report", "--", "sh", "-c", "exit 3"]);
        inherit_children(&mut command, how);
        assert_eq!(outcome(command).code, Some(3), "{how:?}");
        assert!(server.holders("report").is_empty(), "{how:?}: another machine may run it");
    }
}

#[test]
fn the_command_does_not_inherit_an_ignored_sigchld() {
    let server = Server::start();
    for how in [Children::Ignored, Children::Forgotten] {
        let mut command = dlock(&server);
        command.args(["run", "job", "--", "sh", "-c", "grep -E 'SigIgn|SigCgt' /proc/self/status"]);
        inherit_children(&mut command, how);
        let masks = outcome(command).stdout;
        let ignored = masks.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask").trim();
        let ignored = u64::from_str_radix(ignored, 16).expect("a number");
        assert_eq!(ignored >> (libc::SIGCHLD - 1) & 1, 0, "{how:?}: {masks}");
    }
}

#[test]
fn orphans_are_reaped_while_the_command_runs() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut command = dlock(&server);
    command
        .args(["run", "job", "--"])
        .args(notes.script("for n in 1 2 3 4 5; do (sleep 0.2 &); done; read line; exit 4"));
    command.stdin(Stdio::piped());
    adopt_orphans(&mut command);
    let mut running = Running::start(command);
    notes.pid();
    let own = running.child().id();
    soon("only the command is left", || children(own) == vec![notes.pid()]);
    drop(running.child().stdin.take());
    assert_eq!(running.outcome().code, Some(4));
    assert!(server.holders("job").is_empty());
}

#[test]
fn subcommands_that_serve_or_wait_leave_no_zombies() {
    let server = Server::start();
    server.client().int("DLOCK.ACQUIRE job other PX 600000");
    let (agent, page) = (free_port(), free_port());
    let binary = env!("CARGO_BIN_EXE_dlock");
    for arguments in [
        format!("agent --listen 127.0.0.1:{agent}"),
        format!("metrics --listen 127.0.0.1:{page}"),
        "run job -- true".to_owned(),
        "acquire job --lease 1m".to_owned(),
    ] {
        let template = dlock(&server);
        let mut command = std::process::Command::new("sh");
        // `dlock` inherits the children of the shell, and reaps even those that ended before its start.
        command.args(["-c", &format!("true & sleep 0.3 & exec {binary} {arguments}")]);
        command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running::start(command);
        let own = running.child().id();
        let is_dlock = || std::fs::read_to_string(format!("/proc/{own}/comm")).is_ok_and(|name| name == "dlock\n");
        soon("it runs, and no child is left", || is_dlock() && children(own).is_empty());
        assert!(!running.has_ended(), "{arguments}");
    }
}

#[test]
fn the_first_process_of_a_container_ends_by_a_signal() {
    let server = Server::start();
    for arguments in [
        &["metrics", "--listen", "127.0.0.1:0"][..],
        &["watch", "job"],
        &["log", "--follow"],
        &["agent", "--listen", "127.0.0.1:0"],
    ] {
        let template = dlock(&server).with(arguments);
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).arg(template.get_program()).args(template.get_args());
        command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = Running::start(command);
        let own = running.child().id();
        let is_dlock =
            |id: &i32| std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name == "dlock\n");
        let mut first = None;
        soon("it runs", || {
            first = children(own).into_iter().find(is_dlock);
            first.is_some() || running.has_ended()
        });
        let Some(first) = first else {
            skipped("unshare --pid is not permitted");
            return;
        };
        // The handlers may not be installed yet, so the signal is sent again.
        soon("it ends", || {
            let _ =
                std::process::Command::new("kill").args(["-TERM", &first.to_string()]).stderr(Stdio::null()).status();
            running.has_ended()
        });
        let code = running.outcome().code;
        assert!(code == Some(143) || arguments[0] == "agent" && code == Some(0), "{arguments:?}: {code:?}");
    }
}

/// The children of a process, ended or not.
fn children(parent: u32) -> Vec<i32> {
    let stats = std::fs::read_dir("/proc").expect("a folder").filter_map(|entry| {
        let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let of: u32 = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
        (of == parent).then_some(id)
    });
    stats.collect()
}

#[test]
fn blanks_around_the_url_are_ignored_and_an_empty_url_is_refused() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    for blanks in [" {} ", "{} ", "\t{}", "{}\n", "{}\r\n"] {
        let mut command = bare().with(["run", "job", "--", "true"]);
        command.env("DLOCK_URL", blanks.replace("{}", &url)).env("DLOCK_LONGEST_LEASE", blanks.replace("{}", "1m"));
        let done = outcome(command);
        assert_eq!(done.code, Some(0), "{blanks:?}: {}", done.stderr);
    }
    for nothing in ["", " ", "\n"] {
        let mut command = bare().with(["ls"]);
        command.env("DLOCK_URL", nothing);
        let done = outcome(command);
        assert_eq!(done.code, Some(64), "{nothing:?}");
        assert!(done.stderr.contains("DLOCK_URL"), "{}", done.stderr);
    }
}

#[test]
fn the_database_of_a_url_is_the_one_that_a_redis_client_takes_or_the_url_is_refused() {
    let server = Server::start();
    for (end, database) in [("/2", 2), ("?db=2", 2), ("/?db=2", 2)] {
        let url = format!("redis://127.0.0.1:{}{end}", server.port());
        let script = format!("redis-cli -p {} -n {database} EXISTS job", server.port());
        let mut command = bare().with(["run", "-s", &url, "job", "--", "sh", "-c", &script]);
        command.env("PATH", path_with_redis_cli());
        let done = outcome(command);
        assert!(done.code == Some(64) || done.stdout == "1\n", "{end}: {done:?}");
    }
}

fn path_with_redis_cli() -> String {
    let cli = crate::pages::cli();
    let folder = std::path::Path::new(&cli).parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    format!("{folder}:{}", std::env::var("PATH").unwrap_or_default())
}
