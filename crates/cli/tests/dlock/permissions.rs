//! The permissions that docs/permissions.md and the pages about production list suffice for the subcommands.

use std::path::Path;

use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Server, list_of, soon, text_of};

use crate::permitted::rules;
use crate::process::{Outcome, With, bare, outcome};

/// Runs a subcommand as a user who has the permissions of the page for it, and checks that nothing was refused.
#[track_caller]
fn run(server: &Server, keys: &str, arguments: &[&str]) -> Outcome {
    let mut admin = server.client();
    let rules = rules(&format!("`dlock {}`", arguments[0]));
    admin.ok(format!("ACL SETUSER operator reset on >secret {keys} {rules}"));
    admin.ok("ACL LOG RESET");
    let url = format!("redis://operator:secret@127.0.0.1:{}", server.port());
    let done = outcome(bare().with(["-s", &url]).with(arguments));
    assert_eq!(denied(&mut admin), [""; 0], "{arguments:?}: {done:?}");
    done
}

/// The commands that the server refused to the user. Two may be refused: the crate `redis` sends its name and version
/// (`CLIENT SETINFO`), and `dlock` takes a refused `CLUSTER SLOTS` for a server in no cluster.
fn denied(admin: &mut Client) -> Vec<String> {
    let entries = list_of(&admin.run("ACL LOG"));
    let objects = entries.iter().filter_map(|entry| {
        let fields: Vec<_> = list_of(entry);
        let at = fields.iter().position(|field| matches!(field, Value::BulkString(name) if name == b"object"))?;
        fields.get(at + 1).map(text_of)
    });
    objects.filter(|object| !["client|setinfo", "cluster|slots"].contains(&object.as_str())).collect()
}

#[test]
fn the_permissions_on_the_page_suffice_to_run_commands() {
    let (server, _replica) = Server::start().with_replica();
    let mut admin = server.client();
    soon("the replica acknowledges", || {
        admin.ok("SET x 1");
        admin.int("WAIT 1 1000") == 1
    });
    let ways: [&[&str]; 7] = [
        &["--max-time", "20s", "job:1"],
        &["--shared", "job:1"],
        &["--limit", "2", "--slot", "job:2"],
        &["-k", "job:3", "-k", "job:4"],
        &["--replicas", "1", "job:1"],
        &["--at-least", "1s", "job:5"],
        &["--once", "1h", "--retry-failed", "job:6"],
    ];
    for way in ways {
        let done = run(&server, "~job:*", &[&["run"], way, &["--", "true"]].concat());
        assert_eq!(done.code, Some(0), "{way:?}: {done:?}");
    }
    // A run that waits asks now and then whether the server is still there, here every half second: a quarter of
    // `--wait` (`Limits::interval` of dlock-client).
    admin.int("DLOCK.ACQUIRE job:7 other PX 600000");
    let done = run(&server, "~job:*", &["run", "--wait", "2s", "job:7", "--", "true"]);
    assert_eq!(done.code, Some(1), "{done:?}");
}

