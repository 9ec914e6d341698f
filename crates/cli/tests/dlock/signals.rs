//! Signals that are sent to `dlock run`.

use std::os::unix::process::CommandExt;

use crate::process::{Notes, Running, With, alive, dlock};
use dlock_testkit::{Server, soon};

#[test]
fn signals_are_handed_on_to_the_command() {
    let server = Server::start();
    let forwarded = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("TERM", libc::SIGTERM),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
    ];
    for (name, number) in forwarded {
        let notes = Notes::new();
        let mut command = dlock(&server);
        let script = format!(
            "trap 'exit 3' {name}; echo ready > {}; while :; do sleep 0.01; done",
            notes.path("ready").display()
        );
        command.args(["run", "job", "--"]).args(notes.script(&script));
        let mut running = Running::start(command);
        notes.line("ready");
        running.signal(number);
        assert_eq!(running.outcome().code, Some(3), "{name}");
    }
    assert!(server.holders("job").is_empty());
}

#[test]
fn a_command_that_a_signal_ends_has_the_code_of_a_shell() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut running = Running::start(dlock(&server).with(["run", "job", "--"]).with(notes.script("exec sleep 1000")));
    notes.pid();
    soon("sleep runs", || std::fs::read_to_string(format!("/proc/{}/comm", notes.pid())).is_ok_and(|c| c == "sleep\n"));
    running.signal(libc::SIGTERM);
    assert_eq!(running.outcome().code, Some(128 + 15));
}

#[test]
fn a_run_that_waits_leaves_the_queue_and_dies_of_the_signal() {
    let server = Server::start();
    server.client().int("DLOCK.ACQUIRE job holder PX 600000");
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut running = Running::start(dlock(&server).with(["run", "job", "--", "true"]));
        server.left_waiting(1);
        running.signal(number);
        assert_eq!(running.outcome().signal, Some(number));
        server.left_waiting(0);
    }
}

#[test]
fn nohup_is_respected() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut command = std::process::Command::new("sh");
    let script = "trap '' HUP; exec \"$0\" run job -- \"$@\"";
    let template = dlock(&server);
    command.args(["-c", script]).arg(template.get_program()).args(notes.script("exec sleep 1000"));
    command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut running = Running::start(command);
    let pid = notes.pid();
    running.signal(libc::SIGHUP);
    running.signal(libc::SIGUSR1);
    // The command died of USR1, so it had ignored HUP.
    assert_eq!(running.outcome().code, Some(128 + libc::SIGUSR1));
    assert!(!alive(pid));
}

/// Starts `dlock run` with this lease and script in a process group of its own. The group of the test may be orphaned,
/// and the kernel does not stop the processes of an orphaned group by `TSTP`.
fn job(server: &Server, notes: &Notes, lease: &str, script: &str) -> Running {
    let mut command = dlock(server);
    command.args(["run", "--lease", lease, "job", "--"]).args(notes.script(script)).process_group(0);
    Running::start(command)
}

fn stopped(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "))
}

#[test]
fn stop_and_continue_reach_the_run_and_its_command() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut running = job(&server, &notes, "600s", "while :; do sleep 0.01; done");
    let pid = notes.pid();
    let own = running.child().id() as i32;
    running.signal(libc::SIGTSTP);
    soon("both stand still", || stopped(pid) && stopped(own));
    running.signal(libc::SIGCONT);
    soon("both run", || !stopped(pid) && !stopped(own));
    assert!(alive(pid) && !running.has_ended());
}

#[test]
fn a_command_that_does_not_stop_keeps_its_lock() {
    let (server, notes) = (Server::start(), Notes::new());
    let script = format!("trap '' TSTP; echo ready > {}; while :; do sleep 0.01; done", notes.path("ready").display());
    let mut running = job(&server, &notes, "3s", &script);
    let pid = notes.pid();
    notes.line("ready");
    let mut watch = server.client();
    running.signal(libc::SIGTSTP);
    let end = watch.end_of("job");
    soon("the lease that was seen is over", || watch.now() > end);
    assert!(alive(pid) && !stopped(pid) && !running.has_ended());
    assert!(watch.end_of("job") > end);
}

#[test]
fn a_command_that_is_continued_after_its_lease_is_ended() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut running = job(&server, &notes, "3s", "while :; do sleep 0.01; done");
    let pid = notes.pid();
    let own = running.child().id() as i32;
    running.signal(libc::SIGTSTP);
    soon("both stand still", || stopped(pid) && stopped(own));
    server.client().outlive("job");
    assert!(alive(pid));
    running.signal(libc::SIGCONT);
    // 75: the lock was lost.
    assert_eq!(running.outcome().code, Some(75));
    assert!(!alive(pid));
}
