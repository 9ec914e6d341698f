//! Plays the commands of docs/troubleshooting.md on servers with that trouble, and the commands of docs/cli.md that
//! show locks: they print what the page shows.

use std::path::Path;
use std::process::Command;

use crate::process::{Running, With, dlock, outcome};
use dlock_testkit::{Client, Server, soon};

/// A command of the page and what it prints.
struct Step {
    command: String,
    shown: String,
}

/// The commands in a section of docs/troubleshooting.md.
fn section(heading: &str) -> Vec<Step> {
    section_of("troubleshooting.md", heading)
}

/// The commands in a section of a page in docs/.
fn section_of(page: &str, heading: &str) -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = std::fs::read_to_string(path).expect("a page");
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).expect(heading);
    let blocks = section.split("\n```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("text\n"));
    let steps: Vec<_> = blocks
        .flat_map(|block| block.split("$ ").skip(1))
        .map(|step| {
            let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
            Step { command: command.to_owned(), shown: shown.to_owned() }
        })
        .collect();
    assert!(!steps.is_empty(), "{heading} has commands");
    steps
}

/// Runs the commands of a section on these servers, in the order of the page's ports.
fn replay(steps: &[Step], servers: &[&Server]) {
    for step in steps {
        let with_ports = servers.iter().zip(6379..).fold(step.command.clone(), |command, (server, port)| {
            command.replace(&format!(":{port}"), &format!(":{}", server.port()))
        });
        let cli = std::env::var("DLOCK_SERVER").unwrap_or_default();
        let cli = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/server"))
            .arg("cli")
            .env("SERVER", cli)
            .output();
        let cli = String::from_utf8(cli.expect("scripts/server").stdout).expect("a path");
        let with_cli = with_ports.replace("redis-cli", &format!("{} -p {}", cli.trim(), servers[0].port()));
        let mut command = Command::new("sh");
        let binary = Path::new(env!("CARGO_BIN_EXE_dlock")).parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["-c", &with_cli]).env("PATH", format!("{binary}:{path}"));
        command.env("DLOCK_URL", format!("redis://127.0.0.1:{}", servers[0].port()));
        let printed = outcome(command);
        assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{}", step.command);
        let [shown, real] = [&step.shown, &printed.stdout].map(|text| timeless(text));
        assert_eq!(shown, real, "{}\n{}", step.command, printed.stdout);
    }
}

/// The words of each line, with placeholders for all that differs between runs: times, tokens, addresses, client ids.
fn timeless(text: &str) -> Vec<Vec<String>> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = |word: &str| word.starts_with("127.0.0.1:");
    let kind = |word: &str, next: Option<&&str>| {
        let number = word.trim_end_matches(|c: char| "smhd".contains(c));
        let is_time = number.len() < word.len() && is_digits(&number.replace(['.', 'm', 'h', 'd'], ""));
        match word {
            _ if is_time => "TIME",
            _ if is_address(word) => "ADDRESS",
            _ if is_owner(word) => "OWNER",
            _ if word.len() == 16 && is_digits(word) => "TOKEN",
            _ if word.len() == 10 && is_digits(&word.replace('-', "")) => "DATE",
            _ if word.len() == 12 && is_digits(&word.replace([':', '.'], "")) => "CLOCK",
            // The id of a client, with or without its address.
            _ if is_digits(word) && next.is_none_or(|next| is_address(next)) => "NUMBER",
            word => word,
        }
        .to_owned()
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.iter().enumerate().map(|(at, word)| kind(word, words.get(at + 1))).collect()
        })
        .collect()
}

