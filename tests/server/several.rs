//! Several locks at once: `DLOCK.MACQUIRE` takes all of them, or none.

use std::collections::BTreeSet;

use redis::{Cmd, Value};

use crate::support::replica::counter;
use crate::support::story::story;
use crate::support::{Client, Server, int_of, list_of, lock_info, req, text_of};

/// Returns the holders of these keys, a word for each key: `-` if nobody holds it, `a+b` for two readers.
#[track_caller]
pub fn owners(server: &Server, keys: &str) -> String {
    let owner = |key: &str| match server.holders(key).as_slice() {
        [] => "-".to_owned(),
        holders => holders.join("+"),
    };
    keys.split(' ').map(owner).collect::<Vec<_>>().join(" ")
}

#[test]
fn all_or_none() {
    let server = Server::start();
    story(
        &mut server.client(),
        "MACQUIRE 3 x y z a       -> t1
         INFO x                   -> mode=exclusive holders=1 count=1 token=t1
         INFO y                   -> mode=exclusive holders=1 count=1 token=t1
         INFO z                   -> mode=exclusive holders=1 count=1 token=t1
         MACQUIRE 2 w x b         -> nil
         EXISTS w                 -> 0
         MACQUIRE 2 z w b         -> nil
         EXISTS w                 -> 0
         RELEASE x a              -> 1
         MACQUIRE 2 w x b         -> t2
         INFO w                   -> token=t2 holders=1
         INFO y                   -> token=t1 holders=1
         # Readers are in the way, too.
         RLOCK r c                -> t3
         MACQUIRE 2 r s b         -> nil
         # A request for a single key works, too.
         MACQUIRE 1 s b           -> t4
         MACQUIRE 1 s c           -> nil",
    );
    assert_eq!(owners(&server, "w x y z"), "b b a a");
}

#[test]
fn every_hold_has_the_same_token_lease_and_session() {
    let (server, mut session) = Server::start().with_client();
    let token = session.leaves("x", 5000, "DLOCK.MACQUIRE 3 x y z a PX 5000 SESSION");
    let ends: BTreeSet<_> = ["x", "y", "z"].iter().map(|key| session.end_of(key)).collect();
    assert_eq!(ends.len(), 1, "one deadline");
    let id = session.id();
    for key in ["x", "y", "z"] {
        assert_eq!(session.session_of(key, "a", "exclusive"), Some(id));
        assert!(session.int(format!("DLOCK.CHECK {key} {token}")) > 0);
    }
    assert_eq!(session.int(format!("DLOCK.RENEW x a PX 9000 TOKEN {token}")), 1);
    assert_eq!(session.int(format!("DLOCK.RELEASE y a TOKEN {token}")), 1);
    session.nil(format!("DLOCK.RELEASE y a TOKEN {token}"));
    assert!(session.end_of("x") > session.end_of("z"), "the renewal of x does not move z");
    let mut client = server.client();
    // Holds are counted: x and z.
    assert_eq!(counter(&mut client, "sessions"), 2);
    client.watch_close(session);
    assert_eq!(owners(&server, "x y z"), "- - -");
    assert_eq!(counter(&mut client, "session_ends"), 2);
}

#[test]
fn a_session_keeps_all_of_them_alive() {
    let (_server, mut session) = Server::start().with_client();
    let token = session.int("DLOCK.MACQUIRE 3 x y z a PX 1200 SESSION");
    session.pass_ms(3000);
    for key in ["x", "y", "z"] {
        assert!(session.int(format!("DLOCK.CHECK {key} {token}")) > 0, "{key}");
    }
}

