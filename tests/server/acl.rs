//! What a user may do who has the permission to lock and no other: lock the keys that are its own, and nothing else.

use std::collections::BTreeSet;

use redis::Cmd;

use crate::support::version::Version;
use crate::support::{Client, Server, int_of, list_of, req, text_of};

/// Each as it is sent for a key. `DLOCK.APPLY` is nobody's.
const COMMANDS: [&str; 8] = [
    "DLOCK.ACQUIRE {key} a PX 60000",
    "DLOCK.RACQUIRE {key} a SESSION",
    "DLOCK.RLOCK {key} a REQUEST id",
    "DLOCK.WLOCK {key} a BLOCK 1",
    "DLOCK.RENEW {key} a",
    "DLOCK.INFO {key} FULL",
    "DLOCK.CHECK {key} 5",
    "DLOCK.RELEASE {key} a ALL",
];

/// The permissions of docs/operations.md: by category where the server knows it, else command by command.
fn grants(version: Version) -> Vec<String> {
    let names = COMMANDS.map(|line| format!("+{}", line.split(' ').next().expect("a name").to_lowercase()));
    let mut grants = vec![names.join(" ")];
    grants.extend(version.has_module_categories().then(|| "+@dlock".to_owned()));
    grants
}

/// A server, its administrator, and one who may lock `job:…`, for each way to say that.
fn for_each_way(check: impl Fn(&Server, &mut Client, &mut Client)) {
    let server = Server::start();
    let mut admin = server.client();
    for grant in grants(Version::of(&mut admin)) {
        admin.ok(format!("ACL SETUSER worker reset on >secret ~job:* {grant}"));
        let mut worker = server.client();
        worker.ok("AUTH worker secret");
        check(&server, &mut admin, &mut worker);
        admin.int("ACL DELUSER worker");
    }
}

#[test]
fn who_may_lock_can_lock_its_keys_in_every_way() {
    for_each_way(|server, admin, worker| {
        for line in COMMANDS {
            worker.run(line.replace("{key}", "job:1"));
        }
        // And wait for them.
        admin.int("DLOCK.ACQUIRE job:2 other PX 60000");
        worker.send("DLOCK.ACQUIRE job:2 a PX 60000 BLOCK 0 SESSION");
        server.left_waiting(1);
        assert_eq!(admin.int("DLOCK.RELEASE job:2 other"), 1);
        worker.granted();
        assert_eq!(worker.int("DLOCK.RELEASE job:2 a"), 1);
    });
}

#[test]
fn who_may_lock_can_touch_no_other_key() {
    for_each_way(|_, admin, worker| {
        let token = admin.int("DLOCK.ACQUIRE other:1 a PX 60000");
        for line in COMMANDS {
            let error = worker.error(line.replace("{key}", "other:1"));
            assert!(error.starts_with("NOPERM "), "{line}: {error}");
        }
        assert!(admin.int(format!("DLOCK.CHECK other:1 {token}")) > 0);
        admin.int("DLOCK.RELEASE other:1 a");
    });
}

#[test]
fn who_may_lock_cannot_make_up_effects() {
    for_each_way(|_, _, worker| {
        assert!(worker.error("DLOCK.APPLY job:1 x").starts_with("NOPERM "));
    });
}

#[test]
fn who_may_lock_can_do_nothing_else() {
    for_each_way(|_, admin, _| {
        let names: BTreeSet<_> = list_of(&admin.run("COMMAND LIST")).iter().map(text_of).collect();
        // Of a command with subcommands only these are run.
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

/// Asks what the server would say to this command. None for those that it lets everybody run, to log in.
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
