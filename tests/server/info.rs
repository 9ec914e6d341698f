//! `DLOCK.INFO` and `DLOCK.CHECK`: what they show and how it looks on the wire.

use redis::Value;

use crate::support::lock::{fields_of, info_reply};
use crate::support::story::story;
use crate::support::{Client, Server, hold, list_of, lock_info, req, soon, text_of};

#[test]
fn nothing_held_is_nil() {
    let server = Server::start();
    for mut client in [server.client(), server.client().resp3()] {
        for request in ["DLOCK.INFO k", "DLOCK.INFO k OWNER a", "DLOCK.INFO k FULL", "DLOCK.CHECK k 1"] {
            client.nil(request);
        }
    }
}

#[test]
fn nil_is_the_null_bulk_reply_in_resp2_and_null_in_resp3() {
    let server = Server::start();
    let (mut two, mut three) = (server.client(), server.client().resp3());
    two.int("DLOCK.ACQUIRE k a");
    for request in [
        "DLOCK.ACQUIRE k b",
        "DLOCK.ACQUIRE k *",
        "DLOCK.RACQUIRE k b",
        "DLOCK.RLOCK k b",
        "DLOCK.RLOCK k *",
        "DLOCK.WLOCK k b",
        "DLOCK.RELEASE k b",
        "DLOCK.RENEW k b",
        "DLOCK.CHECK k 1",
        "DLOCK.INFO none",
    ] {
        assert_eq!(two.exact(request), b"$-1\r\n", "{request}");
        assert_eq!(three.exact(request), b"_\r\n", "{request}");
    }
}

#[test]
fn info_is_a_map_in_resp3_and_flat_in_resp2() {
    let (server, mut two) = Server::start().with_client();
    two.int("DLOCK.WLOCK k a");
    two.int("DLOCK.RLOCK k a");
    let mut three = server.client().resp3();
    for (arguments, names) in [("k", 6), ("k OWNER a", 7), ("k OWNER b", 7), ("k FULL", 8), ("k FULL COUNT 1", 8)] {
        let request = format!("DLOCK.INFO {arguments}");
        let flat = two.run(&request);
        assert!(matches!(&flat, Value::Array(items) if items.len() == 2 * names), "{flat:?}");
        let map = three.run(&request);
        assert!(matches!(&map, Value::Map(pairs) if pairs.len() == names), "{map:?}");
        let fields = fields_of(&map);
        for (name, value) in &fields {
            match name.as_str() {
                "mode" => assert_eq!(text_of(value), "both"),
                "holds" => assert!(list_of(value).iter().all(|hold| matches!(hold, Value::Map(_))), "{value:?}"),
                "queue" => assert_eq!(*value, Value::Array(vec![])),
                _ => assert!(matches!(value, Value::Int(_)), "{name} is {value:?}"),
            }
        }
    }
    // In RESP2 a hold is an array, too: nine names, each followed by its value.
    let flat = two.run("DLOCK.INFO k FULL");
    let holds = list_of(&fields_of(&flat)[6].1);
    assert!(holds.iter().all(|hold| matches!(hold, Value::Array(items) if items.len() == 18)), "{holds:?}");
}

#[test]
fn a_reply_counts_owners_and_entries() {
    let (_server, mut client) = Server::start().with_client();
    let before = client.now();
    let tokens = story(
        &mut client,
        "RLOCK k a PX 50000      -> t1
         RLOCK k b PX 90000      -> t2
         RLOCK k a PX 1          -> t1
         RLOCK k c PX 10000      -> t3",
    );
    let info = lock_info(&mut client, "k FULL").unwrap();
    let spent = client.now() - before;
    assert_eq!((info.mode.as_str(), info.holders, info.count, info.waiters), ("shared", 3, 4, 0));
    assert_eq!(info.token, tokens["t3"]);
    assert!((90_000 - spent..=90_000).contains(&info.ttl), "the last deadline: {}", info.ttl);
    let shown: Vec<_> = info.holds().iter().map(|hold| (hold.owner.as_slice(), hold.count, hold.token)).collect();
    assert_eq!(shown, [(b"a".as_slice(), 2, tokens["t1"]), (b"b", 1, tokens["t2"]), (b"c", 1, tokens["t3"])]);
    for (hold, lease) in info.holds().iter().zip([50_000, 90_000, 10_000]) {
        assert!((lease - spent..=lease).contains(&hold.ttl), "{hold:?}");
        assert_eq!((hold.mode.as_str(), &hold.session), ("shared", &Value::Nil));
    }
    assert_eq!(info.queue, Some(vec![]));
}

