//! `dlock run` ends the command before the lock can end, and at once when the lock is lost.

use std::time::{Duration, Instant};

use crate::process::{Notes, Running, With, alive, dlock};
use dlock_testkit::{Server, soon};

/// Runs a shell script under the lock `job` with this lease. Returns the run, and the process id of the script's shell.
fn start(server: &Server, notes: &Notes, lease: &str, script: &str) -> (Running, i32) {
    let mut command = dlock(server).with(["run", "--lease", lease, "job", "--"]).with(notes.script(script));
    command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    (Running::start(command), notes.pid())
}

#[test]
fn when_the_server_dies_the_command_gets_term() {
    let (mut server, notes) = (Server::start(), Notes::new());
    let ended = notes.path("ended").display().to_string();
    let script = format!("trap 'echo TERM > {ended}; exit 0' TERM; while :; do sleep 0.02; done");
    let (running, _) = start(&server, &notes, "3s", &script);
    let died = Instant::now();
    server.kill9();
    let outcome = running.outcome();
    assert_eq!(outcome.code, Some(75), "{}", outcome.stderr);
    assert_eq!(notes.read("ended"), "TERM\n");
    assert!(outcome.stderr.contains("cannot be renewed"), "{}", outcome.stderr);
    // A lost connection alone does not end the command, because the server may come back.
    assert!(died.elapsed() > Duration::from_millis(200), "ended {:?} after the server died", died.elapsed());
}

#[test]
fn a_command_that_ignores_term_is_killed_a_second_before_the_lease_ends() {
    let (server, notes) = (Server::start(), Notes::new());
    let (running, pid) = start(&server, &notes, "12s", "trap '' TERM; while :; do sleep 0.02; done");
    let mut watch = server.client();
    let first = watch.end_of("job");
    soon("the lock is renewed", || watch.end_of("job") > first);
    // The next renewal is about 4 s away, so the lease ends at this time.
    let end = watch.end_of("job");
    server.freeze();
    soon("the command is gone", || !alive(pid));
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis() as i64;
    assert!(now <= end - 1000, "killed only {} ms before the lease ended", end - now);
    server.thaw();
    assert_eq!(running.outcome().code, Some(75));
}

/// The lock is renewed until `--max-time` ends the command, and ends only after the command.
#[test]
fn max_time_ends_the_command_before_the_lock() {
    let (server, notes) = (Server::start(), Notes::new());
    let script = notes.script("trap '' TERM; while :; do sleep 0.02; done");
    let mut command = dlock(&server).with(["run", "--lease", "3s", "--max-time", "6s", "job", "--"]).with(script);
    command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let begun = Instant::now();
    let (running, pid) = (Running::start(command), notes.pid());
    let mut watch = server.client();
    let first = watch.end_of("job");
    // The grant was earlier, so the cap ends the lock at this time or before.
    let cap = watch.now() + 6000;
    soon("the lock is renewed", || watch.end_of("job") > first);
    soon("the command is gone", || !alive(pid));
    assert!(watch.now() <= cap, "the command ended {} ms after the cap", watch.now() - cap);
    let outcome = running.outcome();
    assert_eq!(outcome.code, Some(75), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("its time is over"), "{}", outcome.stderr);
    assert!(begun.elapsed() >= Duration::from_secs(3), "ended within the first lease: {:?}", begun.elapsed());
}

#[test]
fn a_lock_that_was_taken_away_ends_the_command() {
    let (server, notes) = (Server::start(), Notes::new());
    let (running, pid) = start(&server, &notes, "3s", "exec sleep 1000");
    server.client().int("DEL job");
    let next = server.client().int("DLOCK.ACQUIRE job other PX 600000");
    let outcome = running.outcome();
    assert_eq!(outcome.code, Some(75));
    assert!(outcome.stderr.contains("lost"), "{}", outcome.stderr);
    assert!(!alive(pid));
    assert!(server.client().int(format!("DLOCK.CHECK job {next}")) > 0, "the next owner's hold is not touched");
}

#[test]
fn a_command_that_ends_after_its_lock_was_lost_gives_exit_code_75() {
    let (server, notes) = (Server::start(), Notes::new());
    let go = notes.path("go").display().to_string();
    let (running, _) = start(&server, &notes, "600s", &format!("while [ ! -e {go} ]; do sleep 0.01; done"));
    server.client().int("DEL job");
    std::fs::write(&go, "").expect("a file");
    let outcome = running.outcome();
    assert_eq!(outcome.code, Some(75));
    assert!(outcome.stderr.contains("lost while the command ran"), "{}", outcome.stderr);
}

