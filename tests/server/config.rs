//! Settings: by `CONFIG SET`, in the configuration file, as arguments of `loadmodule`, by `MODULE LOADEX`.

use std::collections::BTreeMap;
use std::net::TcpListener;

use crate::support::process::module_path;
use crate::support::{Client, Server, Setup, list_of, text_of};

const YEAR: i64 = 31_536_000_000;

/// The module's settings as the server has them.
#[track_caller]
fn settings(client: &mut Client) -> BTreeMap<String, String> {
    let flat = list_of(&client.run("CONFIG GET dlock.*"));
    flat.chunks(2).map(|pair| (text_of(&pair[0]), text_of(&pair[1]))).collect()
}

#[track_caller]
fn setting(client: &mut Client, name: &str) -> i64 {
    settings(client)[&format!("dlock.{name}")].parse().expect("a number")
}

/// A setting as `redis.conf.example` describes it.
struct Described {
    name: String,
    value: i64,
    default: i64,
    range: (i64, i64),
}

fn described() -> Vec<Described> {
    let text = include_str!("../../redis.conf.example");
    let number = |text: &str| -> i64 { text.split_whitespace().next().unwrap().parse().expect("a number") };
    let mut comment = Vec::new();
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix('#') {
            comment.push(rest.trim());
        } else if let Some((name, value)) = line.strip_prefix("dlock.").and_then(|rest| rest.split_once(' ')) {
            let after = |word: &str| {
                comment.iter().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("no {word} {name}"))
            };
            let (low, high) = after("Range: ").split_once(" to ").expect("a range");
            let range = (number(low), number(high));
            found.push(Described {
                name: name.to_owned(),
                value: number(value),
                default: number(after("Default: ")),
                range,
            });
        } else {
            comment.clear();
        }
    }
    found
}

#[test]
fn the_example_lists_every_setting_with_its_default_and_range() {
    let (_server, mut client) = Server::start().with_client();
    let real = settings(&mut client);
    let shown: BTreeMap<_, _> =
        described().iter().map(|d| (format!("dlock.{}", d.name), d.value.to_string())).collect();
    assert_eq!(shown, real);
    for Described { name, value, default, range: (low, high) } in described() {
        assert_eq!(value, default);
        // The last value is neither the default nor an end of the range, which a bad value might be replaced with.
        let other = low.midpoint(high);
        assert!(![low, high, default].contains(&other));
        for good in [low, high, default, other] {
            client.ok(format!("CONFIG SET dlock.{name} {good}"));
            assert_eq!(setting(&mut client, &name), good);
        }
        let [below, above] = [low - 1, high + 1].map(|bound| bound.to_string());
        for bad in [&below, &above, "-2", "9223372036854775808", "abc", "1.5", "10s"] {
            let error = client.error(format!("CONFIG SET dlock.{name} {bad}"));
            assert!(error.starts_with("ERR "), "{error}");
            assert_eq!(setting(&mut client, &name), other);
        }
    }
    client.error("CONFIG SET dlock.no-such-setting 1");
}

#[test]
fn the_example_is_a_configuration_file() {
    let lines: Vec<_> =
        include_str!("../../redis.conf.example").lines().filter(|l| !l.starts_with("loadmodule")).collect();
    let server = Server::conf(&lines.join("\n"));
    assert_eq!(setting(&mut server.client(), "default-lease"), 30_000);
}

#[test]
fn the_default_lease_is_what_a_lock_without_a_lease_gets() {
    let (_server, mut client) = Server::start().with_client();
    client.ok("CONFIG SET dlock.default-lease 77000");
    for command in ["ACQUIRE", "RACQUIRE", "RLOCK", "WLOCK"] {
        client.leaves(command, 77_000, format!("DLOCK.{command} {command} a"));
    }
    // A hold keeps its own lease.
    client.ok("CONFIG SET dlock.default-lease 50000");
    client.leaves("ACQUIRE", 77_000, "DLOCK.RENEW ACQUIRE a");
    // A smaller `max-lease` replaces the default.
    client.ok("CONFIG SET dlock.max-lease 9000");
    client.leaves("k", 9_000, "DLOCK.ACQUIRE k a");
    assert_eq!(setting(&mut client, "default-lease"), 50_000);
    client.ok("CONFIG SET dlock.max-lease 60000");
    client.leaves("k2", 50_000, "DLOCK.ACQUIRE k2 a");
}

