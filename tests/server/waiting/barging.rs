//! Nobody passes those who wait, but for an owner that is inside already.

use crate::support::replica::counter;
use crate::support::story::story;
use crate::support::{Server, lock_info};

#[test]
fn a_reader_does_not_pass_a_waiting_writer() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.RLOCK k a");
    let mut writer = server.waiter("DLOCK.WLOCK k w BLOCK 0");
    let refusals = counter(&mut client, "refusals");
    client.nil("DLOCK.RLOCK k b");
    client.nil("DLOCK.RLOCK k *");
    assert_eq!(counter(&mut client, "refusals"), refusals + 2);
    let mut reader = server.waiter("DLOCK.RLOCK k b BLOCK 0");
    assert_eq!(server.queue("k"), ["w", "b"]);
    reader.waits();
    client.int("DLOCK.RELEASE k a");
    writer.granted();
    reader.waits();
    client.int("DLOCK.RELEASE k w");
    reader.granted();
    // Nobody waits any more: readers come and go.
    client.int("DLOCK.RLOCK k c");
}

#[test]
fn a_newcomer_gets_nothing_of_a_lock_that_is_handed_over() {
    let (server, mut client) = Server::start().with_client();
    for first in ["ACQUIRE", "RLOCK"] {
        for late in ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK"] {
            client.int(format!("DLOCK.{first} k a"));
            let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
            let replies = client.pipeline(&["DLOCK.RELEASE k a".to_owned(), format!("DLOCK.{late} k late")]);
            assert_eq!(replies, [Ok(redis::Value::Int(1)), Ok(redis::Value::Nil)], "{late}");
            waiter.granted();
            client.int("DLOCK.RELEASE k b");
        }
    }
}

#[test]
fn a_lease_that_ended_belongs_to_the_head_of_the_queue() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 500");
    let mut waiter = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    // From long before the deadline until long after: nobody else gets in, and b is not passed.
    let end = client.now() + 600;
    while client.now() < end {
        client.nil("DLOCK.ACQUIRE k late");
    }
    waiter.granted();
}

#[test]
fn re_entry_passes() {
    let (server, mut client) = Server::start().with_client();
    let tokens = story(&mut client, "WLOCK k a -> t1\nRLOCK r a -> t2\nRLOCK r b -> t3");
    let mut waiters = server.waiters(["DLOCK.WLOCK k w BLOCK 0", "DLOCK.WLOCK r w2 BLOCK 0"]);
    for way in ["", " BLOCK 0", " BLOCK 100"] {
        for command in ["RACQUIRE", "WLOCK"] {
            assert_eq!(client.int(format!("DLOCK.{command} k a{way}")), tokens["t1"]);
        }
        assert_eq!(client.int(format!("DLOCK.RLOCK r a{way}")), tokens["t2"]);
        assert_eq!(client.int(format!("DLOCK.RLOCK r b{way}")), tokens["t3"]);
    }
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 7);
    assert_eq!(lock_info(&mut client, "r").unwrap().count, 8);
    waiters.iter_mut().for_each(|waiter| waiter.waits());
    assert_eq!(client.int("DLOCK.RELEASE k a ALL"), 1);
    waiters[0].granted();
    assert_eq!(client.int("DLOCK.RELEASE r a ALL"), 1);
    waiters[1].waits();
    assert_eq!(client.int("DLOCK.RELEASE r b ALL"), 1);
    waiters[1].granted();
}

#[test]
fn the_only_holder_may_upgrade_and_the_writer_may_read() {
    let (server, mut client) = Server::start().with_client();
    for (hold, second) in [("RLOCK", "WLOCK"), ("RLOCK", "RACQUIRE"), ("WLOCK", "RLOCK"), ("ACQUIRE", "RLOCK")] {
        for way in ["", " BLOCK 0"] {
            client.int(format!("DLOCK.{hold} k a"));
            let mut waiters = server.waiters(["DLOCK.WLOCK k w BLOCK 0", "DLOCK.RLOCK k r BLOCK 0"]);
            client.int(format!("DLOCK.{second} k a{way}"));
            assert_eq!(lock_info(&mut client, "k").unwrap().mode, "both");
            assert_eq!(server.queue("k"), ["w", "r"]);
            assert_eq!(client.int("DLOCK.RELEASE k a ALL"), 1);
            waiters[0].granted();
            assert_eq!(client.int("DLOCK.RELEASE k w"), 1);
            waiters[1].granted();
            assert_eq!(client.int("DLOCK.RELEASE k r"), 1);
        }
    }
}

#[test]
fn a_request_that_is_granted_at_once_does_not_wait() {
    let (_server, mut client) = Server::start().with_client();
    story(
        &mut client,
        "ACQUIRE k a BLOCK 0                    -> t1
         RELEASE k a                            -> 1
         RLOCK k a PX 60000 BLOCK 100           -> t2
         RLOCK k b BLOCK 100 PX 60000           -> t3
         RELEASE k a                            -> 1
         WLOCK k b block 5000                   -> t4
         RELEASE k b ALL                        -> 1
         RACQUIRE k a BLOCK 9223372036854000000 -> ! ERR timeout is not an integer or out of range: BLOCK",
    );
    assert_eq!(counter(&mut client, "waits"), 0);
}