#[test]
fn owner_shows_none_one_or_two_holds() {
    let (_server, mut client) = Server::start().with_client();
    let tokens = story(
        &mut client,
        "WLOCK k a               -> t1
         WLOCK k a               -> t1
         RLOCK k a               -> t2
         INFO k OWNER b          -> mode=both holders=1 count=3 token=t2",
    );
    assert_eq!(lock_info(&mut client, "k OWNER b").unwrap().holds(), []);
    let info = lock_info(&mut client, "k OWNER a").unwrap();
    assert_eq!((info.holds().len(), info.queue), (2, None));
    let exclusive = hold(&mut client, "k", "a", "exclusive").unwrap();
    assert_eq!((exclusive.count, exclusive.token), (2, tokens["t1"]));
    let shared = hold(&mut client, "k", "a", "shared").unwrap();
    assert_eq!((shared.count, shared.token), (1, tokens["t2"]));
    story(&mut client, "RELEASE k a WRITE ALL -> 1\nINFO k OWNER a -> holds=a");
}

#[test]
fn full_lists_holds_by_token_ten_by_default() {
    let (_server, mut client) = Server::start().with_client();
    // 7919 is a prime number, so each of the 1000 readers comes once, in mixed order.
    let requests: Vec<_> = (0..1000).map(|n| format!("DLOCK.RLOCK k reader{:04}", n * 7919 % 1000)).collect();
    client.pipeline(&requests).into_iter().for_each(|reply| drop(reply.unwrap()));
    for (arguments, shown) in [("", 10), ("COUNT 1", 1), ("count 7", 7), ("COUNT 0", 1000), ("COUNT 5000", 1000)] {
        let info = lock_info(&mut client, &format!("k FULL {arguments}")).unwrap();
        assert_eq!((info.holders, info.count, info.holds().len()), (1000, 1000, shown), "{arguments}");
        assert!(info.holds().is_sorted_by(|a, b| a.token < b.token), "by token");
        assert_eq!(info.holds()[0].owner, b"reader0000");
        if shown == 1000 {
            assert_eq!(info.holds()[999].token, info.token);
        }
    }
    let releases: Vec<_> = (0..1000).map(|n| format!("DLOCK.RELEASE k reader{n:04}")).collect();
    for reply in client.pipeline(&releases) {
        assert_eq!(reply, Ok(Value::Int(1)));
    }
    assert_eq!(client.int("EXISTS k"), 0);
}

#[test]
fn check_tells_what_is_left_of_a_token() {
    let (_server, mut client) = Server::start().with_client();
    let left = |client: &mut Client, token: i64| client.int(format!("DLOCK.CHECK k {token}"));
    let token = client.int("DLOCK.WLOCK k a PX 60000");
    let shared = client.int("DLOCK.RLOCK k a PX 90000");
    assert!((50_000..=60_000).contains(&left(&mut client, token)));
    assert!((80_000..=90_000).contains(&left(&mut client, shared)));
    for unknown in [token - 1, shared + 1, 1, 1 << 53] {
        client.nil(format!("DLOCK.CHECK k {unknown}"));
    }
    client.nil(format!("DLOCK.CHECK other {token}"));
    // Two holds with one token: the longest counts.
    client.int(format!("DLOCK.RENEW k a WRITE MINTOKEN {shared}"));
    assert!((80_000..=90_000).contains(&left(&mut client, shared)));
    client.nil(format!("DLOCK.CHECK k {token}"));
    client.int("DLOCK.RELEASE k a ALL");
    client.nil(format!("DLOCK.CHECK k {shared}"));
}

#[test]
fn check_of_a_live_hold_is_at_least_one() {
    let (_server, mut client) = Server::start().with_client();
    let end = client.now() + 300;
    let token = client.int(format!("DLOCK.ACQUIRE k a PXAT {end}"));
    while let Value::Int(left) = client.run(format!("DLOCK.CHECK k {token}")) {
        assert!(left >= 1);
    }
    assert!(client.now() >= end, "the hold ended before its deadline");
    client.nil("DLOCK.INFO k");
}