#[test]
fn the_largest_lease_limits_leases_that_are_given() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.RACQUIRE k a PX 70000");
    client.ok("CONFIG SET dlock.max-lease 60000");
    let now = client.now();
    for lease in [
        "PX 60001".to_owned(),
        "EX 61".to_owned(),
        format!("PXAT {}", now + 65_000),
        format!("EXAT {}", now / 1000 + 66),
    ] {
        for command in ["RACQUIRE k a", "RENEW k a", "ACQUIRE free a", "RLOCK free a", "WLOCK free a"] {
            client.error(format!("DLOCK.{command} {lease}"));
        }
    }
    assert_eq!(client.int("EXISTS free"), 0);
    client.leaves("free", 60_000, "DLOCK.ACQUIRE free a PX 60000");
    client.leaves("free", 60_000, "DLOCK.RENEW free a EX 60");
    // A hold's own lease may be longer: no command gives it now.
    client.leaves("k", 70_000, "DLOCK.RENEW k a");
}

#[test]
fn the_configuration_file_sets_the_settings() {
    let (server, mut client) = Server::conf("dlock.default-lease 5000\ndlock.max-lease 60000").with_client();
    assert_eq!((setting(&mut client, "default-lease"), setting(&mut client, "max-lease")), (5000, 60_000));
    client.leaves("k", 5000, "DLOCK.ACQUIRE k a");
    client.ok("CONFIG SET dlock.default-lease 6000");
    client.ok("CONFIG REWRITE");
    let rewritten = std::fs::read_to_string(server.path("redis.conf")).unwrap();
    let lines: Vec<_> = rewritten.lines().filter(|line| line.starts_with("dlock.")).collect();
    let server = Server::conf(&lines.join("\n"));
    assert_eq!(setting(&mut server.client(), "default-lease"), 6000, "{rewritten}");
    for bad in ["dlock.default-lease 0", "dlock.max-lease abc", "dlock.no-such-setting 1"] {
        let log = Setup::new().conf(bad).try_start().err().unwrap_or_else(|| panic!("{bad} is taken"));
        assert!(!log.trim().is_empty());
    }
}

#[test]
fn arguments_of_loadmodule_set_the_settings() {
    let (_server, mut client) = Setup::new().module_args("default-lease 5000").start().with_client();
    assert_eq!((setting(&mut client, "default-lease"), setting(&mut client, "max-lease")), (5000, YEAR));
    client.leaves("k", 5000, "DLOCK.ACQUIRE k a");
    let (_server, mut client) =
        Setup::new().module_args("max-waiters 7 session-grace 8 default-lease 4000").start().with_client();
    assert_eq!((setting(&mut client, "max-waiters"), setting(&mut client, "session-grace")), (7, 8));
    let (_server, mut client) = Setup::new().module_args("max-lease 60000 default-lease 4000").start().with_client();
    assert_eq!((setting(&mut client, "default-lease"), setting(&mut client, "max-lease")), (4000, 60_000));
    client.ok("CONFIG SET dlock.default-lease 7000");
    client.leaves("k", 7000, "DLOCK.ACQUIRE k a");
}

#[test]
fn a_setting_counts_at_once_and_one_that_fails_never() {
    let (_server, mut client) = Server::start().with_client();
    client.ok("CONFIG SET dlock.default-lease 60000");
    client.leaves("k", 60_000, "DLOCK.ACQUIRE k a");
    // The server notices a port that is taken when all is set, and sets everything back.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("port {}", taken.local_addr().unwrap().port());
    for rest in ["dlock.max-waiters -5", "maxmemory-policy nothing", "no-such-setting 1", &port] {
        client.error(format!("CONFIG SET dlock.default-lease 5000 {rest}"));
        client.error(format!("CONFIG SET {rest} dlock.default-lease 5000"));
        client.leaves("failed", 60_000, "DLOCK.ACQUIRE failed a");
        client.int("DEL failed");
    }
    client.ok("MULTI");
    for request in [
        "CONFIG SET dlock.default-lease 5000",
        "DLOCK.ACQUIRE one a",
        "CONFIG SET dlock.default-lease 7000 dlock.max-lease 6000",
        "DLOCK.ACQUIRE two a",
        "CONFIG SET dlock.default-lease 8000 no-such-setting 1",
        "DLOCK.ACQUIRE three a",
    ] {
        client.queued(request);
    }
    client.run("EXEC");
    let left = ["one", "two", "three"].map(|key| client.int(format!("PTTL {key}")));
    assert!((1..=5000).contains(&left[0]) && left[1..].iter().all(|left| (5001..=6000).contains(left)), "{left:?}");
}

