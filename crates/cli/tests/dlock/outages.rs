//! `dlock run`, `renew` and `release` end in time, even if the server is down or hangs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::process::{Notes, Outcome, Running, With, bare, dlock, outcome};
use dlock_testkit::process::free_port;
use dlock_testkit::proxy::Proxy;
use dlock_testkit::sentinel::{NAME, Sentinels};
use dlock_testkit::{Client, Server, Setup, Stopwatch, lock_info, soon};

/// How much later than its limit a run may end, with the start of a process.
const LATE: Duration = Duration::from_millis(250 + 150);

fn timed(command: std::process::Command) -> (Outcome, Stopwatch) {
    let mut began = Stopwatch::start();
    let mut command = command;
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let outcome = Running::start(command).outcome();
    began.leaves_out(outcome.waited);
    (outcome, began)
}

#[track_caller]
fn unreachable_after((outcome, took): (Outcome, Stopwatch), limit: Duration) {
    assert_eq!(outcome.code, Some(69), "{}", outcome.stderr);
    took.is_between(limit, limit + LATE, "a limit");
}

/// Fails unless the best of five times is within the limit: a busy machine may delay the others.
#[track_caller]
fn within(limit: Duration, mut once: impl FnMut() -> Duration) {
    let times: Vec<_> = (0..5).map(|_| once()).collect();
    let best = times.iter().min().expect("several");
    assert!(*best <= limit, "{times:?}");
}

#[test]
fn a_limit_holds_without_a_server_and_with_one_that_hangs() {
    let server = Server::start();
    server.freeze();
    let down = || bare().with(["-s", &format!("redis://127.0.0.1:{}", free_port())]);
    for run in [&down as &dyn Fn() -> std::process::Command, &|| dlock(&server)] {
        unreachable_after(timed(run().with(["run", "--wait", "1s", "job", "--", "true"])), Duration::from_secs(1));
        unreachable_after(timed(run().with(["run", "--outage", "1s", "job", "--", "true"])), Duration::from_secs(1));
        unreachable_after(timed(run().with(["run", "--no-wait", "job", "--", "true"])), Duration::from_secs(1));
    }
    server.thaw();
}

/// The connection of the request breaks, and the server reads the request after the command has ended, could not be
/// started or lost its lock, or after the server has refused the lease for the command.
#[test]
fn a_request_that_arrives_after_the_release_leaves_no_hold() {
    let runs: [(&[&str], &[&str], _); 5] = [
        (&[], &["true"], 0),
        (&[], &["/no/such/command"], 127),
        (&["--at-least", "1ms"], &["/"], 126),
        (&[], &["sh", "-c", "read line; exit 0"], 75),
        (&["--once", "1h", "--retry-failed"], &["true"], 69),
    ];
    for (options, command, code) in runs {
        let (server, mut client) = Server::start().with_client();
        let proxy = Proxy::to(&server);
        proxy.strand("REQUEST", "REQUEST");
        if code == 69 {
            proxy.say("DLOCK.RENEW", "-NOPERM no permission\r\n");
        }
        let run = bare().with(["-s", &proxy.url(), "run", "--lease", "600s"]).with(options);
        let mut run = run.with(["job", "--"]).with(command);
        run.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::start(run);
        if code == 75 {
            soon("the lock is held", || client.int("DEL job") == 1);
            drop(running.child().stdin.take());
        }
        soon("the lock is released", || client.calls("dlock.release") > 0);
        proxy.deliver();
        let outcome = running.outcome();
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        soon("the request has arrived", || client.calls("dlock.acquire") > 1);
        soon("nobody has the lock", || lock_info(&mut client, "job").is_none());
    }
}

#[test]
fn a_limit_holds_if_the_server_fails_during_the_wait() {
    for hangs in [false, true] {
        let (mut server, mut client) = Server::start().with_client();
        client.int("DLOCK.ACQUIRE job other PX 600000");
        for options in [["--wait", "1500ms"], ["--outage", "1500ms"]] {
            let began = Stopwatch::start();
            let running = Running::start(dlock(&server).with(["run"]).with(options).with(["job", "--", "true"]));
            server.left_waiting(1);
            if hangs {
                server.freeze()
            } else {
                server.kill9()
            }
            let (gone, outcome) = (Stopwatch::start(), running.outcome());
            // With `--wait`, the lock is known to be held: the server had answered that.
            let code = if options[0] == "--wait" { 1 } else { 69 };
            assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
            let mut since = if options[0] == "--wait" { began } else { gone };
            since.leaves_out(outcome.waited);
            since.is_between(Duration::ZERO, Duration::from_millis(1500) + LATE, options[0]);
            if hangs {
                server.thaw()
            } else {
                server.boot()
            }
            server.left_waiting(0);
            server.client().run("DLOCK.RACQUIRE job other PX 600000");
        }
    }
}

