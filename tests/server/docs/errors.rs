//! The errors that the pages list are those that the module sends: each is provoked here, or [`ELSEWHERE`] names the
//! test that provokes it.

use std::collections::BTreeMap;

use super::page::Page;
use crate::commands::{COMMANDS, Kind};
use crate::support::{Server, req};

/// Texts of the pages that need another kind of server, and the tests that provoke them; `none`: no test does.
const ELSEWHERE: [(&str, &str); 12] = [
    ("UNBLOCKED …", "waiting::ends, topology"),
    ("TRYAGAIN …", "several_cluster"),
    ("TRYAGAIN The lock has moved to another node while the client waited", "waiting::slots"),
    ("TRYAGAIN Writes are paused (CLIENT PAUSE, failover), repeat the command afterwards", "waiting::paused"),
    ("TRYAGAIN The server saves this key and takes no change of it now, repeat the command", "threads"),
    ("ERR fencing tokens are used up", "none"),
    ("ERR dlock is busy: a module must not run its commands from a notification", "none"),
    ("ERR internal error in dlock, see the server's log", "panic_guard"),
    (
        "NOPERM this user has no permissions to run …, which dlock.log needs on this server",
        "log_command, on servers without categories",
    ),
    ("NOPERM …", "log_command"),
    (
        "NOPERM this user was deleted or disabled while the client waited, or lost its permissions to run the command or to access its keys",
        "waiting::rights",
    ),
    ("NOPERM a named session needs a user, which a module's call does not have", "none"),
];

/// Options that are mistakes in every command that acquires or renews a lock.
const BAD_LEASES: [&str; 7] = ["NX", "PX", "PX 5 PX 5", "PX 5 EX 5", "EX x", "EX 0", "PXAT 1"];
const MORE_BAD_LEASES: [&str; 3] = ["EX 9223372036854775807", "EX 40000000", "SESSION PX 299"];
/// Options that are mistakes in every command that acquires a lock.
const BAD_WAITS: [&str; 4] = ["BLOCK x", "BLOCK -1", "REQUEST", "REQUEST id REQUEST id"];

fn mistakes() -> Vec<String> {
    let mut requests = Vec::new();
    for command in COMMANDS {
        let call = command.call("k");
        if command.kind == Kind::Acquires {
            let options = BAD_LEASES.iter().chain(&MORE_BAD_LEASES).chain(&BAD_WAITS);
            requests.extend(options.map(|options| format!("{call} {options}")));
            requests.push(call.replacen(" a", " *", 1) + " REQUEST r");
        }
        if command.name == "renew" {
            requests.extend(BAD_LEASES.iter().chain(&MORE_BAD_LEASES).map(|options| format!("{call} {options}")));
        }
        if command.required() > 0 {
            requests.push(format!("DLOCK.{}", command.name));
        }
        requests.extend(command.mistakes());
    }
    requests
}

