//! A user whose only permission is to lock can lock its own keys in every way, and can do nothing else.

use std::collections::BTreeSet;

use redis::Cmd;

use crate::commands::{Kind, of_kind, with_key};
use crate::support::skip::skipped;
use crate::support::version::Version;
use crate::support::{Client, Server, int_of, list_of, req, text_of};

/// The permissions of docs/permissions.md: by category where the server knows it, else command by command.
fn grants(version: Version) -> Vec<String> {
    let names: Vec<_> = with_key().map(|command| format!("+dlock.{}", command.name)).collect();
    let mut grants = vec![names.join(" ")];
    grants.extend(version.has_module_categories().then(|| "+@dlock".to_owned()));
    grants
}

/// Calls `check` with a server, its administrator and a user who may lock `job:…`, for each of the [`grants`].
fn for_each_way(check: impl Fn(&Server, &mut Client, &mut Client)) {
    let (server, mut admin) = Server::start().with_client();
    for grant in grants(Version::of(&mut admin)) {
        admin.ok(format!("ACL SETUSER worker reset on >secret ~job:* {grant}"));
        let mut worker = server.client();
        worker.ok("AUTH worker secret");
        check(&server, &mut admin, &mut worker);
        admin.int("ACL DELUSER worker");
    }
}

#[test]
fn a_user_who_may_lock_can_lock_its_keys_in_every_way() {
    for_each_way(|server, admin, worker| {
        for command in with_key() {
            for call in command.calls(&format!("job:{}", command.name)) {
                worker.run(call);
            }
        }
        // The user may also wait for a lock.
        admin.int("DLOCK.ACQUIRE job:2 other PX 60000");
        worker.send("DLOCK.ACQUIRE job:2 a PX 60000 BLOCK 0 SESSION");
        server.left_waiting(1);
        assert_eq!(admin.int("DLOCK.RELEASE job:2 other"), 1);
        worker.granted();
        assert_eq!(worker.int("DLOCK.RELEASE job:2 a"), 1);
    });
}

#[test]
fn a_user_who_may_lock_can_touch_no_other_key() {
    for_each_way(|_, admin, worker| {
        let token = admin.int("DLOCK.ACQUIRE other:1 a PX 60000");
        for call in with_key().flat_map(|command| command.calls("other:1")) {
            let error = worker.error(&call);
            assert!(error.starts_with("NOPERM "), "{call}: {error}");
        }
        assert!(admin.int(format!("DLOCK.CHECK other:1 {token}")) > 0);
        admin.int("DLOCK.RELEASE other:1 a");
    });
}

#[test]
fn a_user_who_may_lock_cannot_make_up_effects() {
    for_each_way(|_, _, worker| {
        assert!(worker.error("DLOCK.APPLY job:1 x").starts_with("NOPERM "));
    });
}

#[test]
fn a_user_who_may_lock_can_do_nothing_else() {
    for_each_way(|_, admin, _| {
        let names: BTreeSet<_> = list_of(&admin.run("COMMAND LIST")).iter().map(text_of).collect();
        // A command with subcommands cannot be run without one of them.
        let is_run = |name: &&String| !names.iter().any(|other| other.starts_with(&format!("{name}|")));
        let mut refused = 0;
        for name in names.iter().filter(is_run).filter(|name| !name.starts_with("dlock.")) {
            let Some(request) = dry_run(admin, name) else { continue };
            let answer = text_of(&admin.run(&request));
            assert!(answer.contains("no permissions to run"), "{name}: {answer}");
            refused += 1;
        }
        assert!(refused > 200, "the server has more than {refused} commands");
    });
}

/// Returns the request that asks whether `worker` may run a command. `None`: everybody may run it, to log in.
fn dry_run(admin: &mut Client, name: &str) -> Option<Cmd> {
    let info = list_of(&list_of(&admin.run(["COMMAND", "INFO", name]))[0]);
    let flags = list_of(&info[2]).iter().map(text_of).collect::<Vec<_>>();
    if flags.iter().any(|flag| flag == "no_auth") {
        return None;
    }
    let words: Vec<_> = name.split('|').collect();
    let least = int_of(&info[1]).unsigned_abs() as usize;
    let mut request = req!["ACL", "DRYRUN", "worker"];
    words.iter().copied().chain(std::iter::repeat_n("job:1", least - words.len())).for_each(|word| {
        request.arg(word);
    });
    Some(request)
}

