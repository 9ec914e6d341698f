//! How long a hold lasts: given, default, re-entered, renewed, lapsed.

use crate::support::story::story;
use crate::support::{Client, Server, hold, lock_info};

const ACQUIRING: [&str; 4] = ["ACQUIRE", "RACQUIRE", "RLOCK", "WLOCK"];

#[test]
fn a_lease_is_relative_or_absolute_in_seconds_or_milliseconds() {
    let (_server, mut client) = Server::start().with_client();
    for command in ACQUIRING {
        let lock = |lease: &str| format!("DLOCK.{command} k a {lease}");
        client.leaves("k", 30_000, lock(""));
        client.run("DEL k");
        client.leaves("k", 7_000, lock("EX 7"));
        client.run("DEL k");
        client.leaves("k", 12_345, lock("PX 12345"));
        client.run("DEL k");
        let now = client.now();
        client.int(lock(&format!("PXAT {}", now + 12_345)));
        assert_eq!(client.end_of("k"), now + 12_345);
        client.run("DEL k");
        client.int(lock(&format!("EXAT {}", now / 1000 + 60)));
        assert_eq!(client.end_of("k"), (now / 1000 + 60) * 1000);
        client.run("DEL k");
    }
}

#[test]
fn leases_reach_from_a_millisecond_to_a_year() {
    let (_server, mut client) = Server::start().with_client();
    let year = 31_536_000_000_i64;
    client.leaves("k", year, format!("DLOCK.ACQUIRE k a PX {year}"));
    client.leaves("k", year, format!("DLOCK.RENEW k a EX {}", year / 1000));
    let end = client.now() + year - 60_000;
    client.int(format!("DLOCK.RENEW k a PXAT {end}"));
    assert_eq!(client.end_of("k"), end);
    let token = client.int("DLOCK.ACQUIRE short a PX 1");
    client.pass_ms(1);
    client.nil(format!("DLOCK.CHECK short {token}"));
    assert!(client.int("DLOCK.ACQUIRE short b") > token);
}

#[test]
fn re_entry_never_shortens_and_never_adds_up() {
    let (_server, mut client) = Server::start().with_client();
    for command in ["RACQUIRE", "WLOCK", "RLOCK"] {
        let lock = |lease: &str| format!("DLOCK.{command} {command} a {lease}");
        client.int(lock("PX 60000"));
        let end = client.end_of(command);
        for shorter in ["PX 1000", "PX 1", "EX 50"] {
            client.int(lock(shorter));
            assert_eq!(client.end_of(command), end, "{shorter}");
        }
        let sooner = client.now() + 10_000;
        client.int(lock(&format!("PXAT {sooner}")));
        assert_eq!(client.end_of(command), end);
        client.leaves(command, 90_000, lock("PX 90000"));
        client.leaves(command, 90_000, lock("PX 90000"));
        let later = client.now() + 100_000;
        client.int(lock(&format!("PXAT {later}")));
        assert_eq!(client.end_of(command), later);
    }
}

#[test]
fn re_entry_without_a_lease_uses_the_holds_own() {
    let (_server, mut client) = Server::start().with_client();
    for command in ["RACQUIRE", "WLOCK", "RLOCK"] {
        client.int(format!("DLOCK.{command} {command} a PX 40000"));
        client.leaves(command, 40_000, format!("DLOCK.{command} {command} a"));
        // The hold's own lease becomes the larger one.
        client.int(format!("DLOCK.{command} {command} a PX 1000"));
        client.leaves(command, 40_000, format!("DLOCK.{command} {command} a"));
        client.int(format!("DLOCK.{command} {command} a PX 80000"));
        client.leaves(command, 80_000, format!("DLOCK.RENEW {command} a"));
        client.leaves(command, 80_000, format!("DLOCK.{command} {command} a"));
    }
}

#[test]
fn a_new_mode_has_its_own_lease() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.WLOCK k a PX 90000");
    client.int("DLOCK.RLOCK k a PX 40000");
    let left = |client: &mut Client, mode| hold(client, "k", "a", mode).unwrap().ttl;
    assert!((80_000..=90_000).contains(&left(&mut client, "exclusive")));
    assert!((30_000..=40_000).contains(&left(&mut client, "shared")));
    // Without a lease: the default, not that of the other mode.
    client.int("DLOCK.RLOCK k2 a PX 90000");
    client.int("DLOCK.WLOCK k2 a");
    assert!((20_000..=30_000).contains(&hold(&mut client, "k2", "a", "exclusive").unwrap().ttl));
}

#[test]
fn a_partial_release_leaves_the_lease() {
    let (_server, mut client) = Server::start().with_client();
    for command in ["RACQUIRE", "RLOCK"] {
        client.int(format!("DLOCK.{command} {command} a PX 40000"));
        client.int(format!("DLOCK.{command} {command} a PX 50000"));
        let end = client.end_of(command);
        assert_eq!(client.int(format!("DLOCK.RELEASE {command} a")), 0);
        assert_eq!(client.end_of(command), end);
        client.leaves(command, 50_000, format!("DLOCK.RENEW {command} a"));
    }
}

