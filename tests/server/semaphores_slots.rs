//! Numbers of permits: `SLOT`.

use redis::Value;

use crate::support::payload::{body, seal};
use crate::support::{Client, Server, int_of, list_of, lock_info, req, text_of};

/// Returns the parts of the reply to a grant: the token and the number.
#[track_caller]
fn numbered(reply: &Value) -> (i64, i64) {
    let parts = list_of(reply);
    assert_eq!(parts.len(), 2, "{parts:?}");
    (int_of(&parts[0]), int_of(&parts[1]))
}

/// Takes a permit, and returns its number.
#[track_caller]
fn slot(client: &mut Client, key: &str, owner: &str) -> i64 {
    numbered(&client.run(format!("DLOCK.SACQUIRE {key} {owner} 8 SLOT PX 600000"))).1
}

/// Returns the owner and the number of each hold.
#[track_caller]
fn shown(client: &mut Client, key: &str) -> Vec<(String, Option<i64>)> {
    let info = lock_info(client, &format!("{key} FULL COUNT 0")).expect("holds");
    let holds = info.holds().iter();
    holds.map(|hold| (String::from_utf8_lossy(&hold.owner).into_owned(), hold.slot)).collect()
}

#[test]
fn the_reply_has_the_number_behind_the_token() {
    let server = Server::start();
    for mut client in [server.client(), server.client().resp3()] {
        client.ok("FLUSHALL");
        let (token, slot) = numbered(&client.run("DLOCK.SACQUIRE k a 3 SLOT PX 600000"));
        assert_eq!((slot, client.int(format!("DLOCK.CHECK k {token}")) > 0), (0, true));
        // The owner that the server made up is a UUID, of 36 characters.
        let drawn = list_of(&client.run("DLOCK.SACQUIRE k * 3 slot PX 600000"));
        assert_eq!((drawn.len(), text_of(&drawn[0]).len(), int_of(&drawn[2])), (3, 36, 1), "{drawn:?}");
        client.nil("DLOCK.SACQUIRE k c 2 SLOT");
        // A request that has waited gets a reply of the same form.
        let mut waiters = server.waiters(["w", "*"].map(|owner| format!("DLOCK.SACQUIRE k {owner} 2 SLOT BLOCK 0")));
        client.int("DLOCK.RELEASE k a");
        assert_eq!(numbered(&waiters[0].read().expect("a grant")).1, 0);
        client.int(format!("DLOCK.RELEASE k {}", text_of(&drawn[0])));
        let last = list_of(&waiters[1].read().expect("a grant"));
        assert_eq!((last.len(), int_of(&last[2])), (3, 1), "{last:?}");
        assert_eq!(client.int("DLOCK.SACQUIRE k d 3"), client.int("DLOCK.SACQUIRE k d 9"), "the reply is the token");
    }
}

#[test]
fn a_repeat_decides_the_form_of_its_own_reply() {
    let (_server, mut client) = Server::start().with_client();
    let first = client.run("DLOCK.SACQUIRE k a 3 SLOT REQUEST r");
    assert_eq!(client.run("DLOCK.SACQUIRE k a 3 SLOT REQUEST r"), first);
    assert_eq!(client.int("DLOCK.SACQUIRE k a 3 REQUEST r"), numbered(&first).0);
    let plain = client.int("DLOCK.SACQUIRE k b 3 REQUEST r");
    assert_eq!(client.run("DLOCK.SACQUIRE k b 3 SLOT REQUEST r"), Value::Array(vec![Value::Int(plain), Value::Nil]));
    assert_eq!(shown(&mut client, "k"), [("a".to_owned(), Some(0)), ("b".to_owned(), None)]);
}

#[test]
fn an_owner_with_permits_gets_no_number_and_keeps_the_one_it_has() {
    let (server, mut client) = Server::start().with_client();
    assert_eq!((slot(&mut client, "k", "a"), slot(&mut client, "k", "b")), (0, 1));
    client.nil("DLOCK.SACQUIRE k b 8 SLOT");
    assert!(client.error("DLOCK.SACQUIRE k b 8 SLOT BLOCK 0").starts_with("DEADLOCK the owner has a shared hold"));
    client.int("DLOCK.SACQUIRE k b 8 PERMITS 2");
    client.int("DLOCK.RLOCK k b");
    client.int("DLOCK.RELEASE k b PERMITS 3");
    client.int("DLOCK.RELEASE k a");
    client.int("DLOCK.WLOCK k b");
    assert_eq!(shown(&mut client, "k"), [("b".to_owned(), Some(1)), ("b".to_owned(), None)]);
    client.int("DLOCK.RELEASE k b WRITE");
    assert_eq!((slot(&mut client, "k", "c"), slot(&mut client, "k", "d")), (0, 2));
    // The second of two requests of one owner waits for the end of the hold that the first one got.
    client.int("DLOCK.RELEASE k c");
    client.int("DLOCK.RELEASE k d");
    client.int("DLOCK.WLOCK k b");
    let mut waiters = server.waiters(["x", "x"].map(|owner| format!("DLOCK.SACQUIRE k {owner} 8 SLOT BLOCK 0")));
    client.int("DLOCK.RELEASE k b ALL");
    assert_eq!(numbered(&waiters[0].read().expect("a grant")).1, 0);
    waiters[1].waits();
    client.int("DLOCK.RELEASE k x");
    assert_eq!(numbered(&waiters[1].read().expect("a grant")).1, 0);
}

