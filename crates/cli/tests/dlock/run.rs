//! `dlock run`: the environment and output of the command, exit codes, shared locks, and the renewal of the lease.

use std::time::{Duration, Instant};

use crate::process::{Notes, Running, With, alive, bare, dlock, outcome};
use dlock_testkit::process::free_port;
use dlock_testkit::{Server, Setup, lock_info, soon};

#[test]
fn the_command_holds_the_lock_and_has_its_owner_and_token_in_the_environment() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut command = dlock(&server);
    let script =
        notes.script(&format!("echo $DLOCK_NAME $DLOCK_OWNER $DLOCK_TOKEN > {}; read x", notes.path("env").display()));
    command.args(["run", "--lease", "20s", "job:1", "--"]).args(script).stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    let environment = notes.line("env");
    let info = lock_info(&mut server.client(), "job:1 FULL").expect("a lock");
    let hold = &info.holds()[0];
    let owner = String::from_utf8(hold.owner.clone()).expect("readable");
    assert_eq!(environment, format!("job:1 {owner} {}", hold.token));
    let host = nix::unistd::gethostname().expect("a name").into_string().expect("readable");
    let random = owner.strip_prefix(&format!("{host}:{}:", running.child().id())).expect("host and process id");
    assert!(random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{owner}");
    assert_eq!((hold.mode.as_str(), hold.session.clone()), ("exclusive", redis::Value::Nil), "a lease, no session");
    assert!((10_000..=20_000).contains(&hold.ttl), "{} ms", hold.ttl);
    drop(running.child().stdin.take());
    // `read` fails at the end of its input.
    assert_eq!(running.outcome().code, Some(1));
    assert!(server.holders("job:1").is_empty(), "released when the command has ended");
}

#[test]
fn the_exit_code_is_the_commands() {
    let server = Server::start();
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 128 + 9), ("kill -TERM $$", 128 + 15)]
    {
        assert_eq!(outcome(dlock(&server).with(["run", "job", "--", "sh", "-c", script])).code, Some(code), "{script}");
    }
    assert!(server.holders("job").is_empty());
}

#[test]
fn input_and_output_are_the_commands() {
    use std::io::Write;
    let server = Server::start();
    let mut command = dlock(&server);
    command.args(["run", "job", "cat", "-"]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut running = Running::start(command);
    running.child().stdin.take().expect("a pipe").write_all(b"through\n").expect("a reader");
    assert_eq!(running.outcome().stdout, "through\n");
}

#[test]
fn a_taken_lock_has_an_exit_code_of_its_own() {
    let server = Server::start();
    server.client().int("DLOCK.ACQUIRE job other PX 600000");
    let try_it =
        |options: &[&str]| outcome(dlock(&server).with(["run"]).with(options).with(["job", "--", "echo", "ran"]));
    let refused = try_it(&["--no-wait"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert!(refused.stderr.contains("job: the lock is held by other for "), "{}", refused.stderr);
    assert_eq!(try_it(&["-n", "-E", "42"]).code, Some(42));
    assert_eq!(try_it(&["-n", "--shared"]).code, Some(1));
    let began = Instant::now();
    assert_eq!(try_it(&["--wait", "200ms", "-E", "0"]).code, Some(0));
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[test]
fn shared_locks_are_held_together() {
    let (server, notes) = (Server::start(), Notes::new());
    let _running =
        Running::start(dlock(&server).with(["run", "--shared", "doc", "--"]).with(notes.script("exec sleep 1000")));
    notes.pid();
    assert_eq!(outcome(dlock(&server).with(["run", "--shared", "--no-wait", "doc", "--", "true"])).code, Some(0));
    assert_eq!(outcome(dlock(&server).with(["run", "--no-wait", "doc", "--", "true"])).code, Some(1));
}

#[test]
fn a_program_that_cannot_be_run_gives_the_exit_code_of_a_shell() {
    let (server, notes) = (Server::start(), Notes::new());
    std::fs::write(notes.path("plain"), "no program").expect("a file");
    for (program, code) in [("/nowhere/at/all", 127), (notes.path("plain").to_str().expect("a path"), 126)] {
        let outcome = outcome(dlock(&server).with(["run", "job", "--", program]));
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(program), "{}", outcome.stderr);
        assert!(server.holders("job").is_empty(), "released");
    }
}

#[test]
fn mistakes_and_missing_servers_have_codes_of_their_own() {
    for wrong in
        [&["run", "job"][..], &["run", "--lease", "1s", "job", "--", "true"], &["walk"], &["-s", "http://x", "ls"]]
    {
        let outcome = outcome(bare().with(wrong));
        assert_eq!(outcome.code, Some(64), "{wrong:?}: {}", outcome.stderr);
    }
    // A shell variable that is not set gives an empty name.
    for unset in [&["run", "", "--", "true"][..], &["run", "-k", "a", "-k", "", "--", "true"], &["break", "-y", ""]] {
        let outcome = outcome(bare().with(unset));
        assert_eq!(outcome.code, Some(64), "{unset:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("the name of a lock is empty"), "{}", outcome.stderr);
    }
    let away = format!("redis://127.0.0.1:{}", free_port());
    let gone = outcome(bare().with(["run", "--outage", "100ms", "-s", &away, "job", "--", "true"]));
    assert_eq!(gone.code, Some(69), "{}", gone.stderr);
    let plain = Setup::plain().start();
    let refused = outcome(dlock(&plain).with(["run", "job", "--", "true"]));
    assert_eq!(refused.code, Some(69));
    assert!(refused.stderr.contains("is the dlock module loaded?"), "{}", refused.stderr);
}

#[test]
fn a_lease_is_renewed_for_as_long_as_the_command_runs() {
    let (server, notes) = (Server::start(), Notes::new());
    let _running = Running::start(
        dlock(&server).with(["run", "--lease", "3s", "job", "--"]).with(notes.script("exec sleep 1000")),
    );
    let pid = notes.pid();
    let mut watch = server.client();
    let end = watch.end_of("job");
    soon("it outlives its first lease", || watch.now() > end);
    assert!(alive(pid) && watch.end_of("job") > end);
}
