//! Replicas and the AOF get effects or a verbatim `RELEASE`, and nothing for a command that changes nothing.

use crate::support::{Server, req};

const EFFECT: &str = "DLOCK.APPLY";
const RELEASE: &str = "DLOCK.RELEASE";

fn server() -> Server {
    Server::conf("appendonly yes\nappendfsync always")
}

#[test]
fn changes_are_appended_as_effects_or_releases() {
    let (server, mut client) = server().with_client();
    for request in [
        "DLOCK.ACQUIRE a o PX 600000",
        "DLOCK.RACQUIRE r o",
        "DLOCK.RACQUIRE r o",
        "DLOCK.RACQUIRE r o PX 1",
        "DLOCK.WLOCK w o EX 50",
        "DLOCK.RLOCK s o",
        "DLOCK.RLOCK s p",
        "DLOCK.RLOCK s *",
        "DLOCK.RENEW a o",
        "DLOCK.RENEW a o PX 700000",
        "DLOCK.RENEW s p READ",
    ] {
        let names = server.appended(|| drop(client.run(request)));
        assert_eq!(names, [EFFECT], "{request}");
    }
    client.int("DLOCK.RLOCK r o");
    let names = server.appended(|| drop(client.run("DLOCK.RENEW r o")));
    assert_eq!(names, ["MULTI", EFFECT, EFFECT, "EXEC"], "one effect for each hold");
    client.int("DLOCK.RELEASE r o READ");
    for request in ["DLOCK.RELEASE r o", "DLOCK.RELEASE r o ALL", "DLOCK.RELEASE a o", "DLOCK.RELEASE s p"] {
        let names = server.appended(|| drop(client.run(request)));
        assert!(names == [RELEASE] || names == [EFFECT], "{request}: {names:?}");
    }
}

#[test]
fn a_command_that_changes_nothing_is_not_appended() {
    let (server, mut client) = server().with_client();
    client.int("DLOCK.WLOCK k a PX 600000");
    client.int("DLOCK.RLOCK k a PX 600000");
    client.run("SET text v");
    let names = server.appended(|| {
        for request in [
            "ACQUIRE k b",
            "ACQUIRE k a",
            "RACQUIRE k b",
            "RLOCK k b",
            "WLOCK k b",
            "ACQUIRE k *",
            "RELEASE k b",
            "RELEASE none b",
            "RELEASE k a TOKEN 5",
            "RENEW k b",
            "RENEW none b",
            "RENEW k a TOKEN 5",
            "CHECK k 5",
            "INFO k",
            "INFO k FULL",
            "INFO none",
        ] {
            client.run(format!("DLOCK.{request}"));
        }
        for request in
            ["ACQUIRE k a PX 0", "RELEASE k a", "RENEW k a FOO", "ACQUIRE text a", "RELEASE text a", "CHECK k 0"]
        {
            client.error(format!("DLOCK.{request}"));
        }
    });
    assert_eq!(names, [""; 0]);
}

#[test]
fn reading_lapsed_holds_writes_nothing() {
    let (server, mut client) = server().with_client();
    client.int("DLOCK.RLOCK k b PX 600000");
    client.int("DLOCK.RLOCK k a PX 1");
    client.pass_ms(1);
    let names = server.appended(|| {
        client.run("DLOCK.INFO k FULL");
        client.run("DLOCK.INFO k OWNER a");
        client.nil("DLOCK.CHECK k 5");
    });
    assert_eq!(names, [""; 0]);
}

#[test]
fn a_release_beside_lapsed_holds_is_an_effect() {
    let (server, mut client) = server().with_client();
    client.int("DLOCK.RLOCK k b PX 600000");
    client.int("DLOCK.RLOCK k c PX 600000");
    client.int("DLOCK.RLOCK k a PX 1");
    client.pass_ms(1);
    let names = server.appended(|| drop(client.run("DLOCK.RELEASE k c")));
    assert!(names.contains(&EFFECT.to_owned()) && !names.contains(&RELEASE.to_owned()), "{names:?}");
}

#[test]
fn an_expiry_set_by_others_appends_no_effect() {
    let (server, mut client) = server().with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let (dump, end) = (client.bytes("DUMP k"), client.end_of("k"));
    let names = server.appended(|| {
        client.int("PERSIST k");
        client.int(format!("PEXPIREAT k {}", end + 5000));
        client.int(format!("PEXPIREAT k {end}"));
        client.ok(req!["RESTORE", "k", end, &dump, "ABSTTL", "REPLACE"]);
        client.int("PEXPIRE k 9000");
        // In this time, the module would have set an expiry of its own.
        client.pass_ms(200);
    });
    assert_eq!(names, ["PERSIST", "PEXPIREAT", "PEXPIREAT", "RESTORE", "PEXPIREAT"]);
}

#[test]
fn a_lock_restored_without_an_expiry_appends_its_expiry_once() {
    let (server, mut client) = server().with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000");
    let (dump, end) = (client.bytes("DUMP k"), client.end_of("k"));
    let names = server.appended(|| {
        client.ok(req!["RESTORE", "k", 0, &dump, "REPLACE"]);
        assert_eq!(client.end_of("k"), end);
    });
    assert_eq!(names, ["RESTORE", EFFECT]);
}

#[test]
fn transactions_and_scripts_append_effects_and_releases_only() {
    let (server, mut client) = server().with_client();
    let names = server.appended(|| {
        client.ok("MULTI");
        for request in ["DLOCK.ACQUIRE k a", "DLOCK.ACQUIRE k b", "DLOCK.RLOCK r a", "DLOCK.RELEASE k a"] {
            client.text(request);
        }
        client.run("EXEC");
    });
    assert_eq!((names.first().unwrap().as_str(), names.last().unwrap().as_str()), ("MULTI", "EXEC"));
    assert!(names[1..names.len() - 1].iter().all(|name| name == EFFECT || name == RELEASE), "{names:?}");
    let script = "redis.call('DLOCK.ACQUIRE', KEYS[1], 'a') redis.call('DLOCK.RENEW', KEYS[1], 'a', 'PX', 500000)
        return redis.call('DLOCK.CHECK', KEYS[1], 5)";
    let names = server.appended(|| client.nil(req!["EVAL", script, 1, "s"]));
    assert_eq!(names, ["MULTI", EFFECT, EFFECT, "EXEC"]);
}

#[test]
fn no_lease_is_appended_as_an_option() {
    let (server, mut client) = server().with_client();
    for (command, lease) in [("ACQUIRE", "PX 12345678"), ("RLOCK", "EX 12345")] {
        client.run(format!("DLOCK.{command} {command} a {lease}"));
    }
    client.run("DLOCK.ACQUIRE k a PX 600000");
    client.run("DLOCK.RENEW k a PX 23456789");
    let appended = server.aof();
    let own: Vec<_> = appended.iter().filter(|command| command[0].starts_with(b"DLOCK.")).collect();
    assert_eq!(own.len(), 4, "one effect for each command: {own:?}");
    for command in own {
        assert_eq!(String::from_utf8_lossy(&command[0]), EFFECT);
        for unit in [b"PX".as_slice(), b"EX", b"PXAT", b"EXAT"] {
            assert!(!command.iter().any(|word| word.eq_ignore_ascii_case(unit)), "{command:?}");
        }
    }
}
