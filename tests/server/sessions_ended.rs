//! A session that has ended is over for the very next command: on the connection that ends it with `CLIENT KILL`, even
//! in the same packet.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use redis::Value;

use crate::support::replica::counter;
use crate::support::state::{assert_same, state};
use crate::support::{Client, Server, eventually, hold, lock_info, soon};

/// A session that holds `k` as `a`, the token of that hold, and a client that can end the session.
struct Ending {
    server: Server,
    session: Client,
    killer: Client,
    token: i64,
}

impl Ending {
    fn of(command: &str) -> Self {
        let (server, [mut session, killer]) = Server::start().with_clients();
        let token = session.int(format!("DLOCK.{command} k a PX 600000 SESSION"));
        Self { server, session, killer, token }
    }

    /// Ends the session, with these requests in the same packet. Returns their replies.
    #[track_caller]
    fn and<const N: usize>(&mut self, requests: [&str; N]) -> [Result<Value, String>; N] {
        let id = self.session.id();
        let mut all = vec![format!("CLIENT KILL ID {id}")];
        all.extend(requests.map(str::to_owned));
        let mut replies = self.killer.pipeline(&all);
        assert_eq!(replies.remove(0), Ok(Value::Int(1)), "killed");
        replies.try_into().expect("a reply each")
    }

    /// Nobody holds the lock, and nothing is left of the session.
    #[track_caller]
    fn leaves_nothing(mut self) {
        assert_eq!(self.killer.int("EXISTS k"), 0);
        assert_eq!(counter(&mut self.killer, "sessions"), 0);
        assert_eq!(counter(&mut self.killer, "session_ends"), 1);
    }
}

fn token(reply: &Result<Value, String>) -> i64 {
    match reply {
        Ok(Value::Int(token)) if *token > 1 => *token,
        other => panic!("a token, not {other:?}"),
    }
}

#[test]
fn another_owner_gets_the_lock() {
    for (held, asked) in [("ACQUIRE", "ACQUIRE"), ("RLOCK", "WLOCK"), ("WLOCK", "RLOCK"), ("RACQUIRE", "RACQUIRE")] {
        let mut ending = Ending::of(held);
        let [got] = ending.and([&format!("DLOCK.{asked} k b")]);
        assert!(token(&got) > ending.token);
        assert_eq!(ending.server.holders("k"), ["b"]);
    }
}

#[test]
fn the_same_owner_gets_a_new_hold() {
    for asked in ["DLOCK.RACQUIRE k a", "DLOCK.ACQUIRE k a BLOCK 1000", "DLOCK.WLOCK k a SESSION"] {
        let mut ending = Ending::of("WLOCK");
        let [got] = ending.and([asked]);
        assert!(token(&got) > ending.token, "{asked}");
        let found = hold(&mut ending.killer, "k", "a", "exclusive").expect("held");
        assert_eq!((found.token, found.count), (token(&got), 1), "{asked}");
    }
}

#[test]
fn commands_that_name_the_hold_do_not_find_it() {
    for asked in ["RELEASE k a", "RELEASE k a ALL", "RENEW k a", "RENEW k a SESSION", "CHECK k TOKEN", "INFO k"] {
        let mut ending = Ending::of("WLOCK");
        let asked = asked.replace("TOKEN", &ending.token.to_string());
        assert_eq!(ending.and([&format!("DLOCK.{asked}")]), [Ok(Value::Nil)], "{asked}");
        ending.leaves_nothing();
    }
    let mut ending = Ending::of("WLOCK");
    let lift = format!("DLOCK.RENEW k a MINTOKEN {}", ending.token + 1);
    assert_eq!(ending.and([&lift]), [Ok(Value::Nil)]);
    ending.leaves_nothing();
}

#[test]
fn a_session_is_over_in_transactions_and_scripts_too() {
    let mut ending = Ending::of("WLOCK");
    let [_, _, replies] = ending.and(["MULTI", "DLOCK.ACQUIRE k b", "EXEC"]);
    let Ok(Value::Array(replies)) = replies else { panic!("an array, not {replies:?}") };
    token(&Ok(replies[0].clone()));

    let mut ending = Ending::of("WLOCK");
    let [reply] = ending.and(["EVAL return(redis.call('DLOCK.ACQUIRE',KEYS[1],'b')) 1 k"]);
    token(&reply);
}

