//! A cap ends a hold, even if it is renewed: `MAXHOLD` and `dlock.max-hold`.

use std::time::{Duration, Instant};

use crate::support::story::story;
use crate::support::{Client, Server, hold, lock_info, req};

/// `RENEW` replies `0` if the cap has cut the deadline.
#[test]
fn nothing_renews_a_hold_beyond_its_cap() {
    let (_server, mut client) = Server::start().with_client();
    story(
        &mut client,
        "ACQUIRE k a PX 60000 MAXHOLD 90000     -> t1
         RENEW k a PX 80000                     -> 1
         RENEW k a PX 90001                     -> 0
         RENEW k a EX 900                       -> 0
         RENEW k a                              -> 0
         RENEW k a PX 500                       -> 1
         RENEW k b                              -> nil
         RACQUIRE k a PX 90001 MAXHOLD 90000    -> ! ERR lease is longer than MAXHOLD
         RACQUIRE k a PX 900000 MAXHOLD 900000  -> t1",
    );
    let capped = hold(&mut client, "k", "a", "exclusive").unwrap();
    let cap = capped.cap.expect("a cap");
    assert!((80_000..=90_000).contains(&cap) && capped.ttl == cap, "{capped:?}");
    client.int("DLOCK.ACQUIRE free a PX 60000");
    assert_eq!(hold(&mut client, "free", "a", "exclusive").unwrap().cap, None);
}

/// The server renews the lease of a session's hold up to the cap. Then the next in the queue gets the lock.
#[test]
fn the_watchdog_stops_at_the_cap() {
    let (_server, [mut client, mut next]) = Server::start().with_clients();
    let start = Instant::now();
    client.int("DLOCK.ACQUIRE k a PX 600 MAXHOLD 1500 SESSION");
    next.send("DLOCK.ACQUIRE k b BLOCK 20000");
    next.granted();
    let held = start.elapsed();
    assert!(held >= Duration::from_millis(1490), "{held:?}");
    let log = client.run("DLOCK.LOG GET");
    assert!(format!("{log:?}").contains("cap"), "{log:?}");
    let info = client.text("INFO dlock");
    assert!(info.contains("dlock_caps:1\r\n") && info.contains("dlock_lapses:1\r\n"), "{info}");
}

#[test]
fn the_operators_cap_counts_where_it_is_shorter() {
    let (_server, mut client) = Server::start().with_client();
    client.ok("CONFIG SET dlock.max-hold 50000");
    let cap = |client: &mut Client, key: &str| hold(client, key, "a", "exclusive").unwrap().cap.unwrap_or(0);
    client.int("DLOCK.ACQUIRE own a");
    client.int("DLOCK.ACQUIRE shorter a MAXHOLD 40000");
    client.int("DLOCK.ACQUIRE longer a MAXHOLD 900000 PX 50000");
    assert!((40_001..=50_000).contains(&cap(&mut client, "own")));
    assert!((30_001..=40_000).contains(&cap(&mut client, "shorter")));
    assert!((40_001..=50_000).contains(&cap(&mut client, "longer")));
    assert_eq!(
        client.error("DLOCK.ACQUIRE k a PX 50001"),
        "ERR lease is longer than dlock.max-hold, which is 50000 ms: PX"
    );
    client.nil("DLOCK.RENEW k a PX 50001");
    // A later change touches no hold.
    client.ok("CONFIG SET dlock.max-hold 0");
    assert_eq!(client.int("DLOCK.RENEW own a PX 600000"), 0);
    client.int("DLOCK.ACQUIRE k a PX 600000");
    client.ok("CONFIG SET dlock.max-hold 1000");
    assert_eq!(client.int("DLOCK.RENEW k a PX 600000"), 1);
    // A default lease that is longer than the cap is shortened to it.
    client.int("DLOCK.ACQUIRE default a");
    assert!(client.int("PTTL default") <= 1000);
}

/// The cap of a request is settled when the request arrives, and counts from the grant.
#[test]
fn a_waiter_keeps_the_cap_that_it_arrived_with() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 60000");
    client.ok("CONFIG SET dlock.max-hold 70000");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0 PX 5000");
    client.ok("CONFIG SET dlock.max-hold 0");
    client.int("DLOCK.RELEASE k a");
    waiter.granted();
    let capped = hold(&mut client, "k", "b", "exclusive").unwrap();
    assert!((60_000..=70_000).contains(&capped.cap.expect("a cap")), "{capped:?}");
}

#[test]
fn a_cap_is_replicated_saved_and_restored() {
    let (mut server, mut client) = Server::conf("appendonly yes\nappendfsync always").with_client();
    client.int("DLOCK.ACQUIRE k a PX 60000 MAXHOLD 600000");
    client.int("DLOCK.SACQUIRE permits a 3 PX 60000 MAXHOLD 600000");
    client.int("DLOCK.MACQUIRE 2 x y a PX 60000 MAXHOLD 600000");
    let replica = server.replica();
    let caps = |client: &mut Client| {
        ["k", "permits", "x", "y"].map(|key| {
            let shown = lock_info(client, &format!("{key} FULL")).unwrap();
            shown.holds()[0].cap.unwrap_or_else(|| panic!("{key} has no cap: {shown:?}"))
        })
    };
    let check = |caps: [i64; 4]| assert!(caps.iter().all(|cap| (500_000..=600_000).contains(cap)), "{caps:?}");
    check(caps(&mut client));
    check(caps(&mut replica.client()));
    let dump = client.bytes("DUMP k");
    client.ok("RENAME k other");
    assert!(lock_info(&mut client, "other FULL").unwrap().holds()[0].cap.is_some());
    client.ok(req!["RESTORE", "k", 0, dump]);
    assert_eq!(client.int("DLOCK.RENEW k a PX 900000"), 0);
    // A rewritten AOF keeps the caps as effects and as an RDB preamble.
    for preamble in ["no", "yes"] {
        client.ok(format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
        client.run("BGREWRITEAOF");
        server.wait_saved();
        server.kill9();
        server.boot();
        client = server.client();
        check(caps(&mut client));
        assert_eq!(client.int("DLOCK.RENEW k a PX 900000"), 0, "{preamble}");
    }
}