#[test]
fn macquire_is_not_reentrant() {
    let (server, mut client) = Server::start().with_client();
    for (command, rest) in [("ACQUIRE", ""), ("RLOCK", ""), ("SACQUIRE", " 5"), ("MACQUIRE 1", "")] {
        client.ok("FLUSHALL");
        client.int(format!("DLOCK.{command} y a{rest} PX 60000"));
        client.nil("DLOCK.MACQUIRE 3 x y z a");
        let error = client.error("DLOCK.MACQUIRE 3 x y z a BLOCK 0");
        assert!(error.starts_with("DEADLOCK "), "{command}: {error}");
        assert_eq!(owners(&server, "x y z"), "- a -", "{command}");
    }
    // The owner re-enters one of the locks by another command, as usual.
    client.ok("FLUSHALL");
    let token = client.int("DLOCK.MACQUIRE 2 x y a");
    assert_eq!(client.int("DLOCK.RACQUIRE x a"), token);
    assert_eq!(client.int("DLOCK.RELEASE x a"), 0);
    client.nil("DLOCK.ACQUIRE x a");
}

#[test]
fn if_one_key_goes_the_others_stay() {
    for act in ["DEL y", "UNLINK y", "RENAME y renamed", "MOVE y 1", "PEXPIRE y -1", "SET y v", "DLOCK.RELEASE y a"] {
        let (server, mut client) = Server::start().with_client();
        let token = client.int("DLOCK.MACQUIRE 3 x y z a PX 60000");
        client.run(act);
        assert_eq!((server.holders("x"), server.holders("z")), (vec!["a".into()], vec!["a".to_owned()]), "{act}");
        for key in ["x", "z"] {
            assert_eq!(client.int(format!("DLOCK.RENEW {key} a TOKEN {token}")), 1, "{act}");
            assert_eq!(client.int(format!("DLOCK.RELEASE {key} a TOKEN {token}")), 1, "{act}");
        }
    }
}

#[test]
fn another_type_under_one_key_changes_nothing() {
    let (server, mut client) = Server::start().with_client();
    for at in ["x", "y", "z"] {
        client.ok("FLUSHALL");
        client.ok(format!("SET {at} v"));
        for block in ["", " BLOCK 0"] {
            let error = client.error(format!("DLOCK.MACQUIRE 3 x y z a{block}"));
            assert!(error.starts_with("WRONGTYPE "), "{at}: {error}");
        }
        assert_eq!((client.text(format!("GET {at}")), client.int("DBSIZE")), ("v".to_owned(), 1));
        // The type is reported before the deadlock.
        let held = if at == "x" { "y" } else { "x" };
        client.int(format!("DLOCK.ACQUIRE {held} a"));
        assert!(client.error("DLOCK.MACQUIRE 3 x y z a BLOCK 0").starts_with("WRONGTYPE "));
    }
    assert_eq!(server.waiting(), 0);
}

#[test]
fn replies_are_those_of_acquire() {
    let server = Server::start();
    let (mut two, mut three) = (server.client(), server.client().resp3());
    for client in [&mut two, &mut three] {
        assert!(client.exact("DLOCK.MACQUIRE 2 x y a").starts_with(b":"));
        let reply = list_of(&client.run("DLOCK.MACQUIRE 2 v w *"));
        assert_eq!(text_of(&reply[0]).len(), 36);
        for key in ["v", "w"] {
            let info = lock_info(client, &format!("{key} FULL")).unwrap();
            assert_eq!((info.token, info.holds()[0].owner.clone()), (int_of(&reply[1]), text_of(&reply[0]).into()));
        }
        client.ok("FLUSHALL");
    }
    two.int("DLOCK.ACQUIRE y b");
    assert_eq!(two.exact("DLOCK.MACQUIRE 2 x y a"), b"$-1\r\n");
    assert_eq!(three.exact("DLOCK.MACQUIRE 2 x y a"), b"_\r\n");
    assert_eq!(two.exact("DLOCK.MACQUIRE 2 x y a BLOCK 1"), b"$-1\r\n");
    assert_eq!(three.exact("DLOCK.MACQUIRE 2 x y a BLOCK 1"), b"_\r\n");
    assert!(three.exact("DLOCK.MACQUIRE 2 x x a").starts_with(b"-ERR "));
}

