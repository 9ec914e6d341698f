//! The files that operators copy: the examples in `packaging/`, and the lines of docs/install.md.

use std::fs;
use std::process::Command;

use crate::docs::page::{Page, root};
use crate::support::replica::info_field;
use crate::support::{Client, Server, Setup, int_of, list_of, soon, text_of};

/// Returns the options of each server of the Compose file, as lines of `redis.conf`. The primary is the first.
fn servers_of_compose() -> Vec<String> {
    let text = fs::read_to_string(root().join("packaging/compose/compose.yaml")).expect("a file");
    let commands = text.split("command:").skip(1).map(|rest| rest.split(']').next().expect("a list"));
    commands
        .map(|list| {
            let words: Vec<_> = list.split('"').skip(1).step_by(2).collect();
            words.join(" ").replace("--", "\n")
        })
        .collect()
}

/// Returns the value of a setting in these lines.
fn number(lines: &str, setting: &str) -> Option<usize> {
    let line = lines.lines().find_map(|line| line.trim().strip_prefix(setting))?;
    Some(line.trim().parse().expect("a number"))
}

/// docs/failover.md: "Use it only with one replica more than the setting demands."
#[test]
fn the_examples_have_one_replica_more_than_they_demand() {
    for lines in servers_of_compose() {
        let demanded = number(&lines, "min-replicas-to-write").expect("a setting");
        assert!(servers_of_compose().len() - 1 > demanded, "compose.yaml demands {demanded}");
    }
    let text = fs::read_to_string(root().join("packaging/kubernetes/dlock.yaml")).expect("a file");
    let demanded = number(&text, "min-replicas-to-write").expect("a setting");
    let pods = number(&text, "replicas:").expect("a number of pods");
    assert!(pods - 1 > demanded, "dlock.yaml demands {demanded} and has {pods} pods");
}

#[test]
fn the_servers_of_the_compose_file_renew_a_lease_after_one_replica_is_lost() {
    let mut servers = servers_of_compose().into_iter().map(|lines| {
        // The addresses of the containers do not exist here.
        let kept = lines.lines().filter(|line| !line.starts_with("replica"));
        Setup::new().conf("repl-diskless-sync-delay 0").conf(&kept.collect::<Vec<_>>().join("\n"))
    });
    let (primary, mut client) = servers.next().expect("a primary").start().with_client();
    let mut replicas: Vec<_> = servers.map(|replica| replica.replica_of(&primary)).collect();
    let good = |client: &mut Client| info_field(client, "replication", "min_slaves_good_slaves");
    soon("all replicas are good", || good(&mut client) == Some(replicas.len().to_string()));
    client.run("DLOCK.ACQUIRE job alice PX 30000");
    replicas.pop().expect("a replica").kill9();
    soon("the lost replica is no longer good", || good(&mut client) == Some(replicas.len().to_string()));
    assert_eq!(int_of(&client.run("DLOCK.RENEW job alice")), 1);
}

/// Applies the `sed` commands of the steps that switch the module off to a configuration, and returns the result.
fn switched_off(page: &Page, conf: &str) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(&file, conf).expect("a file");
    let lines = page.commands("off");
    let edits: Vec<_> = lines.iter().filter(|line| line.starts_with("sed ")).collect();
    assert!(!edits.is_empty());
    for edit in edits {
        let here = edit.replace("/etc/redis/redis.conf", &file.path().display().to_string());
        assert_ne!(&here, edit);
        assert!(Command::new("sh").args(["-c", &here]).status().expect("a shell").success(), "{here}");
    }
    fs::read_to_string(&file).expect("a file")
}

#[test]
fn a_server_starts_without_the_module_after_the_steps_that_switch_it_off() {
    let users = "user jobs on nopass ~job:* +get +dlock.acquire -DLOCK.LOG (~x:* +dlock.info +ttl)\n\
                 user dlock on nopass ~dlock:* +get\n";
    let conf = format!("dlock.max-waiters 5\n{users}");
    let server = Server::conf(&conf);
    let has_category = list_of(&server.client().run("ACL CAT")).iter().any(|name| text_of(name) == "dlock");
    let category = if has_category { "user all on nopass ~* -@all +@dlock +ping\n" } else { "" };

    // Without the steps, the server does not start.
    let log = Setup::plain().conf(users).try_start().err().expect("a server that ends");
    assert!(log.contains("dlock.acquire"), "{log}");

    let conf = format!("loadmodule /usr/lib/redis/modules/libdlock.so\n{conf}{category}save 900 1\n");
    let left = switched_off(&Page::read("docs/install.md"), &conf);
    let server = Setup::plain().conf(&left).start();
    let users: Vec<_> = list_of(&server.client().run("ACL LIST")).iter().map(text_of).collect();
    let users = users.join("\n");
    assert!(users.contains("+get") && users.contains("+ttl") && users.contains("user dlock "), "{users}");
    assert!(left.contains("save 900 1"), "{left}");
}