#[test]
fn nobody_passes_those_who_wait() {
    let mut ending = Ending::of("RLOCK");
    let mut writer = ending.server.waiter("DLOCK.WLOCK k w BLOCK 60000");
    let [reader] = ending.and(["DLOCK.RLOCK k a"]);
    assert_eq!(reader, Ok(Value::Nil));
    assert!(writer.granted() > ending.token);
    assert_eq!(ending.server.holders("k"), ["w"]);
}

#[test]
fn other_readers_stay_and_the_last_of_them_upgrades() {
    let mut ending = Ending::of("RLOCK");
    ending.killer.int("DLOCK.RLOCK k b PX 600000");
    let [upgraded] = ending.and(["DLOCK.WLOCK k b"]);
    token(&upgraded);
    let info = lock_info(&mut ending.killer, "k").expect("held");
    assert_eq!((info.mode.as_str(), info.holders), ("both", 1));
}

#[test]
fn with_a_grace_the_hold_stays_unbound() {
    let mut ending = Ending::of("WLOCK");
    ending.killer.ok("CONFIG SET dlock.session-grace 60000");
    let [check, refused, renewed] =
        ending.and([&format!("DLOCK.CHECK k {}", ending.token), "DLOCK.ACQUIRE k b", "DLOCK.RENEW k a PX 90000"]);
    assert!(matches!(check, Ok(Value::Int(1..=60_000))), "{check:?}");
    assert_eq!((refused, renewed), (Ok(Value::Nil), Ok(Value::Int(1))));
    assert_eq!(ending.killer.session_of("k", "a", "exclusive"), None);
}

#[test]
fn many_holds_of_one_session_are_over_at_once() {
    let mut ending = Ending::of("WLOCK");
    let names: Vec<String> = (0..2000).map(|n| format!("n{n}")).collect();
    let take: Vec<String> = names.iter().map(|name| format!("DLOCK.WLOCK {name} a SESSION")).collect();
    ending.session.pipeline(&take).iter().for_each(|reply| assert!(token(reply) > 1));
    for _ in 0..200 {
        ending.session.int("DLOCK.RLOCK readers a SESSION");
    }
    let [first, last, readers, free] =
        ending.and(["DLOCK.ACQUIRE n0 b", "DLOCK.ACQUIRE n1999 b", "DLOCK.WLOCK readers b", "DLOCK.INFO n1000"]);
    for reply in [first, last, readers] {
        token(&reply);
    }
    assert_eq!(free, Ok(Value::Nil));
}

#[test]
fn a_release_by_the_next_command_is_announced_and_replicated() {
    let mut ending = Ending::of("WLOCK");
    let replica = ending.server.replica();
    replica.wait_synced(&ending.server);
    let mut events = ending.server.client().resp3();
    ending.killer.ok("CONFIG SET notify-keyspace-events Kd");
    events.send("SUBSCRIBE __keyspace@0__:k");
    events.push(std::time::Duration::from_secs(20)).expect("subscribed");
    let [got] = ending.and(["DLOCK.ACQUIRE k b"]);
    token(&got);
    let heard: Vec<String> =
        (0..2).map(|_| format!("{:?}", events.push(std::time::Duration::from_secs(20)).expect("an event"))).collect();
    assert!(heard[0].contains("dlock.release") && heard[1].contains("dlock.acquire"), "{heard:?}");
    replica.wait_synced(&ending.server);
    assert_same("replica", &state(&mut ending.server.client()), &state(&mut replica.client()));
}

