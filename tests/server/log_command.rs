//! `DLOCK.LOG` as a command: its subcommands, its settings, who may run it; and the percentiles in `INFO dlock`.

use std::collections::BTreeSet;

use redis::Value;

use crate::log::shown::log;
use crate::support::replica::info_field;
use crate::support::version::Version;
use crate::support::{Client, Server, Setup, int_of, list_of, text_of};

/// Logs this number of holds.
fn fill(client: &mut Client, entries: usize) {
    client.ok("CONFIG SET dlock.log-hold 0");
    let pair = ["DLOCK.ACQUIRE k a", "DLOCK.RELEASE k a"];
    let pairs: Vec<_> = (0..entries).flat_map(|_| pair).collect();
    client.pipeline(&pairs).into_iter().for_each(|reply| drop(reply.unwrap()));
}

#[track_caller]
fn ids(client: &mut Client, request: &str) -> Vec<i64> {
    let id = |entry: &Value| int_of(&crate::support::lock::fields_of(entry)[0].1);
    list_of(&client.run(request)).iter().map(id).collect()
}

#[test]
fn get_shows_the_newest_entries_ten_by_default() {
    let (_server, mut client) = Server::start().with_client();
    assert_eq!(ids(&mut client, "DLOCK.LOG GET"), Vec::<i64>::new());
    fill(&mut client, 25);
    assert_eq!(ids(&mut client, "dlock.log get"), (15..25).rev().collect::<Vec<_>>());
    for (count, shown) in [("0", 0), ("1", 1), ("25", 25), ("1000", 25), ("-1", 25)] {
        let all: Vec<_> = (0..25).rev().take(shown).collect();
        assert_eq!(ids(&mut client, &format!("DLOCK.LOG GET {count}")), all, "{count}");
    }
    assert_eq!(client.int("DLOCK.LOG LEN"), 25);
    client.ok("DLOCK.LOG RESET");
    assert_eq!(client.int("DLOCK.LOG LEN"), 0);
    fill(&mut client, 1);
    assert_eq!(ids(&mut client, "DLOCK.LOG GET"), [25], "ids go on");
}

#[test]
fn wrong_arguments_get_the_errors_of_the_servers_own_log() {
    let (_server, mut client) = Server::start().with_client();
    for (request, error) in [
        ("DLOCK.LOG", "ERR wrong number of arguments for 'dlock.log' command"),
        ("DLOCK.LOG GET 1 2", "ERR wrong number of arguments for 'dlock.log|get' command"),
        ("DLOCK.LOG LEN 1", "ERR wrong number of arguments for 'dlock.log|len' command"),
        ("DLOCK.LOG RESET 1", "ERR wrong number of arguments for 'dlock.log|reset' command"),
        ("DLOCK.LOG HELP 1", "ERR wrong number of arguments for 'dlock.log|help' command"),
        ("DLOCK.LOG NO", "ERR unknown subcommand 'NO'. Try DLOCK.LOG HELP."),
        ("DLOCK.LOG GET -2", "ERR count should be greater than or equal to -1"),
        ("DLOCK.LOG GET x", "ERR value is not an integer or out of range: count"),
        ("DLOCK.LOG GET 9223372036854775808", "ERR value is not an integer or out of range: count"),
    ] {
        assert_eq!(client.error(request), error, "{request}");
    }
    let help: Vec<_> = list_of(&client.run("DLOCK.LOG HELP")).iter().map(text_of).collect();
    for name in ["GET [<count>]", "LEN", "RESET", "HELP"] {
        assert!(help.iter().any(|line| line == name), "{name}: {help:?}");
    }
}

#[test]
fn the_log_keeps_the_last_entries() {
    let (_server, mut client) = Server::start().with_client();
    fill(&mut client, 200);
    assert_eq!(ids(&mut client, "DLOCK.LOG GET -1"), (72..200).rev().collect::<Vec<_>>());
    // A smaller length trims at once: a larger one brings nothing back.
    client.ok("CONFIG SET dlock.log-max-len 3");
    client.ok("CONFIG SET dlock.log-max-len 1000");
    assert_eq!(ids(&mut client, "DLOCK.LOG GET -1"), [199, 198, 197]);
    fill(&mut client, 2);
    assert_eq!(client.int("DLOCK.LOG LEN"), 5);
    client.ok("CONFIG SET dlock.log-max-len 0");
    assert_eq!(client.int("DLOCK.LOG LEN"), 0);
    fill(&mut client, 2);
    client.int("DLOCK.ACQUIRE k a");
    client.int("DEL k");
    assert_eq!(client.int("DLOCK.LOG LEN"), 0);
}