#[test]
fn the_permissions_on_the_page_suffice_to_look_and_to_free() {
    let (server, mut admin) = Server::start().with_client();
    admin.int("DLOCK.ACQUIRE job:1 alice PX 600000");
    admin.int("DLOCK.ACQUIRE other alice PX 600000");
    let looks: [&[&str]; 5] = [&["info", "job:1"], &["ls", "job:*"], &["graph", "job:*"], &["log"], &["metrics"]];
    for arguments in looks {
        let keys = if arguments[0] == "metrics" { "%R~*" } else { "%R~job:*" };
        let done = run(&server, keys, arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
    }
    assert_eq!(run(&server, "~job:*", &["renew", "job:1", "alice"]).code, Some(0));
    assert_eq!(run(&server, "~job:*", &["release", "job:1", "alice"]).code, Some(0));
    assert_eq!(run(&server, "~job:*", &["acquire", "job:1", "--lease", "100ms"]).code, Some(0));
    admin.outlive("job:1");
    admin.int("DLOCK.ACQUIRE job:1 alice PX 600000");
    assert_eq!(run(&server, "~job:*", &["break", "job:1", "--yes"]).code, Some(0));
    assert!(server.holders("job:1").is_empty());
    admin.int("DLOCK.ACQUIRE job:1 alice PX 600000");
    assert_eq!(run(&server, "~*", &["uninstall", "--yes"]).code, Some(0));
    assert!(server.holders("job:1").is_empty());
}

/// The ACL rules of a user on a page about production.
fn user_of(page: &str, user: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = std::fs::read_to_string(path).expect("a page");
    let rules = page.lines().find_map(|line| line.strip_prefix(&format!("user {user} ")));
    rules.unwrap_or_else(|| panic!("no user {user}")).to_owned()
}

/// Runs commands as a user of a page, and checks their codes, and that the server refused nothing of what they sent,
/// including the commands that only serve to word a message, such as who holds the lock.
#[track_caller]
fn all_run(server: &Server, page: &str, user: &str, commands: &[(&[&str], i32)]) {
    let mut admin = server.client();
    admin.ok(format!("ACL SETUSER {user} reset {}", user_of(page, user)));
    admin.ok("ACL LOG RESET");
    let url = format!("redis://{user}:{user}-secret@127.0.0.1:{}", server.port());
    for (words, code) in commands {
        let done = outcome(bare().with(["-s", &url]).with(*words));
        assert_eq!(done.code, Some(*code), "{page}, {user}: {words:?}: {done:?}");
        assert_eq!(denied(&mut admin), [""; 0], "{page}, {user}: {words:?}: {done:?}");
        // A run that does not get the lock (code 1) names the holder.
        assert!(*code != 1 || words[0] != "run" || done.stderr.contains("held by alice"), "{words:?}: {done:?}");
    }
}

#[test]
fn the_users_of_the_pages_of_production_may_do_what_the_pages_say() {
    let (server, mut admin) = Server::start().with_client();
    for page in ["production-single.md", "production-sentinel.md", "production-cluster.md"] {
        admin.ok("FLUSHALL");
        admin.int("DLOCK.ACQUIRE job:held alice PX 600000");
        let jobs: [(&[&str], i32); 16] = [
            (&["run", "job:backup", "--", "true"], 0),
            (&["run", "--shared", "job:1", "--", "true"], 0),
            (&["run", "--limit", "2", "--slot", "job:2", "--", "true"], 0),
            (&["run", "-k", "job:3", "-k", "job:4", "--", "true"], 0),
            (&["run", "--once", "1d", "job:5", "--", "true"], 0),
            // A command that has run in this period is skipped, with code 0.
            (&["run", "--once", "1d", "job:5", "--", "true"], 0),
            (&["run", "--no-wait", "job:held", "--", "true"], 1),
            (&["run", "--wait", "1500ms", "job:held", "--", "true"], 1),
            (&["acquire", "job:6", "--lease", "1h", "--label", "ci"], 0),
            (&["renew", "job:held", "alice", "--lease", "1h"], 0),
            (&["release", "job:held", "bob"], 1),
            (&["info", "job:held"], 0),
            (&["release", "job:held", "alice"], 0),
            (&["acquire", "job:held", "--lease", "1h"], 0),
            (&["break", "job:held", "--yes"], 0),
            (&["info", "job:held"], 1),
        ];
        all_run(&server, page, "jobs", &jobs);
        let looks: [(&[&str], i32); 4] = [(&["info", "job:6"], 0), (&["ls"], 0), (&["graph"], 0), (&["metrics"], 0)];
        all_run(&server, page, "monitor", &looks);
        let operates: [(&[&str], i32); 2] = [(&["log"], 0), (&["uninstall", "--check"], 1)];
        all_run(&server, page, "admin", &operates);
    }
}

/// An empty list on standard output would say that there are no locks.
#[test]
fn without_permissions_nothing_is_printed() {
    let (server, mut admin) = Server::start().with_client();
    admin.int("DLOCK.ACQUIRE job alice PX 600000");
    admin.ok("ACL SETUSER blind reset on >secret ~* +ping");
    let url = format!("redis://blind:secret@127.0.0.1:{}", server.port());
    let looks: [&[&str]; 7] = [
        &["ls"],
        &["ls", "--table"],
        &["log"],
        &["log", "--table"],
        &["graph"],
        &["graph", "--format", "dot"],
        &["graph", "--format", "mermaid"],
    ];
    for arguments in looks {
        let done = outcome(bare().with(["-s", &url]).with(arguments));
        assert_eq!((done.code, done.stdout.as_str()), (Some(69), ""), "{arguments:?}: {done:?}");
        assert!(done.stderr.contains("NOPERM"), "{arguments:?}: {done:?}");
    }
}