#[test]
fn a_server_that_is_demoted_forgets_ends_that_a_pause_holds_back() {
    for grace in [0, 60_000] {
        let mut ending = Ending::of("WLOCK");
        ending.killer.ok(format!("CONFIG SET dlock.session-grace {grace}"));
        ending.killer.ok("CLIENT PAUSE 600000 WRITE");
        let check = format!("DLOCK.CHECK k {}", ending.token);
        let [pending] = ending.and([&check]);
        match grace {
            0 => assert_eq!(pending, Ok(Value::Nil)),
            _ => assert!(matches!(pending, Ok(Value::Int(1..=60_000))), "{pending:?}"),
        }
        // The server follows a primary that does not answer: its data stays. The very next command sees the hold.
        let replies = ending.killer.pipeline(&["REPLICAOF 127.0.0.1 1", &check, "DLOCK.INFO k OWNER a"]);
        assert!(matches!(replies[1], Ok(Value::Int(500_000..=600_000))), "grace {grace}: {replies:?}");
        let hold = hold(&mut ending.killer, "k", "a", "exclusive").expect("held");
        assert_eq!((hold.token, hold.session), (ending.token, Value::Nil));
        // The server, a primary again, does not take up what it has forgotten.
        ending.killer.ok("CLIENT UNPAUSE");
        ending.server.promote();
        let now = ending.killer.now();
        ending.killer.pass(now + 100);
        assert!(ending.killer.int(&check) > 500_000, "grace {grace}");
    }
}

#[test]
fn a_failover_forgets_ends_that_it_held_back() {
    let mut ending = Ending::of("WLOCK");
    let replica = ending.server.replica();
    replica.wait_synced(&ending.server);
    // The message keeps the primary waiting for its replica to catch up.
    replica.freeze();
    let check = format!("DLOCK.CHECK k {}", ending.token);
    ending.killer.int("PUBLISH nobody there");
    ending.killer.ok("FAILOVER");
    let [pending] = ending.and([&check]);
    assert_eq!(pending, Ok(Value::Nil), "it counts as released");
    replica.thaw();
    let mut seen = 0;
    crate::support::soon("it is a replica", || {
        let replies = ending.killer.pipeline(&["ROLE", &check, "ROLE"]);
        let is_replica = |reply: &Result<Value, String>| {
            reply.as_ref().is_ok_and(|role| crate::support::text_of(&crate::support::list_of(role)[0]) == "slave")
        };
        if is_replica(&replies[0]) {
            assert!(matches!(replies[1], Ok(Value::Int(1..))), "hidden from CHECK: {replies:?}");
            seen += 1;
        }
        seen > 20
    });
    crate::support::soon("the other one is the primary", || replica.is_primary());
    assert!(replica.client().int(&check) > 0, "there it is held until its lease ends");
}

#[test]
fn with_grace_an_end_that_a_pause_holds_back_is_a_deadline() {
    let mut ending = Ending::of("WLOCK");
    ending.killer.ok("CONFIG SET dlock.session-grace 400");
    ending.killer.ok("CLIENT PAUSE 600000 WRITE");
    let before = ending.killer.now();
    let check = format!("DLOCK.CHECK k {}", ending.token);
    let [left] = ending.and([&check]);
    assert!(matches!(left, Ok(Value::Int(1..=400))), "{left:?}");
    let info = lock_info(&mut ending.killer, "k OWNER a").expect("held");
    assert_eq!((info.holds()[0].session.clone(), info.ttl <= 400), (Value::Nil, true));
    let ended = ending.killer.now();
    ending.killer.pass(before + 390);
    ending.killer.pass(ended + 400);
    ending.killer.nil(&check);
    ending.killer.nil("DLOCK.INFO k");
    ending.killer.ok("CLIENT UNPAUSE");
    assert!(ending.killer.int("DLOCK.ACQUIRE k b") > ending.token);
}

#[test]
fn under_another_name_an_ended_hold_lapses() {
    for (act, db, key) in [("RENAME k l", 0, "l"), ("MOVE k 1", 1, "k")] {
        let (_server, [mut session, mut killer]) = Server::start().with_clients();
        let token = session.int("DLOCK.WLOCK k a PX 1500 SESSION");
        let end = killer.end_of("k");
        let id = session.id();
        killer.pipeline(&[format!("CLIENT KILL ID {id}"), act.to_owned()]);
        // Under its old name the lock is free, under the new one nobody keeps it alive.
        assert!(killer.int("DLOCK.ACQUIRE k b PX 600000") > token, "{act}");
        killer.ok(format!("SELECT {db}"));
        assert!(hold(&mut killer, key, "a", "exclusive").is_none_or(|hold| hold.session == Value::Nil), "{act}");
        killer.pass(end);
        killer.nil(format!("DLOCK.CHECK {key} {token}"));
        assert!(killer.int(format!("DLOCK.ACQUIRE {key} c")) > token, "{act}");
    }
}