#[test]
fn the_settings_of_the_log_have_their_defaults_and_ranges() {
    let (_server, mut client) = Server::start().with_client();
    for (name, default, low, high) in
        [("log-max-len", 128, 0, 100_000), ("log-wait", 1000, -1, 3_600_000), ("log-hold", -1, -1, 31_536_000_000_i64)]
    {
        let get = format!("CONFIG GET dlock.{name}");
        assert_eq!(text_of(&list_of(&client.run(&get))[1]), default.to_string(), "{name}");
        for good in [low, high] {
            client.ok(format!("CONFIG SET dlock.{name} {good}"));
            assert_eq!(text_of(&list_of(&client.run(&get))[1]), good.to_string(), "{name}");
        }
        for bad in [low - 1, high + 1] {
            client.error(format!("CONFIG SET dlock.{name} {bad}"));
        }
    }
    let (_server, mut client) = Setup::new().module_args("log-hold 0 log-wait -1 log-max-len 7").start().with_client();
    fill(&mut client, 9);
    assert_eq!(client.int("DLOCK.LOG LEN"), 7);
}

#[test]
fn the_log_is_for_administrators() {
    let (server, mut admin) = Server::start().with_client();
    let version = Version::of(&mut admin);
    let info = list_of(&list_of(&admin.run("COMMAND INFO dlock.log"))[0]);
    assert_eq!(info[3..6].iter().map(int_of).collect::<Vec<_>>(), [0; 3], "it has no key");
    if version.puts_module_commands_in_categories() {
        let categories: BTreeSet<_> = list_of(&info[6]).iter().map(text_of).collect();
        assert_eq!(categories, ["@admin", "@dangerous", "@slow"].map(str::to_owned).into());
    }
    let mut user = server.client();
    let categories = version.has_module_categories();
    let mut may = |rules: &str, request: &str| {
        admin.ok(format!("ACL SETUSER probe reset on nopass ~* {rules}"));
        user.ok("AUTH probe x");
        match user.attempt(request) {
            Ok(_) => true,
            Err(error) => {
                assert!(error.starts_with("NOPERM "), "{rules}: {request}: {error}");
                false
            }
        }
    };
    for request in ["DLOCK.LOG GET", "DLOCK.LOG LEN", "DLOCK.LOG RESET", "DLOCK.LOG HELP"] {
        assert!(may("+@all", request), "{request}");
        assert!(!may("+@all -@dangerous", request), "{request}");
        assert!(!may("+@all -@admin", request), "{request}");
        assert!(!may("+@all -dlock.log", request), "{request}");
        assert!(!may("-@all +dlock.acquire", request), "{request}");
        // With categories, the rule about the command is enough; without, the server's own log decides, too.
        assert_eq!(may("-@all +dlock.log", request), categories, "{request}");
        assert!(may("-@all +dlock.log +slowlog", request), "{request}");
    }
    if version.has_module_categories() {
        assert!(!may("-@all +@dlock", "DLOCK.LOG LEN"));
    }
}

#[test]
fn another_module_can_read_the_log_wherever_it_calls() {
    let (_server, mut client) = Setup::new().hooks().start().with_client();
    let version = Version::of(&mut client);
    for request in ["GET", "LEN", "RESET", "HELP"] {
        let call = format!("DLOCK.CALL DLOCK.LOG {request}");
        client.run(&call);
        client.run(format!("EVAL return(redis.call('DLOCK.CALL','DLOCK.LOG','{request}')) 0"));
        client.ok("MULTI");
        client.queued(&call);
        let Value::Array(replies) = client.run("EXEC") else { panic!("an array") };
        assert!(!matches!(replies[0], Value::ServerError(_)), "{request}: {replies:?}");
    }
    // A script and a transaction have their client's rights.
    client.ok("ACL SETUSER probe on nopass ~* +@all -slowlog");
    client.ok("AUTH probe x");
    client.ok("MULTI");
    client.queued("DLOCK.LOG LEN");
    let replies = format!("{:?}", client.run("EXEC"));
    assert_eq!(replies.contains("SLOWLOG"), !version.has_module_categories(), "{replies}");
    let script = client.attempt("EVAL return(redis.call('DLOCK.LOG','LEN')) 0");
    assert_eq!(script.is_err(), !version.has_module_categories(), "{script:?}");
}

#[test]
fn a_script_and_a_transaction_can_read_the_log() {
    let (_server, mut client) = Server::start().with_client();
    fill(&mut client, 2);
    assert_eq!(client.int("EVAL return(redis.call('dlock.log','len')) 0"), 2);
    client.ok("MULTI");
    client.queued("DLOCK.LOG LEN");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::Int(2)]));
}