#[test]
fn a_held_lock_is_refused_within_its_limit() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE job other PX 600000");
    for option in [&["--no-wait"][..], &["--wait", "300ms"]] {
        let (outcome, took) = timed(dlock(&server).with(["run"]).with(option).with(["job", "--", "true"]));
        assert_eq!(outcome.code, Some(1));
        took.is_between(Duration::ZERO, Duration::from_secs(1), "a refusal");
    }
}

#[test]
fn an_interrupted_wait_ends_at_once_whatever_the_server_does() {
    let mut server = Server::start();
    server.client().int("DLOCK.ACQUIRE job other PX 600000");
    let interrupt = |server: &Server, number: i32, hangs: bool| {
        let mut running = Running::start(dlock(server).with(["run", "job", "--", "true"]));
        server.left_waiting(1);
        if hangs {
            server.freeze();
        }
        let began = Instant::now();
        running.signal(number);
        assert_eq!(running.outcome().signal, Some(number));
        let took = began.elapsed();
        if hangs {
            server.thaw();
        }
        server.left_waiting(0);
        took
    };
    for hangs in [false, true] {
        within(Duration::from_millis(100), || interrupt(&server, libc::SIGINT, hangs));
        within(Duration::from_millis(100), || interrupt(&server, libc::SIGTERM, hangs));
    }
    server.kill9();
    within(Duration::from_millis(100), || {
        let mut running = Running::start(dlock(&server).with(["run", "job", "--", "true"]));
        std::thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        running.signal(libc::SIGINT);
        assert_eq!(running.outcome().signal, Some(libc::SIGINT));
        began.elapsed()
    });
}

#[test]
fn an_interruption_at_any_point_leaves_no_lock() {
    let server = Server::start();
    for number in 0..40 {
        let options = ["run", "--lease", "600s", "--no-wait", "job", "--", "sleep", "600"];
        let mut running = Running::start(dlock(&server).with(options));
        std::thread::sleep(Duration::from_millis(number / 2));
        running.signal(if number % 2 == 0 { libc::SIGINT } else { libc::SIGTERM });
        running.outcome();
        soon("it is free", || server.holders("job").is_empty());
    }
}

/// Starts a run whose command ends at once after TERM, and leaves a file `ended`.
fn ends_by_term(server: &Server, notes: &Notes, lease: &str) -> Running {
    let ended = notes.path("ended").display().to_string();
    let on = notes.path("on").display().to_string();
    let script = format!("trap 'echo > {ended}; exit 3' TERM; echo > {on}; while :; do sleep 0.01; done");
    let running = Running::start(dlock(server).with(["run", "--lease", lease, "job", "--", "sh", "-c", &script]));
    soon("it runs", || notes.path("on").exists());
    running
}

#[test]
fn after_a_loss_the_run_ends_with_its_command() {
    for hangs in [false, true] {
        let (mut server, notes) = (Server::start(), Notes::new());
        let running = ends_by_term(&server, &notes, "6s");
        if hangs {
            server.freeze()
        } else {
            server.kill9()
        }
        soon("the command ends", || notes.path("ended").exists());
        let mut ended = Stopwatch::start();
        let outcome = running.outcome();
        assert_eq!(outcome.code, Some(75));
        ended.leaves_out(outcome.waited);
        ended.is_between(Duration::ZERO, Duration::from_millis(500), "a loss");
        if hangs {
            server.thaw();
        }
    }
}

#[test]
fn a_run_ends_soon_after_its_interrupted_command() {
    for hangs in [false, true] {
        let (mut server, notes) = (Server::start(), Notes::new());
        let mut running = ends_by_term(&server, &notes, "600s");
        if hangs {
            server.freeze()
        } else {
            server.kill9()
        }
        let mut began = Stopwatch::start();
        running.signal(libc::SIGTERM);
        let outcome = running.outcome();
        assert_eq!(outcome.code, Some(3));
        began.leaves_out(outcome.waited);
        began.is_between(Duration::ZERO, Duration::from_millis(500), "a signal");
        if hangs {
            server.thaw();
            soon("the run has sent a release", || server.holders("job").is_empty());
        }
    }
}

/// A run that fails may have been granted its lock, and releases it before it ends.
#[test]
fn a_run_that_fails_leaves_no_lock_behind() {
    let wait = Duration::from_secs(1);
    for replicas in [true, false] {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        let command = bare().with(["-s", &proxy.url(), "run", "--wait", "1s", "--lease", "600s"]);
        let command = if replicas { command.with(["--replicas", "1", "--replicas-timeout", "10m"]) } else { command };
        let mut watch = server.client();
        if !replicas {
            watch.int("DLOCK.ACQUIRE job other PX 600000");
        }
        let running = Running::start(command.with(["job", "--", "true"]));
        if replicas {
            soon("it is granted", || lock_info(&mut watch, "job").is_some());
            // The time of `--wait` is over, and the run waits for a replica, of which there is none.
            std::thread::sleep(wait + Duration::from_secs(3));
            proxy.cut();
        } else {
            server.left_waiting(1);
            proxy.delay_replies(2 * wait);
            watch.int("DLOCK.RELEASE job other");
        }
        let outcome = running.outcome();
        // Without replicas, the lock is known to be held: the server had answered that.
        assert_eq!(outcome.code, Some(if replicas { 69 } else { 1 }), "{}", outcome.stderr);
        soon(&format!("the lock is free, {replicas} replicas: {outcome:?}"), || lock_info(&mut watch, "job").is_none());
    }
}