#[test]
fn a_session_is_over_in_a_transaction_for_which_time_stands_still() {
    let requests = |id: i64, token: i64, grace: i64| {
        let mut requests = vec![format!("CONFIG SET dlock.session-grace {grace}"), "MULTI".to_owned()];
        let ended = ["DEBUG SLEEP 0.02".to_owned(), format!("CLIENT KILL ID {id}"), "DLOCK.INFO k".to_owned()];
        requests.extend(ended);
        requests.extend([format!("DLOCK.CHECK k {token}"), "DLOCK.ACQUIRE k b".to_owned(), "EXEC".to_owned()]);
        requests
    };
    for held in ["WLOCK", "RLOCK"] {
        for readers in [1, 40] {
            let mut ending = Ending::of(held);
            let id = ending.session.id();
            for _ in 1..readers {
                ending.session.run("DLOCK.RLOCK k * PX 600000 SESSION");
            }
            let replies = ending.killer.pipeline(&requests(id, ending.token, 0));
            let Some(Ok(Value::Array(replies))) = replies.last() else { panic!("an array, not {replies:?}") };
            assert_eq!(replies[1..4], [Value::Int(1), Value::Nil, Value::Nil], "{held}, {readers} holds");
            assert!(token(&Ok(replies[4].clone())) > ending.token);
            assert_eq!(ending.server.holders("k"), ["b"]);
        }
    }
    // A grace counts from the end of the session in the transaction, too.
    let mut ending = Ending::of("WLOCK");
    let id = ending.session.id();
    let replies = ending.killer.pipeline(&requests(id, ending.token, 60_000));
    let Some(Ok(Value::Array(replies))) = replies.last() else { panic!("an array, not {replies:?}") };
    assert!(matches!(replies[3], Value::Int(59_000..=60_000)), "{replies:?}");
    assert_eq!(replies[4], Value::Nil);
}

/// The time in which the server waits (here it sleeps; usually for the disk) passes for its clients, so the timer gets its
/// share: it ends the same locks in far fewer turns if each turn takes longer.
#[test]
fn a_server_that_waits_long_in_each_turn_does_more_in_each_tick() {
    const LOCKS: i64 = 10_000;
    let (server, mut client) = Server::start().with_client();
    let mut turns = |seconds: &str| {
        let mut session = server.client();
        let requests: Vec<_> = (0..LOCKS).map(|key| format!("DLOCK.ACQUIRE k{key} a PX 600000 SESSION")).collect();
        requests.chunks(1000).for_each(|requests| drop(session.pipeline(requests)));
        assert_eq!(counter(&mut client, "sessions"), LOCKS);
        let (turns, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Three clients: the server always finds a command of one of them.
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut sleeper = server.client();
                    while !is_over.load(Ordering::Relaxed) {
                        sleeper.ok(format!("DEBUG SLEEP {seconds}"));
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            soon("they sleep", || turns.load(Ordering::Relaxed) > 10);
            drop(session);
            let before = turns.load(Ordering::Relaxed);
            eventually(Duration::from_secs(60), "all have ended", || counter(&mut client, "sessions") == 0);
            is_over.store(true, Ordering::Relaxed);
            turns.load(Ordering::Relaxed) - before
        })
    };
    // Where other programs interrupt most ticks, a long tick does as little as a short one.
    let mut seen = Vec::new();
    let is_fewer = (0..8).any(|_| {
        let (long, short) = (turns("0.02"), turns("0.002"));
        seen.push((long, short));
        long * 5 < short * 4
    });
    assert!(is_fewer, "long turns and short ones: {seen:?}");
}