#[test]
fn sixty_four_keys_of_any_bytes() {
    let (_server, mut client) = Server::start().with_client();
    let request = |count: usize| {
        let mut request = req!["DLOCK.MACQUIRE", count];
        (0..count).for_each(|n| {
            request.arg(vec![n as u8; n + 1]);
        });
        request.arg(b"own\0er").arg("PX").arg(60000).to_owned()
    };
    let token = client.int(request(64));
    assert_eq!(client.int("DBSIZE"), 64);
    assert_eq!(counter(&mut client, "grants"), 64, "each hold counts");
    assert_eq!(client.int(req!["DLOCK.RELEASE", &[63_u8; 64], b"own\0er", "TOKEN", token]), 1);
    assert_eq!(client.error(request(65)), "ERR numkeys can't be greater than 64");
}

const INTEGER: &str = "ERR value is not an integer or out of range";
const NONE: &str = "ERR numkeys should be greater than 0";
const ROOM: &str = "ERR Number of keys can't be greater than number of args";

#[test]
fn the_number_of_keys_is_read_as_the_server_reads_it() {
    let (server, mut client) = Server::start().with_client();
    for (request, text) in [
        ("0 x a", NONE),
        ("-1 x a", NONE),
        ("+2 x y a", INTEGER),
        ("02 x y a", INTEGER),
        ("2.0 x y a", INTEGER),
        ("two x y a", INTEGER),
        ("0x2 x y a", INTEGER),
        ("9223372036854775808 x y a", INTEGER),
        ("9223372036854775807 x y a", ROOM),
        ("2 x y", ROOM),
        ("3 x y a", ROOM),
        ("65 x y a", ROOM),
        ("2 x x a", "ERR a key is given twice: 'x'"),
        ("3 x y x a", "ERR a key is given twice: 'x'"),
        ("2 x y a b", "ERR syntax error: unknown option 'b'"),
        ("2 x y a BLOCK", "ERR syntax error: BLOCK needs a value"),
        ("2 x y a BLOCK -1", "ERR timeout is negative"),
        ("2 x y a PX 0", "ERR invalid expire time in 'dlock.macquire' command"),
        ("2 x y a PX 100 SESSION", "ERR SESSION needs a lease of at least 300 ms"),
        (&format!("2 x y a PXAT {} SESSION", client.now() + 60_000), "ERR syntax error: SESSION and PXAT"),
        ("2 x y * REQUEST r", "ERR REQUEST cannot be combined with owner '*'"),
        ("1", "ERR wrong number of arguments for 'dlock.macquire' command"),
        ("1 x", "ERR wrong number of arguments for 'dlock.macquire' command"),
    ] {
        let error = client.error(format!("DLOCK.MACQUIRE {request}"));
        assert!(error.starts_with(text), "{request}: {error}");
    }
    for bytes in [b"".as_slice(), b" 2", b"2 ", b"2\0"] {
        assert_eq!(
            client.error([b"DLOCK.MACQUIRE".as_slice(), bytes, b"x", b"y", b"a"]),
            format!("{INTEGER}: numkeys")
        );
    }
    let owner = vec![b'o'; 1025];
    let error = client.error([b"DLOCK.MACQUIRE".as_slice(), b"1", b"x", &owner]);
    assert_eq!(error, "ERR owner must have 1 to 1024 bytes");
    assert_eq!((client.int("DBSIZE"), server.waiting()), (0, 0));
}

/// Returns the answer of `COMMAND GETKEYS`: nothing if the server finds no keys.
fn keys_of(client: &mut Client, request: &str) -> Option<Vec<String>> {
    let keys = client.attempt(format!("COMMAND GETKEYS DLOCK.MACQUIRE {request}")).ok()?;
    Some(list_of(&keys).iter().map(text_of).collect())
}

