//! A session that has ended is over for the very next command: on the connection that ends it with `CLIENT KILL`, even
//! in the same packet.

use redis::Value;

use crate::support::replica::counter;
use crate::support::state::{assert_same, state};
use crate::support::{Client, Server, hold, lock_info};

/// A session that holds `k` as `a`, what it takes first, and a client that can end it.
struct Ending {
    server: Server,
    session: Client,
    killer: Client,
    token: i64,
}

impl Ending {
    fn of(command: &str) -> Self {
        let server = Server::start();
        let (mut session, killer) = (server.client(), server.client());
        let token = session.int(format!("DLOCK.{command} k a PX 600000 SESSION"));
        Self { server, session, killer, token }
    }

    /// What these are answered, sent together with the command that ends the session.
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
fn what_names_the_hold_does_not_find_it() {
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
fn it_is_over_in_transactions_and_scripts_too() {
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
fn with_grace_the_hold_stays_unbound_for_as_long() {
    let mut ending = Ending::of("WLOCK");
    ending.killer.ok("CONFIG SET dlock.session-grace 60000");
    let [check, refused, renewed] =
        ending.and([&format!("DLOCK.CHECK k {}", ending.token), "DLOCK.ACQUIRE k b", "DLOCK.RENEW k a PX 90000"]);
    assert!(matches!(check, Ok(Value::Int(1..=60_000))), "{check:?}");
    assert_eq!((refused, renewed), (Ok(Value::Nil), Ok(Value::Int(1))));
    assert_eq!(ending.killer.session_of("k", "a", "exclusive"), None);
}

#[test]
fn a_key_that_is_renamed_or_moved_at_once_is_freed_where_it_is() {
    for (rename, db, key) in [("RENAME k k2", 0, "k2"), ("MOVE k 1", 1, "k"), ("SWAPDB 0 1", 1, "k")] {
        let mut ending = Ending::of("WLOCK");
        let (select, info) = (format!("SELECT {db}"), format!("DLOCK.INFO {key}"));
        let [_, _, info] = ending.and([rename, &select, &info]);
        assert_eq!(info, Ok(Value::Nil), "{rename}");
        let taken = ending.killer.int(format!("DLOCK.ACQUIRE {key} b"));
        assert!(taken > ending.token, "{rename}");
        assert_eq!(counter(&mut ending.killer, "session_ends"), 1, "{rename}");
    }
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
fn what_a_command_released_for_a_session_is_announced_and_replicated() {
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
