//! Output to a reader that closes its pipe, about servers that are down, without passwords, and about wrong options.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{Running, With, bare, dlock, outcome};
use dlock_testkit::Server;
use dlock_testkit::process::free_port;

/// Reads the first line and closes the pipe. Returns how long the command takes to end after that.
fn head(mut command: Command) -> Duration {
    command.stdout(Stdio::piped());
    let mut running = Running::start(command);
    let mut first = String::new();
    let mut output = BufReader::new(running.child().stdout.take().expect("a pipe"));
    output.read_line(&mut first).expect("a line");
    assert!(!first.is_empty());
    drop(output);
    let began = Instant::now();
    assert_eq!(running.outcome().code, Some(0));
    began.elapsed()
}

#[test]
fn a_subcommand_that_follows_ends_when_its_reader_has_gone() {
    let (server, mut client) = Server::start().with_client();
    client.run("DLOCK.LOG RESET");
    client.int("DLOCK.ACQUIRE job owner PX 600000");
    client.int("DEL job");
    for arguments in [&["watch", "job"][..], &["log", "--follow"], &["log", "--follow", "--table"]] {
        let took = head(dlock(&server).with(arguments));
        assert!(took < Duration::from_secs(2), "{arguments:?}: {took:?}");
    }
}

#[test]
fn a_server_that_is_down_has_its_address_in_the_metrics_and_in_errors_of_log_and_graph() {
    let server = Server::start();
    let [one, other] = [free_port(), free_port()];
    let urls = format!("redis://u:s3cret@127.0.0.1:{one} redis://:s3cret@localhost:{other}/3");
    let urls = format!("{urls} redis://127.0.0.1:{}", server.port());
    let of = |arguments: &[&str]| {
        let mut command = bare();
        command.env("DLOCK_URL", &urls);
        outcome(command.with(arguments))
    };
    let page = of(&["metrics"]);
    for up in [
        format!("dlock_up{{server=\"127.0.0.1:{one}\"}} 0"),
        format!("dlock_up{{server=\"localhost:{other}\"}} 0"),
        format!("dlock_up{{server=\"127.0.0.1:{}\"}} 1", server.port()),
    ] {
        assert_eq!(page.stdout.lines().filter(|line| *line == up).count(), 1, "{up} in\n{}", page.stdout);
    }
    assert!(page.stderr.contains(&format!("missing: 127.0.0.1:{one}: ")), "{}", page.stderr);
    for arguments in [&["log"][..], &["graph"]] {
        let done = of(arguments);
        assert_eq!(done.code, Some(69), "{}", done.stderr);
        assert!(done.stderr.contains(&format!("missing: localhost:{other}: ")), "{arguments:?}: {}", done.stderr);
    }
    let mut cluster = bare();
    cluster.env("DLOCK_URL", format!("redis://u:s3cret@127.0.0.1:{one},127.0.0.1:{other}"));
    let page = outcome(cluster.with(["metrics"]));
    let up = format!("dlock_up{{server=\"127.0.0.1:{one},127.0.0.1:{other}\"}} 0");
    assert!(page.stdout.lines().any(|line| line == up), "{}", page.stdout);
}

#[test]
fn no_output_shows_a_password() {
    let port = free_port();
    let urls = [
        format!("redis://user:s3cret@127.0.0.1:{port}"),
        format!("redis://user:s3cret@127.0.0.1:{port}/x"),
        format!("redis-sentinel://user:s3cret@127.0.0.1:{port}/main"),
        "redis-sentinel://user:s3cret@127.0.0.1".to_owned(),
        "http://user:s3cret@127.0.0.1".to_owned(),
        "user:s3cret@127.0.0.1".to_owned(),
        "redis://u:pa s3cret x@127.0.0.1".to_owned(),
        "redis://u:pa?s3cret@host".to_owned(),
        "redis://h?password=a&s3cret".to_owned(),
        "redis://u:pa?s3c=ret@h".to_owned(),
        "redis://u:[s3cret/x@h".to_owned(),
    ];
    for url in &urls {
        for arguments in [
            &["--help"][..],
            &["run", "--help"],
            &["run", "--no-wait", "--outage", "100ms", "job", "--", "true"],
            &["run", "--nonsense"],
            &["info", "job"],
            &["ls"],
            &["log"],
            &["graph"],
            &["metrics"],
            &["man"],
            &["--sentinel-user", "me", "--lease"],
        ] {
            let mut command = bare();
            command.env("DLOCK_URL", url).env("DLOCK_SENTINEL_PASSWORD", "s3cret");
            let done = outcome(command.with(arguments));
            // Every password here begins with `s3c`.
            assert!(!format!("{done:?}").contains("s3c"), "{url} {arguments:?}: {done:?}");
        }
    }
}

#[test]
fn a_wrong_option_of_run_is_not_taken_for_the_name_of_a_lock() {
    let run = outcome(bare().with(["run", "--outag", "job", "--", "true"]));
    assert_eq!(run.code, Some(64));
    assert!(run.stderr.contains("a similar argument exists: '--outage'"), "{}", run.stderr);
    assert!(!run.stderr.contains("as a value"), "{}", run.stderr);
    let info = outcome(bare().with(["info", "-x"]));
    assert!(info.stderr.contains("use '-- -x'"), "for `info`, clap's own suggestion is right: {}", info.stderr);
}
