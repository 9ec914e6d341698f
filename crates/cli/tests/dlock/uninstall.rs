//! `dlock uninstall` shows what needs the module, and clears a server so that it starts without the module.

use std::process::Command;

use crate::process::{Outcome, With, bare, dlock, outcome};
use dlock_testkit::{Server, Setup, soon};

#[track_caller]
fn run(server: &Server, arguments: &[&str]) -> Outcome {
    outcome(dlock(server).with(["uninstall"]).with(arguments))
}

/// Starts a server with locks in two databases, and with keys of another program in both.
fn used(conf: &str) -> Server {
    let server = Setup::new().conf(conf).start();
    let mut client = server.client();
    client.ok("SET own kept");
    client.int("DLOCK.ACQUIRE job alice PX 600000");
    client.ok("SELECT 3");
    client.ok("SET other kept");
    client.int(dlock_testkit::redis::cmd("DLOCK.ACQUIRE").arg(b"job\xff").arg("bob").arg("PX").arg(600_000).clone());
    server
}

/// Restarts a server without the module, from its AOF, as the command says. Only the other program's keys are there.
#[track_caller]
fn without_the_module(server: &mut Server) {
    server.shutdown();
    server.reconfigure(|setup| setup.without_module().conf("appendonly yes"));
    server.boot();
    let mut client = server.client();
    assert_eq!(client.text("GET own"), "kept");
    client.ok("SELECT 3");
    assert_eq!(client.text("GET other"), "kept");
    assert_eq!(client.int("DBSIZE"), 1);
}

#[test]
fn a_check_names_all_that_needs_the_module_and_changes_nothing() {
    let server = used("");
    let mut client = server.client();
    client.ok("ACL SETUSER worker on >secret ~job:* +dlock.acquire");
    let _bob = server.waiter("DLOCK.ACQUIRE job bob BLOCK 0");
    let check = run(&server, &["--check"]);
    assert_eq!(check.code, Some(1), "{check:?}");
    for part in ["2 locks in databases 0 3", "1 request waits", "users: worker", "token clock", "redis.conf"] {
        assert!(check.stdout.contains(part), "{part} in {}", check.stdout);
    }
    // The page shows the output for another server. The end of each line, from its last `/` or `:` on, must be the same.
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/install.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let block =
        page.split("$ dlock uninstall --check\n").nth(1).and_then(|rest| rest.split("\n```").next()).expect("a block");
    for line in block.lines() {
        let is_shown = |shown: &str| shown.split(['/', ':']).next_back() == line.split(['/', ':']).next_back();
        assert!(check.stdout.lines().any(is_shown), "{line} in {}", check.stdout);
    }
    assert_eq!(server.holders("job"), ["alice"]);
    assert!(client.text("INFO persistence").contains("aof_enabled:0"));
    let refused = run(&server, &[]);
    assert_eq!(refused.code, Some(64), "neither --yes nor a terminal to ask on: {refused:?}");
    assert_eq!(server.holders("job"), ["alice"]);
}