/// Provokes errors, and returns them by command.
fn provoked() -> BTreeMap<String, Vec<String>> {
    let (server, mut client) = Server::start().with_client();
    client.ok("SET text v");
    for held in [
        "WLOCK both a",
        "RLOCK both a",
        "RACQUIRE bound a SESSION",
        "SACQUIRE full a 4294967295 PERMITS 4294967295",
        "SACQUIRE sem a 3",
        "RLOCK read c",
        "RLOCK read d",
        "ACQUIRE left a",
        "ACQUIRE right b",
    ] {
        client.int(format!("DLOCK.{held} PX 600000"));
    }
    let _waiters = ["ACQUIRE sem e BLOCK 0", "WLOCK read c BLOCK 0", "ACQUIRE right a BLOCK 0"]
        .map(|request| server.waiter(format!("DLOCK.{request}")));
    let mut errors = BTreeMap::<String, Vec<String>>::new();
    let mut add = |command: &str, error: String| errors.entry(command.to_lowercase()).or_default().push(error);
    for request in mistakes() {
        let command = request.split(' ').next().and_then(|name| name.split_once('.')).expect("a command").1.to_owned();
        if let Err(error) = client.attempt(request) {
            add(&command, error);
        }
    }
    let (long, id) = ("o".repeat(1025), "i".repeat(65));
    for (command, request) in [
        ("acquire", req!["DLOCK.ACQUIRE", "", "a"]),
        ("acquire", req!["DLOCK.ACQUIRE", "k", ""]),
        ("acquire", req!["DLOCK.ACQUIRE", "k", "a", "REQUEST", &id]),
        ("acquire", req!["DLOCK.ACQUIRE", "k".repeat(65537), "a", "SESSION"]),
        ("renew", req!["DLOCK.RENEW", "k", &long]),
        ("release", req!["DLOCK.RELEASE", "k", &long]),
        ("release", req!["DLOCK.RELEASE", "k", "a", "REQUEST", &id]),
        ("info", req!["DLOCK.INFO", "k", "OWNER", &long]),
        ("macquire", req!["DLOCK.MACQUIRE", 65, (0..65).map(|n| n.to_string()).collect::<Vec<_>>(), "a"]),
        ("acquire", req!["DLOCK.ACQUIRE", "k", "a", "SESSIONID", "i".repeat(129)]),
        ("renew", req!["DLOCK.RENEW", "k", "a", "SESSIONID", ""]),
        ("session", req!["DLOCK.SESSION", "", "CLOSE"]),
    ] {
        add(command, client.error(request));
    }
    let mut stranger = server.client();
    stranger.ok("ACL SETUSER stranger on nopass allkeys +@all");
    stranger.ok("AUTH stranger any");
    stranger.int("DLOCK.SESSION foreign PX 3600000");
    client.ok("CONFIG SET dlock.max-sessions-per-user 1");
    add("session", stranger.error("DLOCK.SESSION one-more PX 300"));
    client.ok("CONFIG SET dlock.max-sessions 1");
    add("session", client.error("DLOCK.SESSION one-more PX 300"));
    client.ok("ACL SETUSER stranger -client|kill");
    add("session", stranger.error("DLOCK.SESSION s CLOSE USER default"));
    client.ok("CONFIG SET dlock.max-sessions 10");
    client.ok("CONFIG SET dlock.max-sessions-per-user 0");
    client.ok("ACL SETUSER stranger off");
    add("session", stranger.error("DLOCK.SESSION one-more PX 300"));
    let later = client.now() + 600_000;
    add("renew", client.error(format!("DLOCK.RENEW bound a PXAT {later}")));
    let long_name = "n".repeat(65537);
    client.int(req!["DLOCK.ACQUIRE", &long_name, "a"]);
    add("renew", client.error(req!["DLOCK.RENEW", &long_name, "a", "SESSION"]));
    add("acquire", client.error(req!["DLOCK.ACQUIRE", &long_name, "z", "BLOCK", 0]));
    add("macquire", client.error(req!["DLOCK.MACQUIRE", 2, "free", &long_name, "z", "BLOCK", 0]));
    // A lease of 300 ms is renewed every 100 ms: two thousand of them are as many as a connection may have.
    let mut crowd = server.client();
    let mut request = |n: usize| crowd.attempt(format!("DLOCK.ACQUIRE s{n} a PX 300 SESSION")).err();
    add("acquire", (0..10_000).find_map(&mut request).expect("a limit"));
    client.int("DLOCK.ACQUIRE unbound a PX 300");
    add("renew", crowd.error("DLOCK.RENEW unbound a SESSION"));
    drop(crowd);
    for (command, call) in
        [("acquire", "'DLOCK.ACQUIRE','k','a','SESSION'"), ("renew", "'DLOCK.RENEW','both','a','SESSION'")]
    {
        let script = format!("local r=redis.pcall({call}) return redis.error_reply(r.err)");
        add(command, client.error(req!["EVAL", script, 0]));
    }
    client.ok("CONFIG SET dlock.max-hold 60000");
    add("acquire", client.error("DLOCK.ACQUIRE k a EX 61"));
    client.ok("CONFIG SET dlock.max-waiters 3");
    add("acquire", client.error("DLOCK.ACQUIRE both z BLOCK 0"));
    client.ok("REPLICAOF 127.0.0.1 1");
    add("acquire", client.error("DLOCK.ACQUIRE k a"));
    add("session", client.error("DLOCK.SESSION s PX 300"));
    errors
}