#[test]
fn a_refused_request_changes_no_lease() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 40000");
    client.int("DLOCK.RLOCK r a PX 40000");
    let ends = ["k", "r"].map(|key| client.end_of(key));
    for request in ["ACQUIRE k a", "ACQUIRE k b", "RACQUIRE k b", "RLOCK k b", "WLOCK r b", "ACQUIRE r a", "RENEW k b"]
    {
        client.nil(format!("DLOCK.{request} PX 90000"));
    }
    client.nil("DLOCK.RELEASE k b");
    assert_eq!(["k", "r"].map(|key| client.end_of(key)), ends);
}

#[test]
fn expired_owner_cannot_renew() {
    let (_server, mut client) = Server::start().with_client();
    for command in ACQUIRING {
        let token = client.int(format!("DLOCK.{command} k a PX 20"));
        client.outlive("k");
        client.nil("DLOCK.RENEW k a");
        client.nil("DLOCK.RENEW k a PX 60000");
        client.nil(format!("DLOCK.RENEW k a PX 60000 TOKEN {token}"));
        client.nil(format!("DLOCK.RENEW k a MINTOKEN {token}"));
        client.nil("DLOCK.RELEASE k a");
        client.nil("DLOCK.RELEASE k a ALL");
        client.nil(format!("DLOCK.CHECK k {token}"));
        client.nil("DLOCK.INFO k");
        client.nil("DLOCK.INFO k OWNER a");
        assert_eq!(client.int("EXISTS k"), 0);
    }
}

#[test]
fn an_expired_lock_is_free_and_its_owner_a_stranger() {
    let (_server, mut client) = Server::start().with_client();
    let old = client.int("DLOCK.RACQUIRE k a PX 20");
    client.int("DLOCK.RACQUIRE k a PX 20");
    client.outlive("k");
    let new = client.int("DLOCK.RACQUIRE k b PX 1000");
    assert!(new > old);
    client.nil("DLOCK.RACQUIRE k a");
    client.nil("DLOCK.RENEW k a");
    client.nil(format!("DLOCK.RELEASE k a TOKEN {old}"));
    client.outlive("k");
    let again = client.int("DLOCK.RACQUIRE k b PX 60000");
    assert!(again > new, "a new hold, not a re-entry");
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 1);
}

#[test]
fn readers_lapse_one_by_one() {
    let (_server, mut client) = Server::start().with_client();
    let short = client.int("DLOCK.RLOCK k a PX 300");
    client.int("DLOCK.RLOCK k a PX 300");
    let long = client.int("DLOCK.RLOCK k b PX 60000");
    let end = client.end_of("k");
    let now = client.now();
    client.pass(now + 300);
    let info = lock_info(&mut client, "k FULL").unwrap();
    assert_eq!((info.holders, info.count, info.token, info.holds().len()), (1, 1, long, 1));
    assert_eq!(lock_info(&mut client, "k OWNER a").unwrap().holds(), []);
    client.nil(format!("DLOCK.CHECK k {short}"));
    client.nil("DLOCK.RENEW k a");
    client.nil("DLOCK.RELEASE k a");
    client.nil(format!("DLOCK.RELEASE k a TOKEN {short}"));
    client.nil("DLOCK.RELEASE k a ALL");
    client.nil("DLOCK.WLOCK k c");
    assert_eq!(client.end_of("k"), end);
    // The lapsed reader comes back as a new one: until it lapses again, the other reader cannot write.
    let again = client.int("DLOCK.RLOCK k a PX 1000");
    assert!(again > long);
    let info = lock_info(&mut client, "k FULL").unwrap();
    assert_eq!((info.holders, info.count), (2, 2), "nothing of the lapsed hold is left");
    client.nil("DLOCK.WLOCK k b");
    client.pass_ms(1000);
    assert!(client.int("DLOCK.WLOCK k b") > again);
}

#[test]
fn a_lapsed_writer_leaves_its_own_read_hold() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.WLOCK k a PX 1000");
    client.int("DLOCK.RLOCK k a PX 60000");
    client.nil("DLOCK.RLOCK k b");
    client.pass_ms(1000);
    story(
        &mut client,
        "INFO k FULL          -> mode=shared holders=1 count=1 holds=a
         RLOCK k b            -> t1
         WLOCK k a            -> nil
         RELEASE k a WRITE    -> nil
         RELEASE k a          -> 1
         INFO k FULL          -> holds=b",
    );
}

#[test]
fn a_lapsed_reader_leaves_its_own_write_hold() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a PX 30");
    client.int("DLOCK.WLOCK k a PX 60000");
    client.pass_ms(30);
    story(
        &mut client,
        "INFO k               -> mode=exclusive holders=1 count=1
         RLOCK k b            -> nil
         RELEASE k a READ     -> nil
         RELEASE k a          -> 1
         EXISTS k             -> 0",
    );
}

#[test]
fn the_key_lives_as_long_as_its_last_hold() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a PX 40000");
    client.leaves("k", 90_000, "DLOCK.RLOCK k b PX 90000");
    let last = client.end_of("k");
    client.int("DLOCK.RLOCK k c PX 50000");
    assert_eq!(client.end_of("k"), last);
    client.int("DLOCK.RELEASE k b");
    let ttl = lock_info(&mut client, "k").unwrap().ttl;
    assert!((40_000..=50_000).contains(&ttl), "{ttl}");
    let left = client.int("PTTL k");
    assert!((40_000..=50_000).contains(&left), "{left}");
    client.int("DLOCK.RELEASE k c");
    let left = client.int("PTTL k");
    assert!((30_000..=40_000).contains(&left), "{left}");
}