#[test]
fn the_server_finds_every_key_of_a_request_that_is_carried_out() {
    let (_server, mut client) = Server::start().with_client();
    for (request, keys) in [("1 x a", "x"), ("3 x y z a PX 5", "x y z"), ("2 x y a BLOCK 1 REQUEST r", "x y")] {
        assert_eq!(keys_of(&mut client, request).unwrap().join(" "), keys);
        let found = list_of(&client.run(format!("COMMAND GETKEYSANDFLAGS DLOCK.MACQUIRE {request}")));
        for pair in found {
            let flags: Vec<_> = list_of(&list_of(&pair)[1]).iter().map(text_of).collect();
            assert!(["RW", "access"].iter().all(|flag| flags.contains(&(*flag).to_owned())), "{flags:?}");
        }
    }
    // The module refuses a number of keys that the server cannot read and so cannot check.
    for request in ["+2 x y a", "02 x y a", "0 x a", "-1 x a", "3 x y", "2.0 x y a", "9 x y a"] {
        assert_eq!(keys_of(&mut client, request), None, "{request}");
        assert!(client.error(format!("DLOCK.MACQUIRE {request}")).starts_with("ERR "), "{request}");
    }
    assert_eq!(client.int("DBSIZE"), 0);
}

#[test]
fn permission_is_needed_for_every_key() {
    let (server, mut admin) = Server::start().with_client();
    admin.ok("ACL SETUSER worker on >secret ~job:* +dlock.macquire");
    admin.ok("ACL SETUSER reader on >secret %R~* %RW~job:* +dlock.macquire");
    for user in ["worker", "reader"] {
        let mut client = server.client();
        client.ok(format!("AUTH {user} secret"));
        for request in [
            "2 job:1 other a",
            "2 other job:1 a",
            "1 other a",
            "3 job:1 job:2 other a BLOCK 0",
            // The next requests must not slip through because the server finds no keys in them.
            "+1 other a",
            "01 other a",
            "2 other a",
            "0 other a",
            "99 other a",
        ] {
            let error = client.error(format!("DLOCK.MACQUIRE {request}"));
            assert!(error.starts_with("NOPERM ") || error.starts_with("ERR "), "{user}, {request}: {error}");
        }
        assert_eq!(admin.int("DBSIZE"), 0, "{user}");
        client.int("DLOCK.MACQUIRE 2 job:1 job:2 a");
        admin.ok("FLUSHALL");
        // The owner is no key.
        client.int("DLOCK.MACQUIRE 1 job:1 other");
        admin.ok("FLUSHALL");
    }
}

#[test]
fn the_commands_of_a_transaction_or_script_do_not_wait() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE y b PX 60000");
    client.ok("MULTI");
    for request in ["MACQUIRE 2 x y a BLOCK 0", "RELEASE y b", "MACQUIRE 2 x y a BLOCK 0", "MACQUIRE 2 y z a BLOCK 0"] {
        client.text(format!("DLOCK.{request}"));
    }
    let replies = list_of(&client.run("EXEC"));
    assert_eq!((&replies[0], &replies[1]), (&Value::Nil, &Value::Int(1)));
    assert!(int_of(&replies[2]) > 0);
    assert!(matches!(&replies[3], Value::Nil), "BLOCK is ignored, so nil and no DEADLOCK: {replies:?}");
    let script = |body: &str, keys: &[&str]| -> Cmd {
        let mut request = req!["EVAL", body, keys.len()];
        keys.iter().for_each(|key| {
            request.arg(*key);
        });
        request
    };
    let take = "return redis.call('DLOCK.MACQUIRE', #KEYS, KEYS[1], KEYS[2], 'c', 'BLOCK', 0)";
    client.nil(script(take, &["y", "w"]));
    assert!(client.int(script(take, &["v", "w"])) > 0);
    let error = client.error(script("return redis.call('DLOCK.MACQUIRE', 1, KEYS[1], 'd', 'SESSION')", &["s"]));
    assert!(error.contains("SESSION needs a client connection"), "{error}");
    assert_eq!(owners(&server, "v w x y z s"), "c c a a - -");
    // All are released in one transaction.
    client.ok("MULTI");
    client.text("DLOCK.RELEASE x a");
    client.text("DLOCK.RELEASE y a");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::Int(1), Value::Int(1)]));
}