#[test]
fn owners_and_keys_are_any_bytes() {
    let (_server, mut client) = Server::start().with_client();
    let all: Vec<u8> = (0..=255).collect();
    let uuid = "0f8fad5b-d9cb-469f-a165-70867728950e";
    let raw = b"\x0f\x8f\xad\x5b\xd9\xcb\x46\x9f\xa1\x65\x70\x86\x77\x28\x95\x0e";
    let long = vec![0xff; 1024];
    // A UUID, the same in capitals, without hyphens and as its 16 bytes are four different owners.
    let owners: Vec<&[u8]> = vec![
        b"\0",
        b"\r\n",
        b"a\r\nb",
        b"\xff",
        b"a\0b",
        b" ",
        b"**",
        b"1",
        b"-1",
        &all,
        &long,
        raw,
        uuid.as_bytes(),
        b"0F8FAD5B-D9CB-469F-A165-70867728950E",
        b"0f8fad5bd9cb469fa16570867728950e",
        b"BLOCK",
        b"PX",
        b"TOKEN",
    ];
    for key in [b"\0\r\n\xff".as_slice(), &all, b"{", b" ", b"READ"] {
        for owner in &owners {
            client.run(req!["DLOCK.RLOCK", key, *owner]);
        }
        let info = info_reply(&mut client, req!["DLOCK.INFO", key, "FULL", "COUNT", 0]).unwrap();
        let shown: Vec<&[u8]> = info.holds().iter().map(|hold| hold.owner.as_slice()).collect();
        assert_eq!(shown, owners);
        for (owner, held) in owners.iter().zip(info.holds()) {
            let one = info_reply(&mut client, req!["DLOCK.INFO", key, "OWNER", *owner]).unwrap();
            assert_eq!(one.holds().len(), 1);
            assert_eq!(one.holds()[0].token, held.token);
            assert_eq!(client.int(req!["DLOCK.RENEW", key, *owner, "TOKEN", held.token]), 1);
            assert_eq!(client.int(req!["DLOCK.RELEASE", key, *owner, "TOKEN", held.token]), 1);
        }
        assert_eq!(client.int([b"EXISTS".as_slice(), key]), 0);
    }
}

/// Makes a lock that is free and has waiters: the server refuses writes, so no waiter gets the lock.
fn free_with_waiters<const N: usize>(server: &Server, requests: [&str; N]) -> (Client, Vec<Client>) {
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE k a PX 1000");
    let end = client.end_of("k");
    let waiters = server.waiters(requests);
    client.ok("CONFIG SET min-replicas-to-write 1");
    client.pass(end);
    (client, waiters)
}

#[test]
fn a_free_lock_with_waiters_is_shown_as_free() {
    let server = Server::start();
    let (mut client, mut waiters) =
        free_with_waiters(&server, ["DLOCK.WLOCK k b BLOCK 0 PX 600000", "DLOCK.RLOCK k c BLOCK 0 PX 600000"]);
    for mut client in [server.client(), server.client().resp3()] {
        let null = |value: &Value| *value == Value::Nil;
        for (arguments, names) in [("k", 6), ("k OWNER a", 7), ("k OWNER b", 7), ("k FULL", 8), ("k FULL COUNT 1", 8)] {
            let fields = fields_of(&client.run(format!("DLOCK.INFO {arguments}")));
            assert_eq!(fields.len(), names, "{arguments}");
            assert_eq!(text_of(&fields[0].1), "free", "{arguments}");
            assert!(null(&fields[3].1), "{arguments}: no token: {fields:?}");
            let numbers = [1, 2, 4, 5].map(|at| fields[at].1.clone());
            assert_eq!(numbers, [0, 0, 0, 2].map(Value::Int), "{arguments}: holders, count, ttl, waiters");
            if names > 6 {
                assert_eq!(fields[6].1, Value::Array(vec![]), "{arguments}: no holds");
            }
            if names > 7 {
                let shown = if arguments.contains("COUNT") { 1 } else { 2 };
                assert_eq!(list_of(&fields[7].1).len(), shown, "{arguments}");
            }
        }
    }
    client.ok("CONFIG SET min-replicas-to-write 0");
    waiters[0].granted();
    assert_eq!(lock_info(&mut client, "k").unwrap().mode, "exclusive");
}

#[test]
fn a_waiter_is_shown_with_what_it_asks_for() {
    let server = Server::start();
    let (mut two, mut three) = (server.client(), server.client().resp3());
    two.int("DLOCK.ACQUIRE k a PX 600000");
    let mut ids = Vec::new();
    let mut waiters = Vec::new();
    for request in ["DLOCK.WLOCK k b BLOCK 0", "DLOCK.RLOCK k c BLOCK 60000", "DLOCK.ACQUIRE k * BLOCK 0"] {
        let mut waiter = server.client();
        ids.push(waiter.id());
        server.enters_queue(&mut waiter, request);
        waiters.push(waiter);
    }
    for client in [&mut two, &mut three] {
        let queue = lock_info(client, "k FULL").unwrap().queue.expect("a queue");
        assert_eq!(queue.len(), 3);
        for (at, waiter) in queue.iter().enumerate() {
            let mode = if at == 1 { "shared" } else { "exclusive" };
            assert_eq!((waiter.mode.as_str(), waiter.client), (mode, ids[at]));
            assert_eq!((waiter.permits, waiter.limit, waiter.keys), (1, None, 1));
        }
        assert_eq!(queue[2].owner.len(), 36, "the owner that the server made up");
    }
}