/// The percentiles of a field of `INFO dlock`, in µs.
#[track_caller]
fn percentiles(client: &mut Client, field: &str) -> [f64; 3] {
    let text = info_field(client, "dlock", field).expect("the field");
    let names: Vec<_> = text.split(',').map(|part| part.split_once('=').expect("a value")).collect();
    assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["p50", "p99", "p99.9"], "{text}");
    let values = names.iter().map(|(_, value)| {
        assert_eq!(value.split_once('.').expect("decimals").1.len(), 3, "{text}");
        value.parse::<f64>().expect("a number")
    });
    values.collect::<Vec<_>>().try_into().expect("three")
}

#[test]
fn info_shows_percentiles_of_waits_and_holds() {
    let (server, mut client) = Server::start().with_client();
    assert_eq!(percentiles(&mut client, "dlock_wait_usec"), [0.0; 3]);
    assert_eq!(percentiles(&mut client, "dlock_hold_usec"), [0.0; 3]);
    client.int("DLOCK.ACQUIRE k a");
    let begin = client.now();
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 600000");
    client.pass(begin + 60);
    client.int("DLOCK.RELEASE k a");
    waiter.granted();
    let longest: f64 = info_field(&mut client, "dlock", "dlock_wait_usec_max").unwrap().parse().unwrap();
    for (field, least) in [("dlock_wait_usec", longest), ("dlock_hold_usec", 60_000.0)] {
        for shown in percentiles(&mut client, field) {
            assert!(shown >= least * 0.95, "{field}: {shown}, not {least}");
        }
    }
    let [p50, ..] = percentiles(&mut client, "dlock_wait_usec");
    assert!((p50 - longest).abs() <= longest * 0.05, "{p50}, not {longest}");
    server.waiter("DLOCK.ACQUIRE k c BLOCK 5").gives_up();
    assert_eq!(percentiles(&mut client, "dlock_wait_usec"), [p50; 3], "a wait without a grant does not count");
}

#[test]
fn holds_count_when_they_are_released_or_lapse() {
    let (_server, mut client) = Server::start().with_client();
    // Each end adds a hold of 100 ms or more, which then is the highest percentile.
    let long = |client: &mut Client| percentiles(client, "dlock_hold_usec")[2] >= 95_000.0;
    client.int("DLOCK.ACQUIRE deleted a");
    client.int("DLOCK.RACQUIRE twice a");
    client.int("DLOCK.RACQUIRE twice a");
    let now = client.now();
    client.pass(now + 110);
    client.int("DEL deleted");
    client.int("DLOCK.RELEASE twice a");
    assert_eq!(percentiles(&mut client, "dlock_hold_usec"), [0.0; 3], "neither was released in full nor lapsed");
    client.int("DLOCK.RELEASE twice a");
    assert!(long(&mut client), "a release");
    for end in ["session", "lapse"] {
        let (_server, [mut client, mut session]) = Server::start().with_clients();
        if end == "session" {
            session.int("DLOCK.ACQUIRE k a SESSION");
            client.pass_ms(110);
            client.watch_close(session);
        } else {
            session.int("DLOCK.ACQUIRE k a PX 100");
        }
        crate::support::soon(end, || long(&mut client));
    }
}

/// The log has the default length: 128 entries.
#[test]
fn a_user_pushes_out_no_entry_about_the_keys_of_others() {
    let (server, mut admin) = Server::start().with_client();
    admin.ok("ACL SETUSER tenant on nopass ~tenant:* +dlock.acquire +dlock.racquire +dlock.release +del");
    let others: Vec<String> = (0..20).map(|number| format!("other{number}")).collect();
    for key in &others {
        admin.int(format!("DLOCK.ACQUIRE {key} o PX 600000"));
        admin.int(format!("DEL {key}"));
    }
    let mut tenant = server.client();
    tenant.ok("AUTH tenant x");
    tenant.int("DLOCK.ACQUIRE tenant:k a PX 3600000");
    let deadlocks = vec!["DLOCK.ACQUIRE tenant:k a BLOCK 1".to_owned(); 2000];
    let deletes = (0..1000).flat_map(|n| [format!("DLOCK.ACQUIRE tenant:{n} a PX 3600000"), format!("DEL tenant:{n}")]);
    for requests in [deadlocks, deletes.collect()] {
        tenant.pipeline(&requests);
        let left: Vec<String> = log(&mut admin).iter().map(|entry| entry.text("key")).collect();
        assert_eq!(left.len(), 128);
        assert!(others.iter().all(|key| left.contains(key)), "{left:?}");
    }
}
