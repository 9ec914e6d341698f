//! A reader that wants to write waits at the front of the queue. Only one reader at a time may wait there.

use crate::support::replica::counter;
use crate::support::{Server, hold, lock_info};

#[test]
fn an_upgrade_waits_at_the_front_and_keeps_reading() {
    let (server, mut client) = Server::start().with_client();
    for upgrade in ["WLOCK", "RACQUIRE"] {
        let read = client.int("DLOCK.RLOCK k a");
        client.int("DLOCK.RLOCK k b");
        let mut waiters = server.waiters(["DLOCK.WLOCK k w BLOCK 0", "DLOCK.RLOCK k r BLOCK 0"]);
        let mut upgrader = server.waiter(format!("DLOCK.{upgrade} k a BLOCK 0"));
        assert_eq!(server.queue("k"), ["a", "w", "r"]);
        assert_eq!(server.holders("k"), ["a", "b"]);
        assert!(client.int(format!("DLOCK.CHECK k {read}")) > 0);
        client.int("DLOCK.RELEASE k b");
        let write = upgrader.granted();
        assert!(write > read);
        assert_eq!(lock_info(&mut client, "k").unwrap().mode, "both");
        assert_eq!(server.queue("k"), ["w", "r"]);
        // Owner a still reads, so neither the writer nor the reader behind it gets in.
        assert_eq!(client.int(format!("DLOCK.RELEASE k a TOKEN {write}")), 1);
        assert_eq!(server.queue("k"), ["w", "r"]);
        assert_eq!(client.int(format!("DLOCK.RELEASE k a TOKEN {read}")), 1);
        waiters[0].granted();
        client.int("DLOCK.RELEASE k w");
        waiters[1].granted();
        client.int("DLOCK.RELEASE k r");
    }
}

#[test]
fn a_second_upgrade_is_a_deadlock() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a");
    client.int("DLOCK.RLOCK k b");
    let mut writer = server.waiter("DLOCK.ACQUIRE k w BLOCK 0");
    let mut upgrader = server.waiter("DLOCK.WLOCK k a BLOCK 0");
    for command in ["WLOCK", "RACQUIRE"] {
        let deadlocks = counter(&mut client, "deadlocks");
        let error = client.error(format!("DLOCK.{command} k b BLOCK 100"));
        assert!(error.starts_with("DEADLOCK "), "{error}");
        assert_eq!(counter(&mut client, "deadlocks"), deadlocks + 1);
        client.nil(format!("DLOCK.{command} k b"));
    }
    assert_eq!(server.queue("k"), ["a", "w"]);
    assert_eq!(server.holders("k"), ["a", "b"]);
    client.int("DLOCK.RELEASE k b");
    upgrader.granted();
    client.int("DLOCK.RELEASE k a ALL");
    writer.granted();
}

#[test]
fn an_upgrade_without_block_leaves_no_trace() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a");
    client.int("DLOCK.RLOCK k b");
    client.nil("DLOCK.WLOCK k a");
    // The first upgrade is undone, so b does not find another upgrade.
    let mut upgrader = server.waiter("DLOCK.WLOCK k b BLOCK 0");
    client.int("DLOCK.RELEASE k a");
    upgrader.granted();
}

#[test]
fn an_upgrade_keeps_its_place_when_its_shared_hold_lapses() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k b PX 600000");
    client.int("DLOCK.RLOCK k a PX 1000");
    let mut writer = server.waiter("DLOCK.WLOCK k w BLOCK 0");
    let mut upgrader = server.waiter("DLOCK.WLOCK k a BLOCK 0 PX 600000");
    assert_eq!(server.queue("k"), ["a", "w"]);
    crate::support::soon("its hold lapses", || server.holders("k") == ["b"]);
    assert_eq!(server.queue("k"), ["a", "w"]);
    client.int("DLOCK.RELEASE k b");
    upgrader.granted();
    assert!(hold(&mut client, "k", "a", "shared").is_none());
    assert_eq!(lock_info(&mut client, "k").unwrap().mode, "exclusive");
    assert_eq!(server.queue("k"), ["w"]);
    client.int("DLOCK.RELEASE k a");
    writer.granted();
}

#[test]
fn an_upgrade_is_served_when_the_last_other_lease_ends() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a PX 600000");
    client.int("DLOCK.RLOCK k c PX 600000");
    client.int("DLOCK.RLOCK k b PX 800");
    let mut writer = server.waiter("DLOCK.WLOCK k w BLOCK 0");
    let mut upgrader = server.waiter("DLOCK.WLOCK k a BLOCK 0");
    client.int("DLOCK.RELEASE k c");
    upgrader.granted();
    assert_eq!(lock_info(&mut client, "k").unwrap().mode, "both");
    assert_eq!(server.holders("k"), ["a", "a"]);
    writer.waits();
}

#[test]
fn an_upgrade_that_gives_up_lets_another_try() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a");
    client.int("DLOCK.RLOCK k b");
    let mut first = server.waiter("DLOCK.WLOCK k a BLOCK 50");
    first.gives_up();
    assert_eq!(server.holders("k"), ["a", "b"]);
    let mut second = server.waiter("DLOCK.WLOCK k b BLOCK 0");
    client.int("DLOCK.RELEASE k a");
    second.granted();
}

#[test]
fn readers_get_in_when_a_writer_downgrades() {
    let (server, mut client) = Server::start().with_client();
    let write = client.int("DLOCK.WLOCK k a");
    let read = client.int("DLOCK.RLOCK k a");
    let mut readers = server.waiters(["DLOCK.RLOCK k r1 BLOCK 0", "DLOCK.RLOCK k r2 BLOCK 0"]);
    let mut writer = server.waiter("DLOCK.WLOCK k w BLOCK 0");
    let mut last = server.waiter("DLOCK.RLOCK k r3 BLOCK 0");
    assert_eq!(client.int("DLOCK.RELEASE k a WRITE"), 1);
    readers.iter_mut().for_each(|reader| assert!(reader.granted() > write));
    assert_eq!(server.holders("k"), ["a", "r1", "r2"]);
    assert!(client.int(format!("DLOCK.CHECK k {read}")) > 0);
    writer.waits();
    last.waits();
    assert_eq!(server.queue("k"), ["w", "r3"]);
}

#[test]
fn an_upgrade_whose_hold_is_released_is_still_an_upgrade() {
    for end in ["DLOCK.RELEASE k a", "a lapse"] {
        let (server, mut client) = Server::start().with_client();
        client.int("DLOCK.RLOCK k b PX 600000");
        client.int("DLOCK.RLOCK k c PX 600000");
        client.int(format!("DLOCK.RLOCK k a PX {}", if end == "a lapse" { 600 } else { 600_000 }));
        let mut writer = server.waiter("DLOCK.WLOCK k w BLOCK 0");
        let mut upgrader = server.waiter("DLOCK.WLOCK k a BLOCK 0 PX 600000");
        if end != "a lapse" {
            client.int(end);
        }
        crate::support::soon("its hold is gone", || server.holders("k") == ["b", "c"]);
        assert_eq!(server.queue("k"), ["a", "w"], "{end}: it keeps its place");
        let error = client.error("DLOCK.WLOCK k b BLOCK 100");
        assert!(error.starts_with("DEADLOCK "), "{end}: {error}");
        client.int("DLOCK.RELEASE k b");
        // Owner c, now the only holder, may still upgrade: its upgrade is granted without a wait.
        client.int("DLOCK.WLOCK k c BLOCK 100");
        client.int("DLOCK.RELEASE k c ALL");
        upgrader.granted();
        writer.waits();
    }
}