/// Whether it is an owner as `dlock run` makes it: HOST:PID:RANDOM.
fn is_owner(word: &str) -> bool {
    let parts: Vec<_> = word.rsplitn(3, ':').collect();
    matches!(parts[..], [random, pid, _] if random.len() == 16
        && random.bytes().all(|byte| byte.is_ascii_hexdigit())
        && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Waits until the log has that many entries.
#[track_caller]
fn logged(client: &mut Client, entries: i64) {
    soon("it is logged", || client.int("DLOCK.LOG LEN") == entries);
}

#[test]
fn nobody_gets_the_lock() {
    let server = Server::start();
    server.client().int("DLOCK.ACQUIRE report alice PX 600000");
    let _waiters = server.waiters(["bob", "carol"].map(|w| format!("DLOCK.ACQUIRE report {w} PX 600000 BLOCK 0")));
    replay(&section("Nobody gets the lock"), &[&server]);
}

#[test]
fn two_at_once() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE report alice PX 200");
    let mut bob = server.waiter("DLOCK.ACQUIRE report bob PX 600000 BLOCK 0");
    bob.granted();
    // The log counts in milliseconds: the next event must not have the same time.
    let begin = client.now();
    client.pass(begin + 20);
    client.int("DEL report");
    logged(&mut client, 2);
    replay(&section("Two at once"), &[&server]);
}

#[test]
fn waits_grow() {
    let (server, mut client) = Server::conf("dlock.log-wait 100").with_client();
    client.int("DLOCK.ACQUIRE quiet other PX 600000");
    client.int("DLOCK.ACQUIRE cache first PX 600000");
    let mut next = server.waiter("DLOCK.ACQUIRE cache w0 PX 600000 BLOCK 0");
    let begin = client.now();
    client.pass(begin + 150);
    client.int("DLOCK.RELEASE cache first");
    next.granted();
    let mut late = server.waiter("DLOCK.ACQUIRE cache w9 BLOCK 150");
    late.gives_up();
    logged(&mut client, 2);
    let _waiters = server.waiters(["w1", "w2", "w3"].map(|w| format!("DLOCK.ACQUIRE cache {w} PX 600000 BLOCK 0")));
    replay(&section("Waits grow"), &[&server]);
}

#[test]
fn leases_lapse() {
    let (server, mut client) = Server::start().with_client();
    for entries in [1, 2] {
        client.int("DLOCK.ACQUIRE nightly job-7 PX 20");
        logged(&mut client, entries);
    }
    replay(&section("Leases lapse"), &[&server]);
}

#[test]
fn deadlocks() {
    let (server, other) = (Server::start(), Server::start());
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE a alice PX 600000");
    client.int("DLOCK.ACQUIRE c bob PX 600000");
    let mut waiter = server.waiter("DLOCK.ACQUIRE c alice BLOCK 0");
    client.error("DLOCK.ACQUIRE a bob BLOCK 0");
    client.int("DLOCK.RELEASE c bob");
    waiter.granted();
    other.client().int("DLOCK.ACQUIRE b bob PX 600000");
    let _bob = server.waiter("DLOCK.ACQUIRE a bob BLOCK 0");
    let _alice = other.waiter("DLOCK.ACQUIRE b alice BLOCK 0");
    replay(&section("Deadlocks"), &[&server, &other]);
}

#[test]
fn locks_are_shown_as_on_the_page_of_the_command() {
    let (server, [mut first, mut second]) = Server::start().with_clients();
    first.int("DLOCK.SACQUIRE pool worker-1 4 PERMITS 2 PX 600000");
    second.int("DLOCK.SACQUIRE pool worker-2 4 SESSION PX 600000");
    let _third = server.waiter("DLOCK.SACQUIRE pool worker-3 4 PERMITS 2 PX 600000 BLOCK 0");
    let run = || Running::start(dlock(&server).with(["run", "deploy:web", "--", "sleep", "600"]));
    let _holder = run();
    soon("the lock is held", || first.int("EXISTS deploy:web") == 1);
    let _waiter = run();
    server.left_waiting(2);
    let mut steps = section_of("cli.md", "Show locks");
    // The test needs no `jq`, and the page shows the tables of a terminal.
    steps.retain(|step| !step.command.contains('|'));
    steps.iter_mut().for_each(|step| step.command.push_str(" --table"));
    assert_eq!(steps.len(), 2);
    replay(&steps, &[&server]);
}

#[test]
fn the_log_is_shown_as_on_the_page_of_the_command() {
    let (server, mut client) = Server::conf("dlock.log-wait 100").with_client();
    client.int("DLOCK.SACQUIRE pool p1 1 PX 600000");
    client.int("DLOCK.ACQUIRE job:1 alice PX 600000");
    let mut bob = server.waiter("DLOCK.ACQUIRE job:1 bob PX 600000 BLOCK 0");
    let begin = client.now();
    client.pass(begin + 150);
    client.int("DLOCK.RELEASE job:1 alice");
    bob.granted();
    client.int("DEL job:1");
    let mut late = server.waiter("DLOCK.SACQUIRE pool p2 1 BLOCK 150");
    late.gives_up();
    logged(&mut client, 3);
    let mut steps = section_of("cli.md", "What happened");
    steps.iter_mut().for_each(|step| step.command.push_str(" --table"));
    replay(&steps, &[&server]);
}