#[test]
fn a_server_that_is_away_for_a_moment_does_not_end_the_command() {
    let (server, notes) = (Server::start(), Notes::new());
    let (mut running, pid) = start(&server, &notes, "12s", "exec sleep 1000");
    let mut watch = server.client();
    let end = watch.end_of("job");
    // With this lease, the first renewal is sent 3.6 to 4 s after the grant (`spread` in the client's keeper.rs), and
    // TERM would come after 6.9 s (`Deadline::of`). The server is frozen from 3.1 s to 4.6 s after the grant.
    watch.pass(end - 8900);
    server.freeze();
    std::thread::sleep(Duration::from_millis(1500));
    server.thaw();
    soon("the lock is renewed", || watch.end_of("job") > end);
    assert!(alive(pid) && !running.has_ended());
}

#[test]
fn kill_9_of_dlock_run_ends_the_command_at_once_and_the_lock_within_a_lease() {
    let (server, notes) = (Server::start(), Notes::new());
    let (mut running, pid) = start(&server, &notes, "3s", "exec sleep 1000");
    let mut watch = server.client();
    running.signal(libc::SIGKILL);
    let killed = watch.now();
    soon("the command is gone", || !alive(pid));
    let end = watch.end_of("job");
    assert!(watch.now() < end, "the command ends before the lease");
    assert!(end <= killed + 3000, "nothing renews the lock after the kill");
    watch.outlive("job");
    assert!(watch.int("DLOCK.ACQUIRE job other PX 1000") > 0);
}

/// Runs a shell script under the lock `job`, without pipes: the test would wait for a process that keeps them open.
fn silent(server: &Server, notes: &Notes, script: &str) -> Running {
    let mut command = dlock(server).with(["run", "--lease", "4s", "job", "--"]).with(notes.script(script));
    command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    Running::start(command)
}

/// Deletes the lock of a run, and checks that no process of the run goes on. In the script, `BELOW` stands for the file
/// to which the descendant writes its process id, and `DONE` for the file to which it writes that it got TERM.
#[track_caller]
fn nothing_goes_on(script: &str, ignores_term: bool) {
    let (server, notes) = (Server::start(), Notes::new());
    let file = |name: &str| notes.path(name).display().to_string();
    let script = script.replace("DONE", &file("done")).replace("BELOW", &file("below"));
    let running = silent(&server, &notes, &script);
    let below: i32 = notes.line("below").parse().expect("a process id");
    server.client().int("DEL job");
    assert_eq!(running.outcome().code, Some(75), "{script}");
    assert!(!alive(below), "the descendant has ended: {script}");
    assert_eq!(notes.read("done"), if ignores_term { "" } else { "TERM\n" }, "{script}");
}

#[test]
fn descendants_of_the_command_end_with_it() {
    let below = "sh -c 'trap \"echo TERM > DONE; exit 0\" TERM; echo $$ > BELOW; while :; do sleep 0.02; done'";
    // The descendant runs in the foreground, in the background, and below a second shell. TERM ends the shells first.
    // `; true` keeps a shell from executing its last command in its own place.
    nothing_goes_on(&format!("{below}; true"), false);
    nothing_goes_on(&format!("{below} & wait"), false);
    nothing_goes_on(&format!("sh -c \"{}; true\"; true", below.replace('"', "\\\"").replace('$', "\\$")), false);
    let stubborn = "sh -c 'trap \"\" TERM; echo $$ > BELOW; while :; do sleep 0.02; done'; true";
    nothing_goes_on(stubborn, true);
}

#[test]
fn a_daemon_that_has_left_its_parents_stays() {
    let (server, notes) = (Server::start(), Notes::new());
    let daemon = notes.path("daemon").display().to_string();
    let inner = notes.path("inner").display().to_string();
    let script = format!("sh -c 'echo $$ > {inner}; sleep 30 & echo $! > {daemon}'; while :; do sleep 0.02; done");
    let running = silent(&server, &notes, &script);
    let daemon: i32 = notes.line("daemon").parse().expect("a process id");
    let inner: i32 = notes.line("inner").parse().expect("a process id");
    soon("the daemon's parent has ended", || !alive(inner));
    server.client().int("DEL job");
    assert_eq!(running.outcome().code, Some(75));
    assert!(alive(daemon), "the daemon does not belong to the run any more");
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(daemon), nix::sys::signal::Signal::SIGKILL);
}
