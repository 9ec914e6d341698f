//! `DLOCK.RENEW`: both modes or one, longer or shorter, never a hold that is not there.

use crate::support::story::tell;
use crate::support::{Client, Server, hold, lock_info};

#[test]
fn renewing_sets_the_deadline_longer_or_shorter() {
    let (_server, mut client) = Server::start().with_client();
    for command in ["ACQUIRE", "RLOCK"] {
        client.int(format!("DLOCK.{command} {command} a PX 40000"));
        let key = command;
        assert_eq!(client.leaves(key, 90_000, format!("DLOCK.RENEW {key} a PX 90000")), 1);
        assert_eq!(client.leaves(key, 5_000, format!("DLOCK.RENEW {key} a EX 5")), 1);
        let end = client.now() + 77_777;
        assert_eq!(client.int(format!("DLOCK.RENEW {key} a PXAT {end}")), 1);
        assert_eq!(client.end_of(key), end);
        let seconds = client.now() / 1000 + 50;
        assert_eq!(client.int(format!("DLOCK.RENEW {key} a EXAT {seconds}")), 1);
        assert_eq!(client.end_of(key), seconds * 1000);
    }
}

#[test]
fn a_lease_given_becomes_the_holds_own() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.RACQUIRE k a PX 40000");
    client.leaves("k", 40_000, "DLOCK.RENEW k a");
    client.int("DLOCK.RENEW k a PX 70000");
    client.leaves("k", 70_000, "DLOCK.RENEW k a");
    client.int("DLOCK.RENEW k a PX 20000");
    client.leaves("k", 20_000, "DLOCK.RENEW k a");
    // A re-entry uses the hold's own lease, too.
    client.leaves("k", 20_000, "DLOCK.RACQUIRE k a");
    // An absolute lease is as long as the time that was left when the server got it.
    a_minute_from_now_is_a_lease_of_a_minute(&mut client, "DLOCK.RENEW k a");
}

#[test]
fn an_absolute_lease_of_a_grant_becomes_the_holds_own() {
    let (_server, mut client) = Server::start().with_client();
    a_minute_from_now_is_a_lease_of_a_minute(&mut client, "DLOCK.ACQUIRE k a");
}

/// Gives a lease by its end, and renews a while later without one.
#[track_caller]
fn a_minute_from_now_is_a_lease_of_a_minute(client: &mut Client, request: &str) {
    const MINUTE: i64 = 60_000;
    let given = client.now();
    client.int(format!("{request} PXAT {}", given + MINUTE));
    // The server got the request up to `late` ms after `given`.
    let late = client.now() - given;
    client.pass(given + late + 200);
    let before = client.now();
    client.int("DLOCK.RENEW k a");
    let after = client.now();
    let end = client.end_of("k");
    assert!((before + MINUTE - late - 2..=after + MINUTE + 2).contains(&end), "{} ms", end - before);
}

#[test]
fn both_modes_are_renewed_or_the_named_one() {
    let (_server, mut client) = Server::start().with_client();
    let write = client.int("DLOCK.WLOCK k a PX 40000");
    let read = client.int("DLOCK.RLOCK k a PX 50000");
    #[track_caller]
    fn left(client: &mut Client, exclusive: i64, shared: i64) {
        for (mode, left) in [("exclusive", exclusive), ("shared", shared)] {
            let ttl = hold(client, "k", "a", mode).unwrap().ttl;
            assert!((left - 5_000..=left).contains(&ttl), "{mode} {ttl}, not {left}");
        }
    }
    for (options, exclusive, shared) in [
        ("", 40_000, 50_000),
        ("PX 90000 WRITE", 90_000, 50_000),
        ("PX 60000 READ", 90_000, 60_000),
        ("", 90_000, 60_000),
        ("WRITE", 90_000, 60_000),
        ("READ PX 10000", 90_000, 10_000),
        ("PX 20000", 20_000, 20_000),
        (&format!("PX 30000 TOKEN {write}"), 30_000, 20_000),
        (&format!("PX 70000 TOKEN {read}"), 30_000, 70_000),
        (&format!("PX 80000 READ TOKEN {read}"), 30_000, 80_000),
        (&format!("TOKEN {write}"), 30_000, 80_000),
    ] {
        assert_eq!(client.int(format!("DLOCK.RENEW k a {options}")), 1, "{options}");
        left(&mut client, exclusive, shared);
    }
    for options in [format!("TOKEN {}", read + 1), format!("WRITE TOKEN {read}"), format!("READ TOKEN {write}")] {
        client.nil(format!("DLOCK.RENEW k a PX 99000 {options}"));
        left(&mut client, 30_000, 80_000);
    }
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 2);
}

#[test]
fn renewing_never_creates_a_hold() {
    tell(
        "RENEW k a                 -> nil
         RENEW k a PX 5000 MINTOKEN 5 -> nil
         EXISTS k                  -> 0
         RLOCK k a                 -> t1
         RENEW k a WRITE           -> nil
         RENEW k b                 -> nil
         RENEW k b TOKEN t1        -> nil
         INFO k FULL               -> mode=shared count=1 token=t1 holds=a
         RELEASE k a               -> 1
         RENEW k a TOKEN t1        -> nil
         ACQUIRE k a               -> t2
         RENEW k a TOKEN t1        -> nil
         RENEW k a READ            -> nil
         RENEW k a TOKEN t2        -> 1
         RENEW k a WRITE           -> 1",
    );
}

#[test]
fn renewing_leaves_count_and_token() {
    tell(
        "RACQUIRE k a              -> t1
         RACQUIRE k a              -> t1
         RENEW k a PX 9000         -> 1
         INFO k                    -> mode=exclusive count=2 token=t1
         RELEASE k a               -> 0
         RELEASE k a               -> 1",
    );
}

#[test]
fn a_shorter_renewal_of_the_longest_hold_shortens_the_key() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a PX 90000");
    let end = client.now() + 40_000;
    client.int(format!("DLOCK.RLOCK k b PXAT {end}"));
    client.int("DLOCK.RENEW k a PX 1000");
    assert_eq!(client.end_of("k"), end);
    let info = lock_info(&mut client, "k").unwrap();
    assert!((30_000..=40_000).contains(&info.ttl), "{info:?}");
}
