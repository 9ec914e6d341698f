//! Every malformed command gets one clear error and changes nothing.

mod cases;
mod session_and_request;

use redis::Value;

use self::cases::{ACQUIRING, Case, Says, acquiring, case, check, info, release, renew, with_owner};
use crate::commands::{COMMANDS, Kind, with_key};
use crate::support::replica::info_field;
use crate::support::{Client, Server, Setup, bytes_of, req, text_of};

/// Everything that a command could have changed.
#[track_caller]
fn snapshot(client: &mut Client) -> Vec<Value> {
    let requests =
        ["DUMP held", "PEXPIRETIME held", "DUMP shared", "PEXPIRETIME shared", "DUMP text", "DBSIZE", "INFO dlock"];
    client.pipeline(&requests).into_iter().map(|reply| reply.expect("an answer")).collect()
}

/// A lock held in both modes, one held by a reader, and a string.
fn holding(setup: Setup) -> (Server, Client) {
    let (server, mut client) = setup.start().with_client();
    for request in ["WLOCK held a PX 900000", "WLOCK held a", "RLOCK held a PX 800000", "RLOCK shared a PX 900000"] {
        client.int(format!("DLOCK.{request}"));
    }
    client.ok("SET text v");
    (server, client)
}

/// Sends each case about each key, and expects exactly one error, the right one, and no change.
#[track_caller]
fn refuse(client: &mut Client, command: &str, cases: &[Case]) {
    assert!(cases.len() > 3);
    let before = snapshot(client);
    for (words, says) in cases {
        for key in ["held", "shared", "none", "text"] {
            let mut request = req![format!("DLOCK.{command}"), key];
            words.iter().for_each(|word| {
                request.arg(word);
            });
            let shown = words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
            let shown = format!("DLOCK.{command} {key} {}", &shown[..shown.len().min(200)]);
            let error = client.attempt(request).expect_err(&shown);
            assert!(says.fits(command, &error), "{shown}\n   {error}, expected {says:?}");
            assert_eq!(client.text("PING"), "PONG", "one reply: {shown}");
            assert_eq!(snapshot(client), before, "{shown}");
        }
    }
}

#[test]
fn malformed_acquisitions_change_nothing() {
    let (_server, mut client) = holding(Setup::new());
    let now = client.now();
    for command in ACQUIRING {
        refuse(&mut client, command, &acquiring(now));
    }
}

#[test]
fn malformed_releases_change_nothing() {
    let (_server, mut client) = holding(Setup::new());
    refuse(&mut client, "RELEASE", &release());
}

#[test]
fn malformed_renewals_change_nothing() {
    let (_server, mut client) = holding(Setup::new());
    let now = client.now();
    refuse(&mut client, "RENEW", &renew(now));
}

#[test]
fn malformed_questions_change_nothing() {
    let (_server, mut client) = holding(Setup::new());
    refuse(&mut client, "CHECK", &check());
    refuse(&mut client, "INFO", &info());
}

#[test]
fn a_mistake_in_a_command_changes_nothing() {
    let (_server, mut client) = holding(Setup::new());
    let mut before = snapshot(&mut client);
    let mut refused = 0;
    for mistake in COMMANDS.iter().flat_map(|command| command.mistakes()) {
        let done = client.attempt(&mistake);
        let after = snapshot(&mut client);
        match done {
            // `INFO` counts the error.
            Err(error) if error.starts_with("DEADLOCK ") => {}
            Err(_) => {
                assert_eq!(after, before, "{mistake}");
                refused += 1;
            }
            // The call is a mistake only beside the locks of `docs/errors.rs`.
            Ok(_) => {}
        }
        before = after;
    }
    assert!(refused > 40, "{refused}");
}

#[test]
fn a_command_without_a_key_is_an_error() {
    let (_server, mut client) = holding(Setup::new());
    for command in COMMANDS.iter().filter(|command| command.kind != Kind::Keyless).map(|command| command.name) {
        let error = client.error(format!("DLOCK.{command}"));
        assert!(Says::Arity.fits(command, &error), "{error}");
    }
}