#[test]
fn a_server_without_an_aof_starts_without_the_module() {
    let mut server = used("");
    let done = run(&server, &["--yes"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("deleted 2 locks"), "{}", done.stdout);
    // The command has turned on the AOF, and prints how to turn it off again.
    let cli = format!("redis-cli -h 127.0.0.1 -p {}", server.port());
    let back = format!("  {cli} SAVE; {cli} CONFIG SET appendonly no; {cli} CONFIG REWRITE\n");
    assert!(done.stdout.contains(&back), "{}", done.stdout);
    let check = run(&server, &["--check"]);
    assert!(check.stdout.contains("no locks"), "{}", check.stdout);
    let aof = check.stdout.lines().find(|line| line.contains("AOF")).unwrap_or_default();
    assert!(aof.ends_with(", if anything did"), "the output claims that the AOF has locks: {}", check.stdout);
    without_the_module(&mut server);
}

#[test]
fn the_way_back_names_the_user_and_the_socket_but_no_password() {
    let server = used("unixsocket redis.sock");
    server.client().ok("ACL SETUSER operator on >s3cret ~* +@all");
    let socket = server.path("redis.sock").display().to_string();
    let tcp = format!("127.0.0.1:{}", server.port());
    for (url, cli) in [
        (format!("redis://operator:s3cret@{tcp}"), format!("redis-cli -h 127.0.0.1 -p {}", server.port())),
        (format!("redis+unix://{socket}?user=operator&pass=s3cret"), format!("redis-cli -s {socket}")),
    ] {
        server.client().ok("CONFIG SET appendonly no");
        let done = outcome(bare().with(["-s", &url, "uninstall", "--yes"]));
        assert_eq!(done.code, Some(0), "{done:?}");
        let line = format!("{cli} --user operator --askpass CONFIG SET appendonly no");
        assert!(done.stdout.contains(&line) && !done.stdout.contains("s3cret"), "{line} in {}", done.stdout);
    }
}

#[test]
fn a_server_with_an_aof_starts_without_the_module() {
    let mut server = used("appendonly yes");
    let done = run(&server, &["--yes"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    without_the_module(&mut server);
}

/// Returns the `sed` commands that `dlock uninstall` prints for the machine of the server.
fn left_to_do(done: &Outcome) -> Vec<String> {
    let lines = done.stdout.lines().filter_map(|line| line.strip_prefix("  "));
    lines.filter(|line| line.starts_with("sed ")).map(str::to_owned).collect()
}

#[test]
fn the_printed_lines_take_the_module_out_of_the_files() {
    let server = used("dlock.default-lease 5000\nuser worker on >secret ~job:* +dlock.acquire -dlock.log +get");
    let done = run(&server, &["--yes"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines = left_to_do(&done);
    assert_eq!(lines.len(), 2, "{done:?}");
    for line in lines {
        assert!(Command::new("sh").args(["-c", &line]).status().expect("a shell").success(), "{line}");
    }
    let conf = std::fs::read_to_string(server.path("redis.conf")).expect("a file");
    assert!(!conf.to_lowercase().contains("dlock."), "{conf}");
    assert!(!conf.contains("loadmodule") && conf.contains("user worker") && conf.contains("+get"), "{conf}");
    // The command has turned off the RDB preamble of the AOF. After the next start, the server uses it again.
    assert!(!conf.contains("aof-use-rdb-preamble no"), "{conf}");
    let again = run(&server, &["--yes"]);
    assert!(again.stdout.contains("aof-use-rdb-preamble is no: if dlock uninstall has set it"), "{}", again.stdout);
    assert!(again.stdout.contains("deleted 0 locks"), "{}", again.stdout);
}

#[test]
fn uninstall_fails_while_a_program_still_takes_locks() {
    let server = used("");
    let port = server.port();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let busy = std::thread::spawn(move || {
        let mut client = dlock_testkit::Client::connect(port).expect("the server");
        let mut n = 0;
        while stopped.try_recv().is_err() {
            client.int(format!("DLOCK.ACQUIRE busy:{n} me PX 600000"));
            n += 1;
        }
    });
    soon("the program takes locks", || !server.holders("busy:0").is_empty());
    let done = run(&server, &["--yes", "--timeout", "1s"]);
    stop.send(()).expect("a listener");
    busy.join().expect("no panic");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("a program still takes locks"), "{}", done.stderr);
}

#[test]
fn a_primary_and_its_replica_are_rid_of_the_module_one_after_the_other() {
    let (mut primary, mut replica) = Server::start().with_replica();
    primary.client().ok("SET own kept");
    primary.client().int("DLOCK.ACQUIRE job alice PX 600000");
    replica.wait_synced(&primary);
    for server in [&primary, &replica] {
        let done = run(server, &["--yes"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    // The primary restarts first, so that it sends nothing of the module to the replica.
    primary.client().send("SHUTDOWN NOW");
    primary.ended();
    primary.reconfigure(|setup| setup.without_module().conf("appendonly yes\naof-use-rdb-preamble no"));
    primary.boot();
    replica.wait_synced(&primary);
    let port = primary.port();
    // A replica does not shut down while it writes its AOF after the full synchronization.
    soon("the replica's AOF is written", || {
        let state = replica.client().text("INFO persistence");
        state.contains("aof_rewrite_in_progress:0") && state.contains("aof_rewrite_scheduled:0")
    });
    replica.shutdown();
    replica.reconfigure(|setup| {
        setup.without_module().conf(&format!("appendonly yes\naof-use-rdb-preamble no\nreplicaof 127.0.0.1 {port}"))
    });
    replica.boot();
    replica.wait_synced(&primary);
    assert_eq!(replica.client().text("GET own"), "kept");
}

#[test]
fn a_replica_is_cleared_after_its_primary() {
    let (primary, replica) = Server::start().with_replica();
    primary.client().int("DLOCK.ACQUIRE job alice PX 600000");
    soon("the replica has the lock", || replica.client().int("EXISTS job") == 1);
    let refused = run(&replica, &["--yes", "--timeout", "100ms"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("begin with its primary"), "{}", refused.stderr);
    let done = run(&primary, &["--yes"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let named = format!("127.0.0.1:{}", replica.port());
    assert!(done.stdout.contains(&named), "{}", done.stdout);
    assert!(done.stdout.contains("start the server before its replicas"), "{}", done.stdout);
    // The command waits until the replica has received the deletions of its primary.
    let done = run(&replica, &["--yes"]);
    assert_eq!((done.code, replica.client().int("EXISTS job")), (Some(0), 0), "{done:?}");
    assert!(done.stdout.contains("start the server after its primary"), "{}", done.stdout);
}

#[test]
fn a_server_without_the_module_is_left_alone_and_urls_of_several_servers_are_refused() {
    let plain = Setup::plain().start();
    let none = run(&plain, &["--check"]);
    assert_eq!((none.code, none.stdout.contains("has no dlock module")), (Some(0), true), "{none:?}");
    let several = outcome(bare().with(["uninstall", "--check", "-s", "redis-sentinel://127.0.0.1/main"]));
    assert_eq!(several.code, Some(64), "{several:?}");
    let way = "works on one server after the other, redis://HOST:PORT, the primary first and then each replica";
    assert!(several.stderr.contains("this URL names Sentinels: ") && several.stderr.contains(way), "{several:?}");
    let several = outcome(bare().with(["uninstall", "--check", "-s", "redis://127.0.0.1:1,127.0.0.1:2"]));
    assert_eq!(several.code, Some(64), "{several:?}");
    assert!(several.stderr.contains("this URL names several servers: ") && several.stderr.contains(way), "{several:?}");
}
