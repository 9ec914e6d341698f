//! `dlock run --once` and `--at-least`. `src/once/week.rs` plays a week of runs with clocks that differ.

use std::process::Stdio;
use std::time::Duration;

use crate::process::{Notes, Outcome, Running, With, alive, bare, dlock, outcome};
use dlock_testkit::{Server, soon};

const HOUR: i64 = 3_600_000;
/// How long the lock of `--once 1d` stays: nine tenths of a day are 21.6 hours.
const DAY: std::ops::Range<i64> = 21 * HOUR..22 * HOUR;

/// Starts `dlock run` with a script that notes that it ran, and then does `then`.
fn run(server: &Server, notes: &Notes, options: &[&str], then: &str) -> Running {
    let script = format!("echo ran >> {}; {then}", notes.path("log").display());
    let mut command = dlock(server).with(["run"]).with(options).with(["report", "--", "sh", "-c", &script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command)
}

/// Runs the same to its end.
fn done(server: &Server, notes: &Notes, options: &[&str], then: &str) -> Outcome {
    run(server, notes, options, then).outcome()
}

/// Returns how often the script has run.
fn ran(notes: &Notes) -> usize {
    notes.read("log").lines().count()
}

/// Returns for how many ms the lock stays.
fn left(server: &Server) -> i64 {
    server.client().int("PTTL report")
}

#[test]
fn a_skipped_run_says_when_and_where_the_last_one_began_and_when_the_next_can() {
    let (server, notes) = (Server::start(), Notes::new());
    assert_eq!(done(&server, &notes, &["--once", "1d"], "true").code, Some(0));
    let host = nix::unistd::gethostname().expect("a name").into_string().expect("readable");
    let skipped = done(&server, &notes, &["--once", "1d"], "true");
    assert_eq!(skipped.code, Some(0));
    let said = skipped.stderr;
    for part in ["dlock: report: it has run in this period, or runs now: it began ", " ago (20", " UTC), as ", &host] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(said.trim_end().ends_with("the next run can begin in 21h35m") || said.contains("in 21h36m"), "{said}");
    // A user who may not read locks gets the message without details.
    server.client().ok("ACL SETUSER runner on >secret ~* +dlock.acquire +dlock.renew +dlock.release +ping");
    let url = format!("redis://runner:secret@127.0.0.1:{}", server.port());
    let skipped = outcome(bare().with(["run", "-s", &url, "--once", "1d", "report", "--", "true"]));
    assert_eq!(
        (skipped.code, skipped.stderr.as_str()),
        (Some(0), "dlock: report: it has run in this period, or runs now\n")
    );
}

#[test]
fn the_lock_of_a_killed_run_ends_within_nine_tenths_of_the_period_or_3_s() {
    let server = Server::start();
    // The lock stays for at most nine tenths of the period, but no lease is shorter than 3 s.
    for (period, retry, most) in [("6s", false, 5400), ("6s", true, 5400), ("1s", false, 3000), ("20s", false, 18_000)]
    {
        let notes = Notes::new();
        let retry: &[&str] = if retry { &["--retry-failed"] } else { &[] };
        let mut command = dlock(&server).with(["run", "--once", period]).with(retry);
        command.args(["report", "--"]).args(notes.script("exec sleep 1000"));
        let mut running = Running::start(command);
        notes.pid();
        running.signal(libc::SIGKILL);
        running.outcome();
        let left = left(&server);
        assert!((1..=most).contains(&left), "{period} {retry:?}: {left} ms");
        server.client().int("DEL report");
    }
}

#[test]
fn five_machines_run_the_command_once_each_day() {
    let (server, notes) = (Server::start(), Notes::new());
    for day in 1..=7 {
        let machines: Vec<_> = (0..5).map(|_| run(&server, &notes, &["--once", "1d"], "true")).collect();
        let outcomes: Vec<_> = machines.into_iter().map(Running::outcome).collect();
        assert_eq!(ran(&notes), day);
        assert!(outcomes.iter().all(|outcome| outcome.code == Some(0)), "{outcomes:?}");
        let skipped = outcomes.iter().filter(|outcome| outcome.stderr.contains("it has run in this period")).count();
        assert_eq!(skipped, 4, "{outcomes:?}");
        assert!(DAY.contains(&left(&server)), "{} ms", left(&server));
        // The end of the lock stands for the end of the period.
        server.client().int("PEXPIRE report 1");
        server.client().outlive("report");
    }
}

#[test]
fn the_lock_stays_for_nine_tenths_of_the_period_from_the_start() {
    let (server, notes) = (Server::start(), Notes::new());
    let mut watch = server.client();
    for runs in 1..=3 {
        let script = format!("echo $DLOCK_TOKEN > {}", notes.path("token").display());
        assert_eq!(done(&server, &notes, &["--once", "4s", "--lease", "3s"], &script).code, Some(0));
        assert_eq!(done(&server, &notes, &["--once", "4s"], "true").code, Some(0));
        assert_eq!(ran(&notes), runs);
        let granted: i64 = notes.line("token").parse().expect("a token");
        // A token is the time of its grant in µs. The client counts from the reply, which a busy machine may delay.
        let stays = watch.end_of("report") - granted / 1000;
        assert!((3599..3599 + 400).contains(&stays), "{stays} ms");
        watch.outlive("report");
    }
}

#[test]
fn a_command_that_fails_counts_unless_it_may_be_repeated() {
    let (server, notes) = (Server::start(), Notes::new());
    let once = ["--once", "1d"];
    assert_eq!(done(&server, &notes, &once, "exit 7").code, Some(7));
    assert!(DAY.contains(&left(&server)));
    assert_eq!(done(&server, &notes, &once, "true").code, Some(0));
    assert_eq!(ran(&notes), 1);
    server.client().int("DEL report");
    let retry = ["--once", "1d", "--retry-failed"];
    assert_eq!(done(&server, &notes, &retry, "exit 7").code, Some(7));
    assert!(server.holders("report").is_empty());
    assert_eq!(done(&server, &notes, &retry, "kill -9 $$").code, Some(128 + 9));
    assert_eq!(done(&server, &notes, &retry, "true").code, Some(0));
    assert_eq!(ran(&notes), 4);
    assert!(DAY.contains(&left(&server)), "{} ms", left(&server));
    assert_eq!(done(&server, &notes, &retry, "true").code, Some(0));
    assert_eq!(ran(&notes), 4);
}

#[test]
fn a_killed_run_counts_unless_it_may_be_repeated() {
    for (options, stays) in [(&["--once", "1d"][..], true), (&["--once", "1d", "--retry-failed"], false)] {
        let (server, notes) = (Server::start(), Notes::new());
        let script = notes.script("exec sleep 1000");
        let command = dlock(&server).with(["run", "--lease", "5s"]).with(options).with(["report", "--"]).with(script);
        let mut running = Running::start(command);
        let pid = notes.pid();
        running.signal(libc::SIGKILL);
        soon("the command is gone", || !alive(pid));
        if stays {
            assert!(DAY.contains(&left(&server)));
        } else {
            let left = left(&server);
            assert!((1..=5000).contains(&left), "{left} ms");
            server.client().outlive("report");
            assert_eq!(done(&server, &notes, options, "true").code, Some(0));
            assert_eq!(ran(&notes), 1);
        }
    }
}

#[test]
fn a_run_that_waits_takes_over_or_learns_that_it_has_run() {
    let (server, notes) = (Server::start(), Notes::new());
    let script = notes.script("exec sleep 1000");
    let retry = ["run", "--once", "1d", "--retry-failed", "--lease", "3s"];
    let mut first = Running::start(dlock(&server).with(retry).with(["report", "--"]).with(script));
    notes.pid();
    let second = run(&server, &notes, &["--once", "1d", "--retry-failed", "--wait", "60s"], "true");
    server.left_waiting(1);
    first.signal(libc::SIGKILL);
    assert_eq!(second.outcome().code, Some(0));
    assert_eq!(ran(&notes), 1);
    let third = done(&server, &notes, &["--once", "1d", "--wait", "100ms"], "true");
    assert_eq!((third.code, ran(&notes)), (Some(0), 1));
    assert!(third.stderr.contains("it has run in this period"), "{}", third.stderr);
}

#[test]
fn a_success_is_not_forgotten_because_the_server_hangs_for_a_moment() {
    let (server, notes) = (Server::start(), Notes::new());
    let go = notes.path("go").display().to_string();
    let wait = format!("while [ ! -e {go} ]; do sleep 0.01; done");
    let mut running = run(&server, &notes, &["--once", "1d", "--retry-failed"], &wait);
    soon("the script runs", || ran(&notes) == 1);
    server.freeze();
    std::fs::write(&go, "").expect("a file");
    // The time is longer than `dlock run` waits for one reply.
    std::thread::sleep(Duration::from_secs(6));
    assert!(!running.has_ended(), "the run does not wait for the server");
    server.thaw();
    assert_eq!(running.outcome().code, Some(0));
    assert!(DAY.contains(&left(&server)), "{} ms", left(&server));
}

#[test]
fn a_command_that_takes_longer_than_the_period_is_alone_and_frees_the_lock_at_its_end() {
    let (server, notes) = (Server::start(), Notes::new());
    let go = notes.path("go").display().to_string();
    let wait = format!("while [ ! -e {go} ]; do sleep 0.01; done");
    let options = ["--once", "3s", "--lease", "3s"];
    let running = run(&server, &notes, &options, &wait);
    soon("the script runs", || ran(&notes) == 1);
    let mut watch = server.client();
    let running_since = watch.now();
    soon("the period is over", || watch.now() > running_since + 4000);
    assert_eq!(done(&server, &notes, &options, "true").code, Some(0));
    assert_eq!(ran(&notes), 1, "the second run has run its script beside the first");
    std::fs::write(&go, "").expect("a file");
    assert_eq!(running.outcome().code, Some(0));
    assert!(server.holders("report").is_empty());
}

#[test]
fn a_command_that_did_not_start_does_not_count() {
    let (server, notes) = (Server::start(), Notes::new());
    let failed = outcome(dlock(&server).with(["run", "--once", "1d", "report", "--", "/nowhere/at/all"]));
    assert_eq!(failed.code, Some(127));
    assert!(server.holders("report").is_empty());
    // The server allows leases of an hour at most. A longer time is an error before the command runs.
    server.client().ok("CONFIG SET dlock.max-lease 3600000");
    for options in [&["--once", "1d"][..], &["--once", "1d", "--retry-failed"], &["--at-least", "2h"]] {
        let refused = done(&server, &notes, options, "true");
        assert_eq!((refused.code, ran(&notes)), (Some(69), 0), "{}", refused.stderr);
        assert!(refused.stderr.contains("dlock.max-lease"), "{}", refused.stderr);
    }
}

#[test]
fn a_run_that_max_time_ends_counts_unless_it_may_be_repeated() {
    for (options, stays) in [(&[][..], true), (&["--retry-failed"], false)] {
        let (server, notes) = (Server::start(), Notes::new());
        let limited = ["--once", "1d", "--max-time", "3s", "--lease", "3s"];
        let ended = done(&server, &notes, &[&limited, options].concat(), "exec sleep 1000");
        assert_eq!((ended.code, ran(&notes)), (Some(75), 1), "{}", ended.stderr);
        assert!(ended.stderr.contains("its time is over"), "{}", ended.stderr);
        assert_eq!(!server.holders("report").is_empty(), stays);
        assert!(!stays || DAY.contains(&left(&server)), "{} ms", left(&server));
    }
}

#[test]
fn at_least_keeps_the_lock_after_the_command() {
    let (server, notes) = (Server::start(), Notes::new());
    let least = ["--at-least", "14m"];
    assert_eq!(done(&server, &notes, &least, "true").code, Some(0));
    let minutes = left(&server) / 60_000;
    assert!((13..=14).contains(&minutes), "{minutes} min");
    let refused = done(&server, &notes, &["--no-wait", "--at-least", "14m"], "true");
    assert_eq!((refused.code, ran(&notes)), (Some(1), 1));
    // No process knows the owner any more, but an operator can break the lock.
    assert_eq!(outcome(dlock(&server).with(["break", "--yes", "report"])).code, Some(0));
    assert_eq!(done(&server, &notes, &["--no-wait", "--at-least", "3s", "--limit", "2"], "exit 3").code, Some(3));
    // The run above keeps one of the two permits: a second run gets the other one.
    assert_eq!(done(&server, &notes, &["--no-wait", "--limit", "2"], "true").code, Some(0));
    assert_eq!(done(&server, &notes, &["--no-wait", "--limit", "1"], "true").code, Some(1));
}

#[test]
fn the_exit_code_and_the_message_of_a_run_that_is_skipped_can_be_chosen() {
    let (server, notes) = (Server::start(), Notes::new());
    server.client().int("DLOCK.ACQUIRE report other PX 600000");
    for (options, code) in [
        (&["--once", "1d", "-q"][..], 0),
        (&["--once", "1d", "--quiet", "-E", "9"], 9),
        (&["--no-wait", "-q"], 1),
        (&["--wait", "10ms", "-q", "-E", "0"], 0),
    ] {
        let skipped = done(&server, &notes, options, "true");
        assert_eq!((skipped.code, skipped.stderr.as_str()), (Some(code), ""), "{options:?}");
    }
    assert_eq!(ran(&notes), 0);
}

#[test]
fn once_and_at_least_refuse_wrong_values_and_options_that_they_exclude() {
    for wrong in [
        &["--once", "1d", "--limit", "2"][..],
        &["--once", "1d", "--shared"],
        &["--once", "1d", "--at-least", "1h"],
        &["--once", "0"],
        &["--retry-failed"],
        &["--at-least", "1h", "--retry-failed"],
    ] {
        let mistake = outcome(bare().with(["run"]).with(wrong).with(["report", "--", "true"]));
        assert_eq!(mistake.code, Some(64), "{wrong:?}: {}", mistake.stderr);
    }
    for options in [&["--once", "1d"][..], &["--at-least", "10s"]] {
        let quorum = ["-s", "redis://a", "-s", "redis://b", "-s", "redis://c", "--longest-lease", "1m"];
        let mistake = outcome(bare().with(quorum).with(["run"]).with(options).with(["report", "--", "true"]));
        assert_eq!(mistake.code, Some(64), "{}", mistake.stderr);
        assert!(mistake.stderr.contains("need one server"), "{}", mistake.stderr);
    }
}

#[test]
fn info_and_ls_show_the_lock_of_once_as_such() {
    let (server, notes) = (Server::start(), Notes::new());
    assert_eq!(done(&server, &notes, &["--once", "1d"], "true").code, Some(0));
    server.client().int("DLOCK.ACQUIRE other alice PX 600000");
    let info = outcome(dlock(&server).with(["info", "--table", "report"])).stdout;
    let line = info.lines().nth(1).unwrap_or_default();
    // The time begins with the year: 20…
    assert!(
        line.starts_with("it has run in this period, or runs now (dlock run --once); the next run can begin at 20")
    );
    assert!(line.ends_with(" UTC"), "{info}");
    let json = outcome(dlock(&server).with(["info", "report"])).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let (next, now) = (json["next_run"].as_i64().expect("a time"), server.client().now());
    assert!(DAY.contains(&(next - now)), "{json}");
    let list = outcome(dlock(&server).with(["ls", "--table"])).stdout;
    let modes: Vec<_> = list.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(modes, ["MODE", "exclusive", "once"], "{list}");
    let other = outcome(dlock(&server).with(["info", "other"])).stdout;
    assert!(other.contains("\"next_run\":null"), "{other}");
}

#[test]
fn the_label_of_a_run_is_the_beginning_of_its_owner_and_has_no_line_break() {
    let server = Server::start();
    let owner = |options: &[&str]| {
        let run = dlock(&server).with(["run"]).with(options).with(["--", "sh", "-c", "echo $DLOCK_OWNER"]);
        outcome(run).stdout
    };
    assert!(owner(&["--label", "nightly on web-1", "job"]).starts_with("nightly on web-1:"));
    assert!(owner(&["--label", "nightly", "--once", "1d", "job"]).starts_with("nightly:once:"));
    assert_eq!(outcome(dlock(&server).with(["run", "--label", "a\nb", "x", "--", "true"])).code, Some(64));
}