/// A foreign module sets a setting while this one opens a key that has expired.
#[test]
fn a_setting_that_is_set_while_the_module_works_counts_for_the_next_event() {
    let (mut server, mut client) = Setup::new().hooks().start().with_client();
    server.tolerate("DEBUG");
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let meddled = |client: &mut Client, setting: &str| {
        let token = client.int("DLOCK.ACQUIRE old a PX 5");
        client.pass(token / 1000 + 10);
        client.ok(format!("DLOCK.MEDDLE other CONFIG SET {setting}"));
    };
    meddled(&mut client, "dlock.default-lease 5000");
    client.int("DLOCK.ACQUIRE old b PX 60000");
    client.leaves("k", 5000, "DLOCK.ACQUIRE k a");
    client.int("DEL old k");
    meddled(&mut client, "dlock.session-grace 600000");
    let mut holder = server.client();
    let id = holder.int("CLIENT ID");
    holder.int("DLOCK.ACQUIRE bound a PX 60000 SESSION");
    client.ok("MULTI");
    for request in ["DLOCK.ACQUIRE old b PX 60000".to_owned(), format!("CLIENT KILL ID {id}")] {
        client.queued(request);
    }
    client.run("EXEC");
    assert_eq!(server.holders("bound"), ["a"], "the session's holds have a grace");
}

const BAD_ARGUMENTS: [&str; 15] = [
    "default-lease",
    "default-lease 0",
    "default-lease -5",
    "default-lease abc",
    "default-lease +5000",
    "default-lease 05000",
    "default-lease 31536000001",
    "max-lease 0",
    "max-waiters -1",
    "session-grace 3600001",
    "no-such-setting 1",
    "5000",
    "default-lease 5000 extra",
    "dlock.default-lease 5000",
    "default-lease 5000 default-lease 5000",
];

#[test]
fn bad_arguments_refuse_the_start() {
    for bad in BAD_ARGUMENTS {
        let log = Setup::new().module_args(bad).try_start().err().unwrap_or_else(|| panic!("{bad} is taken"));
        assert!(log.contains("dlock"), "{bad}: a line of the log says why:\n{log}");
    }
}

#[test]
fn a_module_can_be_loaded_into_a_running_server() {
    let path = module_path().display().to_string();
    for bad in BAD_ARGUMENTS {
        let (_server, mut client) = Setup::plain().start().with_client();
        client.error(format!("MODULE LOAD {path} {bad}"));
        assert_eq!(list_of(&client.run("MODULE LIST")).len(), builtin_modules(), "{bad}");
        client.error("DLOCK.INFO k");
        client.ok(format!("MODULE LOAD {path} default-lease 5000"));
        client.leaves("k", 5000, "DLOCK.ACQUIRE k a");
    }
}

/// Modules that the server brings along.
fn builtin_modules() -> usize {
    list_of(&Setup::plain().start().client().run("MODULE LIST")).len()
}

#[test]
fn loadex_takes_settings_and_arguments() {
    let path = module_path().display().to_string();
    for (load, default, max) in [
        ("", 30_000, YEAR),
        ("CONFIG dlock.default-lease 5000", 5000, YEAR),
        ("CONFIG dlock.default-lease 5000 CONFIG dlock.max-lease 60000", 5000, 60_000),
        ("ARGS max-lease 70000", 30_000, 70_000),
        ("CONFIG dlock.default-lease 5000 ARGS max-lease 70000", 5000, 70_000),
    ] {
        let (_server, mut client) = Setup::plain().start().with_client();
        client.ok(format!("MODULE LOADEX {path} {load}"));
        assert_eq!(
            (setting(&mut client, "default-lease"), setting(&mut client, "max-lease")),
            (default, max),
            "{load}"
        );
        client.leaves("k", default, "DLOCK.ACQUIRE k a");
    }
    let (_server, mut client) = Setup::plain().start().with_client();
    for bad in ["CONFIG dlock.default-lease 0", "CONFIG dlock.max-lease abc", "ARGS max-lease 0", "ARGS x 1"] {
        client.error(format!("MODULE LOADEX {path} {bad}"));
        client.error("DLOCK.INFO k");
    }
    client.ok(format!("MODULE LOADEX {path}"));
    client.int("DLOCK.ACQUIRE k a");
}

#[test]
fn the_module_is_never_unloaded() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a");
    client.error("MODULE UNLOAD dlock");
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    client.error("MODULE UNLOAD dlock");
}