#[test]
fn a_transaction_with_a_release_hands_over_to_a_waiter_for_all() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.MACQUIRE 2 x y a PX 60000");
    let mut waiter = server.waiter("DLOCK.MACQUIRE 2 x y b BLOCK 0");
    client.ok("MULTI");
    for request in ["RELEASE x a", "ACQUIRE x c", "RELEASE y a", "ACQUIRE x c", "ACQUIRE y c"] {
        client.text(format!("DLOCK.{request}"));
    }
    let replies = list_of(&client.run("EXEC"));
    assert_eq!(replies, [Value::Int(1), Value::Nil, Value::Int(1), Value::Nil, Value::Nil]);
    waiter.granted();
}

#[test]
fn a_replica_takes_none() {
    let (_server, replica) = Server::start().with_replica();
    let mut client = replica.client();
    for read_only in ["yes", "no"] {
        client.ok(format!("CONFIG SET replica-read-only {read_only}"));
        assert!(client.error("DLOCK.MACQUIRE 2 x y a").starts_with("READONLY "));
    }
    assert_eq!(client.int("DBSIZE"), 0);
}

#[test]
fn one_request_counts_once_and_each_hold_is_a_grant() {
    let (_server, mut client) = Server::start().with_client();
    let count = |client: &mut Client| ["grants", "refusals", "deadlocks", "waits"].map(|name| counter(client, name));
    client.int("DLOCK.MACQUIRE 4 w x y z a");
    assert_eq!(count(&mut client), [4, 0, 0, 0]);
    client.nil("DLOCK.MACQUIRE 3 x y z b");
    assert_eq!(count(&mut client), [4, 1, 0, 0]);
    client.error("DLOCK.MACQUIRE 3 x y z a BLOCK 0");
    assert_eq!(count(&mut client), [4, 1, 1, 0]);
    client.nil("DLOCK.MACQUIRE 3 x y z b BLOCK 5");
    assert_eq!(count(&mut client), [4, 1, 1, 1]);
    assert_eq!(counter(&mut client, "wait_timeouts"), 1);
    for key in ["w", "x", "y", "z"] {
        client.int(format!("DLOCK.RELEASE {key} a"));
    }
    assert_eq!(counter(&mut client, "releases"), 4);
}

#[test]
fn events_are_sent_for_each_key() {
    let (server, mut client) = Server::conf("notify-keyspace-events Ed").with_client();
    let mut listener = server.client().resp3();
    listener.send("PSUBSCRIBE __keyevent@0__:*");
    listener.push(crate::support::wait::PATIENCE).expect("subscribed");
    client.int("DLOCK.MACQUIRE 2 x y a PX 60000");
    let mut waiter = server.waiter("DLOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
    client.int("DLOCK.RELEASE x a");
    client.int("DLOCK.RELEASE y a");
    waiter.granted();
    let mut seen = Vec::new();
    while seen.len() < 8 {
        let push = list_of(&listener.push(crate::support::wait::PATIENCE).expect("an event"));
        let [event, key] = [1, 2].map(|at| text_of(&push[at]));
        seen.push(format!("{} {key}", event.rsplit(':').next().expect("a name")));
    }
    let both = |event: &str| [format!("{event} x"), format!("{event} y")];
    assert_eq!(seen[..4], [both("dlock.acquire"), both("dlock.wait")].concat());
    assert_eq!(seen[4..6], both("dlock.release"));
    assert_eq!(seen[6..], both("dlock.acquire"));
}