#[test]
fn requests_let_in_together_get_different_numbers() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.WLOCK k writer");
    let owners: Vec<String> = (0..300).map(|owner| format!("o{owner}")).collect();
    let mut waiters =
        server.waiters(owners.iter().map(|owner| format!("DLOCK.SACQUIRE k {owner} 300 SLOT PX 600000 BLOCK 0")));
    client.int("DLOCK.RELEASE k writer");
    let slots: Vec<i64> = waiters.iter_mut().map(|waiter| numbered(&waiter.read().expect("a grant")).1).collect();
    assert_eq!(slots, (0..300).collect::<Vec<_>>(), "in the order of the queue");
}

#[test]
fn transactions_and_scripts_get_numbers() {
    let (_server, mut client) = Server::start().with_client();
    client.ok("MULTI");
    client.queued("DLOCK.SACQUIRE k a 2 SLOT PX 600000");
    client.queued("DLOCK.SACQUIRE k b 2 SLOT PX 600000");
    client.queued("DLOCK.SACQUIRE k c 2 SLOT BLOCK 0");
    let replies = list_of(&client.run("EXEC"));
    assert_eq!((numbered(&replies[0]).1, numbered(&replies[1]).1, &replies[2]), (0, 1, &Value::Nil));
    client.int("DLOCK.RELEASE k a");
    let script = "return redis.call('DLOCK.SACQUIRE', KEYS[1], '*', 2, 'SLOT')[3]";
    assert_eq!(client.int(req!["EVAL", script, 1, "k"]), 0);
}

/// The end of a session frees the number, even while much is left to be released.
#[test]
fn the_numbers_of_an_ended_session_are_free() {
    let (server, mut client) = Server::start().with_client();
    let mut session = server.client();
    for owner in 0..200 {
        session.run(format!("DLOCK.SACQUIRE k s{owner} 1000 SLOT PX 600000 SESSION"));
    }
    assert_eq!(numbered(&client.run("DLOCK.SACQUIRE k a 1000 SLOT PX 600000")).1, 200);
    let id = session.id();
    // The pipeline is executed in one turn: the timer does not run in between.
    let mut lines = vec![format!("CLIENT KILL ID {id}")];
    lines.extend((0..100).map(|owner| format!("DLOCK.SACQUIRE k n{owner} 1000 SLOT PX 600000")));
    let replies = client.pipeline(&lines);
    let slots: Vec<i64> = replies[1..].iter().map(|reply| numbered(reply.as_ref().expect("a grant")).1).collect();
    assert_eq!(slots, (0..100).collect::<Vec<_>>());
    let mut all: Vec<Option<i64>> = shown(&mut client, "k").into_iter().map(|(_, slot)| slot).collect();
    all.sort_unstable();
    assert_eq!(all, (0..100).chain([200]).map(Some).collect::<Vec<_>>());
}

#[test]
fn a_number_is_replicated_saved_and_restored() {
    let (mut server, mut client) = Server::conf("appendonly yes\nappendfsync always").with_client();
    for owner in ["a", "b", "c"] {
        slot(&mut client, "k", owner);
    }
    client.int("DLOCK.RELEASE k b");
    client.int("DLOCK.SACQUIRE k d 8 PX 600000");
    client.int("DLOCK.RENEW k c PX 500000");
    let kept = [("a", Some(0)), ("c", Some(2)), ("d", None)].map(|(owner, slot)| (owner.to_owned(), slot));
    let replica = server.replica();
    assert_eq!(shown(&mut replica.client(), "k"), kept);
    client.ok("RENAME k other");
    assert_eq!(shown(&mut client, "other"), kept);
    let dump = client.bytes("DUMP other");
    client.ok(req!["RESTORE", "k", 0, dump]);
    // A rewritten AOF keeps the numbers as effects and as an RDB preamble.
    for preamble in ["no", "yes"] {
        client.ok(format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
        client.run("BGREWRITEAOF");
        server.wait_saved();
        server.kill9();
        server.boot();
        client = server.client();
        for key in ["k", "other"] {
            assert_eq!(shown(&mut client, key), kept, "{preamble}");
        }
    }
    assert_eq!((slot(&mut client, "k", "e"), slot(&mut client, "k", "f")), (1, 3));
    replica.wait_synced(&server);
    replica.promote();
    let mut client = replica.client();
    assert_eq!((slot(&mut client, "other", "e"), slot(&mut client, "other", "f")), (1, 3));
    assert_eq!(slot(&mut client, "k", "g"), 4);
}

/// A file that gives a number twice is damaged.
#[test]
fn a_value_with_one_number_twice_is_bad_data() {
    let (_server, mut client) = Server::start().with_client();
    for owner in ["a", "b"] {
        slot(&mut client, "k", owner);
    }
    let dump = client.bytes("DUMP k");
    let mut twice = body(&dump);
    assert_eq!(*twice.last().expect("an end marker"), 0, "the end of a module's value");
    let last = twice.len() - 2;
    assert_eq!(twice[last], 1, "the number of the last hold: {}", dump.escape_ascii());
    twice[last] = 0;
    assert!(client.error(req!["RESTORE", "twice", 0, seal(&twice, &dump)]).starts_with("ERR Bad data format"));
    twice[last] = 5;
    client.ok(req!["RESTORE", "other", 0, seal(&twice, &dump)]);
    assert_eq!(shown(&mut client, "other"), [("a".to_owned(), Some(0)), ("b".to_owned(), Some(5))]);
}