/// The contract: `held` is the time since the time in the token, at least 0.
#[test]
fn a_hold_shows_for_how_long_it_has_been_held() {
    let (_server, mut client) = Server::start().with_client();
    let before = client.now();
    let tokens = story(&mut client, "WLOCK k a PX 600000 -> t1\n RLOCK k a PX 600000 -> t2");
    soon("the lock is held for a while", || lock_info(&mut client, "k OWNER a").unwrap().holds()[0].held > 20);
    let after = client.now();
    for detail in ["OWNER a", "FULL"] {
        let holds = lock_info(&mut client, &format!("k {detail}")).unwrap();
        let now = client.now();
        for (hold, token) in holds.holds().iter().zip(["t1", "t2"]) {
            let granted = tokens[token] / 1000;
            // The time in the token, and `held`, are rounded to milliseconds.
            assert!((after - granted - 1..=now - granted).contains(&hold.held), "{hold:?}");
            assert!(granted >= before - 1, "{hold:?}");
        }
    }
    // 9 s ahead: `dlock.max-token-lead` is 10 s.
    let far = client.now_us() + 9_000_000;
    assert_eq!(client.int(format!("DLOCK.RENEW k a MINTOKEN {far}")), 1);
    let holds = lock_info(&mut client, "k OWNER a").unwrap();
    assert_eq!(holds.holds().iter().filter(|hold| hold.held == 0).count(), 1, "a token of the future: {holds:?}");
}

/// The contract: `addr` and `name` of waiters are nil unless the user may run `CLIENT LIST`.
#[test]
fn a_waiter_shows_its_client_to_those_who_may_list_clients() {
    let (server, mut admin) = Server::start().with_client();
    admin.int("DLOCK.ACQUIRE k a PX 600000");
    let mut waiter = server.client();
    waiter.ok("CLIENT SETNAME worker-7");
    let list = text_of(&admin.run(format!("CLIENT LIST ID {}", waiter.id())));
    let addr = list.split_once(" addr=").unwrap().1.split_once(' ').unwrap().0.to_owned();
    server.enters_queue(&mut waiter, "DLOCK.ACQUIRE k b BLOCK 0");
    let mut nameless = server.client();
    server.enters_queue(&mut nameless, "DLOCK.ACQUIRE k c BLOCK 0");
    admin.ok("ACL SETUSER reader on nopass ~* +dlock.info");
    admin.ok("ACL SETUSER operator on nopass ~* +dlock.info +client|list");
    for (user, sees) in [("reader", false), ("operator", true)] {
        let mut client = server.client();
        client.ok(format!("AUTH {user} x"));
        let queue = lock_info(&mut client, "k FULL").unwrap().queue.unwrap();
        assert_eq!(queue[0].addr.as_deref(), Some(addr.as_str()).filter(|_| sees), "{user}");
        assert_eq!(queue[0].name.as_deref(), Some("worker-7").filter(|_| sees), "{user}");
        assert_eq!((queue[1].addr.is_some(), queue[1].name.as_deref()), (sees, None), "{user}");
    }
    // A script has the rights of its caller. Element 16 is the queue, element 18 of a waiter the name.
    let queue = "EVAL return(redis.call('DLOCK.INFO','k','FULL')[16][1][18]or'nil') 0";
    admin.ok("ACL SETUSER reader +eval");
    admin.ok("ACL SETUSER operator +eval");
    for (user, name) in [("reader", "nil"), ("operator", "worker-7")] {
        let mut client = server.client();
        client.ok(format!("AUTH {user} x"));
        assert_eq!(client.text(queue), name, "{user}");
    }
}

#[test]
fn a_lock_that_nobody_holds_or_waits_for_is_nil_again() {
    let server = Server::start();
    let (mut client, waiters) = free_with_waiters(&server, ["DLOCK.WLOCK k b BLOCK 0"]);
    assert_eq!(lock_info(&mut client, "k").map(|info| info.mode).as_deref(), Some("free"));
    drop(waiters);
    server.left_waiting(0);
    for arguments in ["k", "k OWNER b", "k FULL"] {
        client.nil(format!("DLOCK.INFO {arguments}"));
    }
}