/// Gives the user `probe` these rules and no others, and asserts which commands it may run: those that acquire, that
/// change, that read.
#[track_caller]
fn assert_may_run(admin: &mut Client, rules: &str, expected: [bool; 3]) {
    admin.ok(format!("ACL SETUSER probe reset on nopass ~* {rules}"));
    for (kind, expected) in [Kind::Acquires, Kind::Changes, Kind::Reads].into_iter().zip(expected) {
        for command in of_kind(kind) {
            let (name, answer) = (command.name, text_of(&admin.run(format!("ACL DRYRUN probe {}", command.call("k")))));
            assert!(answer == "OK" || answer.contains("no permissions to run"), "{rules}: {name}: {answer}");
            assert_eq!(answer == "OK", expected, "{rules}: {name}: {answer}");
        }
    }
}

/// A server that puts the commands of modules in categories, and its administrator; `None`: this one does not.
fn with_categories() -> Option<(Server, Client)> {
    let (server, mut admin) = Server::start().with_client();
    if Version::of(&mut admin).puts_module_commands_in_categories() {
        return Some((server, admin));
    }
    skipped("this server has no categories for the commands of modules");
    None
}

#[test]
fn the_categories_are_those_that_a_command_of_the_servers_own_would_have() {
    let Some((_server, mut admin)) = with_categories() else { return };
    for (kind, command) in with_key().map(|command| (command.kind, command.name)) {
        let info = list_of(&list_of(&admin.run(format!("COMMAND INFO dlock.{command}")))[0]);
        let flags: BTreeSet<_> = list_of(&info[2]).iter().map(text_of).collect();
        let categories: BTreeSet<_> = list_of(&info[6]).iter().map(text_of).collect();
        let has = |category: &str| categories.contains(category);
        let reads = kind == Kind::Reads;
        assert_eq!((has("@read"), has("@write")), (reads, !reads), "{command}: {categories:?}");
        assert_eq!(has("@blocking"), kind == Kind::Acquires, "{command}: {categories:?}");
        assert!(has("@fast") != has("@slow"), "{command}: {categories:?}");
        assert_eq!(has("@fast"), flags.contains("fast"), "{command}: {categories:?}, {flags:?}");
        assert!(!has("@admin") && !has("@dangerous"), "{command}: {categories:?}");
    }
}

#[test]
fn a_user_who_may_not_write_may_not_lock() {
    let Some((server, mut admin)) = with_categories() else { return };
    assert_may_run(&mut admin, "+@all -@write", [false, false, true]);
    assert_may_run(&mut admin, "-@all +@read", [false, false, true]);
    assert_may_run(&mut admin, "-@all +@write", [true, true, false]);
    assert_may_run(&mut admin, "+@all -@read", [true, true, false]);
    // The server refuses a command that is run, too, not only one that `ACL DRYRUN` asks about.
    admin.ok("ACL SETUSER reader reset on nopass ~* +@all -@write");
    let mut reader = as_user(&server, "reader");
    for command in of_kind(Kind::Acquires) {
        assert!(reader.error(command.call("k")).starts_with("NOPERM "), "{}", command.name);
    }
}

#[test]
fn a_user_who_may_not_block_may_not_run_what_can_wait() {
    let Some((server, mut admin)) = with_categories() else { return };
    assert_may_run(&mut admin, "+@all -@blocking", [false, true, true]);
    let mut user = as_user(&server, "probe");
    let token = admin.int("DLOCK.ACQUIRE k a PX 600000");
    for options in ["", "BLOCK 0", "BLOCK 10"] {
        assert!(user.error(format!("DLOCK.ACQUIRE k b {options}")).starts_with("NOPERM "), "{options}");
    }
    assert!(user.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert_eq!(user.int("DLOCK.RELEASE k a"), 1);
}

fn as_user(server: &Server, user: &str) -> Client {
    let mut client = server.client();
    client.ok(format!("AUTH {user} x"));
    client
}

/// The rules of docs/permissions.md for servers that have no categories for the commands of modules.
#[test]
fn rules_that_name_the_commands_say_the_same_on_every_server() {
    let (server, mut admin) = Server::start().with_client();
    let without = |kind| of_kind(kind).map(|command| format!(" -dlock.{}", command.name)).collect::<String>();
    let no_writes = format!("+@all -@write{}{}", without(Kind::Acquires), without(Kind::Changes));
    assert_may_run(&mut admin, &no_writes, [false, false, true]);
    let no_waits = format!("+@all -@blocking{}", without(Kind::Acquires));
    assert_may_run(&mut admin, &no_waits, [false, true, true]);
    let mut user = as_user(&server, "probe");
    assert!(user.error("DLOCK.RLOCK k a BLOCK 0").starts_with("NOPERM "));
    let docs = include_str!("../../docs/permissions.md");
    for rule in of_kind(Kind::Acquires).map(|command| format!("-dlock.{}", command.name)) {
        assert!(docs.contains(&rule), "docs/permissions.md has the rule {rule}");
    }
}