/// Whether a text of a page, with `…` for anything, is this error.
fn fits(text: &str, error: &str) -> bool {
    let mut parts = text.split('…');
    let Some(mut rest) = error.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<_> = parts.collect();
    for (at, part) in parts.iter().enumerate() {
        let found = if at + 1 == parts.len() && !part.is_empty() {
            rest.ends_with(part).then(|| rest.len() - part.len())
        } else {
            rest.find(part)
        };
        match found {
            Some(found) => rest = &rest[found + part.len()..],
            None => return false,
        }
    }
    parts.last().is_some_and(|part| part.is_empty()) || rest.is_empty()
}

/// The texts of errors in the tables of a page. A code without a text is left out: other commands send it, too.
fn listed(page: &Page) -> Vec<String> {
    const CODES: [&str; 9] = [
        "ERR ",
        "AMBIGUOUS ",
        "DEADLOCK ",
        "WRONGTYPE ",
        "NOSESSION ",
        "UNBLOCKED ",
        "TRYAGAIN ",
        "READONLY ",
        "NOPERM ",
    ];
    let rows = CODES.iter().flat_map(|code| page.rows(code));
    rows.map(|cells| cells[0].clone()).collect()
}

fn is_provoked_elsewhere(text: &str) -> bool {
    ELSEWHERE.iter().any(|(known, _)| *known == text)
}

#[test]
fn every_error_that_a_page_lists_is_sent_and_the_other_way_round() {
    let errors = provoked();
    let all: Vec<_> = errors.values().flatten().collect();
    assert!(all.len() > 150, "{}", all.len());
    let shared = ["acquire", "racquire"].map(|name| listed(&Page::read(format!("docs/commands/{name}.md")))).concat();
    let mut listed_at_all = 0;
    for page in Page::all_in("docs/commands") {
        let texts = listed(&page);
        listed_at_all += texts.len();
        let own = errors.get(&page.name()).map(Vec::as_slice).unwrap_or_default();
        // The other pages refer to that of DLOCK.ACQUIRE.
        let inherits = !["acquire", "check", "help", "log"].contains(&page.name().as_str());
        for text in texts.iter().filter(|text| !is_provoked_elsewhere(text)) {
            // Only permits reach the highest count in this test. Their error stands for those of the other commands.
            let is_sent = own.iter().any(|error| fits(text, error))
                || text.contains("too often") && all.iter().any(|error| fits(text, error));
            assert!(is_sent, "{}: nobody sends {text}: {own:#?}", page.path.display());
        }
        for error in own {
            let command = format!("'dlock.{}", page.name());
            let plain = error.replace(&command, "'dlock.acquire");
            let is_listed = texts.iter().any(|text| fits(text, error))
                || inherits && shared.iter().any(|text| fits(text, &plain))
                || page.name() == "apply";
            assert!(is_listed, "{} does not list {error}", page.path.display());
        }
    }
    assert!(listed_at_all > 70, "{listed_at_all}");
    let index = listed(&Page::read("docs/errors.md"));
    assert!(index.len() > 45, "{}", index.len());
    for error in &all {
        assert!(index.iter().any(|text| fits(text, error)), "docs/errors.md does not list {error}");
    }
    // Errors of any server without the module, and of the agent, which crates/cli/tests/agent provokes.
    let others = |text: &str| {
        text.starts_with("NOPERM ") && !text.contains("dlock")
            || ["ERR unknown command …", "ERR Bad data format"].contains(&text)
            || text.contains("the agent")
            || text.contains("over a quorum")
    };
    for text in index.iter().filter(|text| !is_provoked_elsewhere(text) && !others(text)) {
        assert!(all.iter().any(|error| fits(text, error)), "docs/errors.md: nobody sends {text}");
    }
}

#[test]
fn a_text_with_gaps_fits_what_it_stands_for() {
    for (text, error, does) in [
        ("ERR a", "ERR a", true),
        ("ERR a", "ERR ab", false),
        ("ERR a: …", "ERR a: b", true),
        ("ERR a: …", "ERR a", false),
        ("ERR … and … end", "ERR x and y end", true),
        ("ERR … and … end", "ERR x and y ends", false),
        ("…", "anything", true),
    ] {
        assert_eq!(fits(text, error), does, "{text}: {error}");
    }
}