/// A step of a pipeline does not lose its lock because a server restarts.
#[test]
fn a_renewal_and_a_release_look_for_a_server_as_a_run_does() {
    let mut server = Setup::new().conf("appendonly yes\nappendfsync always").start();
    let token = server.client().int("DLOCK.ACQUIRE job alice PX 600000").to_string();
    for command in ["renew", "release"] {
        server.kill9();
        let mut command = dlock(&server).with([command, "job", "alice", "--token", &token]);
        command.stderr(std::process::Stdio::piped());
        let mut running = Running::start(command);
        std::thread::sleep(Duration::from_millis(500));
        assert!(!running.has_ended(), "{:?}", running.outcome());
        server.boot();
        assert_eq!(running.outcome().code, Some(0));
    }
    assert!(server.holders("job").is_empty());
}

#[test]
fn a_renewal_and_a_release_follow_a_failover() {
    let (mut server, replica) = Server::start().with_replica();
    let sentinels = Sentinels::one(&server, &format!("sentinel down-after-milliseconds {NAME} 500"));
    let sentinel = sentinels.ports()[0];
    let mut admin = Client::connect(sentinel).expect("a Sentinel");
    soon("it knows the replica", || admin.text("INFO sentinel").contains("slaves=1"));
    let token = server.client().int("DLOCK.ACQUIRE job alice PX 600000").to_string();
    soon("the replica has the lock", || replica.holders("job") == ["alice"]);
    server.kill9();
    let url = format!("redis-sentinel://127.0.0.1:{sentinel}/{NAME}");
    for command in ["renew", "release"] {
        let done = outcome(bare().with(["-s", &url, command, "job", "alice", "--token", &token]));
        assert_eq!(done.code, Some(0), "{command}: {}", done.stderr);
        assert_eq!(replica.holders("job").is_empty(), command == "release");
    }
}

#[test]
fn a_renewal_and_a_release_give_up_after_their_limit() {
    let server = Server::start();
    server.freeze();
    let down = || bare().with(["-s", &format!("redis://127.0.0.1:{}", free_port())]);
    for way in [&down as &dyn Fn() -> std::process::Command, &|| dlock(&server)] {
        for command in ["renew", "release"] {
            let limited = way().with([command, "job", "alice", "--token", "7", "--outage", "1s"]);
            let (outcome, took) = timed(limited);
            assert_eq!(outcome.code, Some(69), "{}", outcome.stderr);
            took.is_between(Duration::from_millis(900), Duration::from_secs(1) + LATE, "a limit");
        }
    }
    server.thaw();
}

/// The answer to a release is lost. With a token, it is sent again, and finds nothing, as it should.
#[test]
fn a_release_whose_answer_is_lost_is_repeated_only_with_a_token() {
    let (server, mut client) = Server::start().with_client();
    let proxy = Proxy::to(&server);
    for has_token in [true, false] {
        let token = client.int("DLOCK.ACQUIRE job alice PX 600000").to_string();
        let command = bare().with(["-s", &proxy.url(), "release", "job", "alice"]);
        let mut command = if has_token { command.with(["--token", &token]) } else { command };
        command.stderr(std::process::Stdio::piped());
        proxy.keep_integers();
        let running = Running::start(command);
        soon("it is released", || server.holders("job").is_empty());
        proxy.cut();
        let outcome = running.outcome();
        assert_eq!(outcome.code, Some(if has_token { 0 } else { 69 }), "{}", outcome.stderr);
    }
}

/// An agent without an answer of its servers replies LOADING: the release may have been executed. A server that starts
/// has executed nothing.
#[test]
fn a_release_that_an_agent_could_not_confirm_may_have_been_executed() {
    let (server, mut client) = Server::start().with_client();
    let proxy = Proxy::to(&server);
    for (reply, has_token, code) in [
        ("-LOADING no majority has answered: 127.0.0.1:7001: LOADING Redis is loading the dataset\r\n", true, 0),
        ("-LOADING no server answers: the server is silent\r\n", false, 69),
        ("-LOADING Redis is loading the dataset in memory\r\n", true, 1),
    ] {
        let token = client.int("DLOCK.ACQUIRE job alice PX 600000").to_string();
        let command = bare().with(["-s", &proxy.url(), "release", "job", "alice"]);
        let command = if has_token { command.with(["--token", &token]) } else { command };
        proxy.say("DLOCK.RELEASE", reply);
        let outcome = outcome(command);
        assert_eq!(outcome.code, Some(code), "{reply}: {}", outcome.stderr);
        assert!(server.holders("job").is_empty());
    }
}