#[test]
fn a_lease_beyond_the_configured_maximum_is_an_error() {
    let (_server, mut client) = holding(Setup::new());
    client.ok("CONFIG SET dlock.max-lease 5000");
    let now = client.now();
    let leases: Vec<Case> = ["PX 5001".to_owned(), "EX 6".to_owned(), format!("PXAT {}", now + 60_000)]
        .into_iter()
        .chain([format!("EXAT {}", now / 1000 + 60)])
        .map(|lease| case(&lease, Says::TooLong))
        .collect();
    for command in ACQUIRING.iter().chain(&["RENEW"]) {
        refuse(&mut client, command, &with_owner(leases.clone()));
    }
    for command in ACQUIRING {
        client.int(format!("DLOCK.{command} {command} a PX 5000"));
        assert_eq!(client.int(format!("DLOCK.RENEW {command} a EX 5")), 1);
    }
}

#[test]
fn a_key_of_another_type_is_left_as_it_was() {
    let (_server, mut client) = Server::start().with_client();
    for (key, write) in [
        ("string", "SET string v"),
        ("number", "SET number 1"),
        ("list", "RPUSH list v"),
        ("hash", "HSET hash f v"),
        ("set", "SADD set v"),
        ("zset", "ZADD zset 1 v"),
        ("stream", "XADD stream * f v"),
    ] {
        client.run(write);
        client.int(format!("PEXPIRE {key} 900000"));
        let before = [client.run(format!("DUMP {key}")), client.run(format!("PEXPIRETIME {key}"))];
        let more = ["ACQUIRE k *", "RELEASE k a TOKEN 5", "RENEW k a MINTOKEN 5"];
        let more = more.map(|rest| format!("DLOCK.{}", rest.replacen(" k", &format!(" {key}"), 1)));
        for request in with_key().flat_map(|command| command.calls(key)).chain(more) {
            let error = client.error(&request);
            assert_eq!(error, "WRONGTYPE Operation against a key holding the wrong kind of value", "{request}");
            assert_eq!(
                [client.run(format!("DUMP {key}")), client.run(format!("PEXPIRETIME {key}"))],
                before,
                "{request}"
            );
        }
    }
}

#[test]
fn effects_are_not_for_clients() {
    let (server, mut client) = holding(Setup::new().conf("appendonly yes\nappendfsync always"));
    let effects: Vec<_> = server.aof().into_iter().filter(|command| command[0] == b"DLOCK.APPLY").collect();
    assert!(effects.len() >= 4, "the module's own effects: {effects:?}");
    let before = snapshot(&mut client);
    for effect in &effects {
        let error = client.error(effect);
        assert!(error.starts_with("NOPERM "), "{error}");
        // A transaction changes nothing about that.
        client.ok("MULTI");
        client.run(effect);
        let Value::Array(replies) = client.run("EXEC") else { panic!("an array") };
        assert!(format!("{replies:?}").to_uppercase().contains("NOPERM"), "{replies:?}");
        // From a script the server refuses it.
        let mut script = req!["EVAL", "return redis.call(unpack(ARGV))", 0];
        effect.iter().for_each(|word| {
            script.arg(word);
        });
        client.error(script);
        assert_eq!(snapshot(&mut client), before);
    }
    for garbage in ["DLOCK.APPLY held x", "DLOCK.APPLY none x", "DLOCK.APPLY held a b c d e f g"] {
        let error = client.error(garbage);
        assert!(error.starts_with("NOPERM ") || Says::Arity.fits("APPLY", &error), "{error}");
    }
    assert_eq!(snapshot(&mut client), before);
}

#[test]
fn a_bad_command_in_a_transaction_leaves_the_others_alone() {
    let (_server, mut client) = holding(Setup::new());
    client.ok("MULTI");
    for request in
        ["DLOCK.ACQUIRE new b", "DLOCK.ACQUIRE held b PX 0", "DLOCK.RELEASE held a", "DLOCK.RELEASE held a READ"]
    {
        assert_eq!(client.text(request), "QUEUED");
    }
    let Value::Array(replies) = client.run("EXEC") else { panic!("an array") };
    assert!(matches!(replies[0], Value::Int(_)));
    assert!(matches!(replies[1], Value::ServerError(_)));
    assert!(matches!(&replies[2], Value::ServerError(error) if error.code() == "AMBIGUOUS"));
    assert_eq!(replies[3], Value::Int(1));
}

#[test]
fn errors_are_not_counted_as_refusals() {
    let (_server, mut client) = holding(Setup::new());
    let refusals = info_field(&mut client, "dlock", "dlock_refusals");
    client.error("DLOCK.ACQUIRE held b PX 0");
    client.error("DLOCK.ACQUIRE text b");
    assert_eq!(info_field(&mut client, "dlock", "dlock_refusals"), refusals);
    assert!(!bytes_of(&client.run("DUMP held")).is_empty());
    assert_eq!(text_of(&client.run("GET text")), "v");
}
