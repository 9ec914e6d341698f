//! Modes of entry: exclusive, reentrant, shared, downgrade, upgrade.

use std::sync::atomic::{AtomicI64, Ordering};

use redis::Value;

use crate::support::Server;
use crate::support::story::tell;

#[test]
fn exclusive_excludes_every_other_owner() {
    for first in ["ACQUIRE", "RACQUIRE", "WLOCK"] {
        tell(&format!(
            "{first} k a    -> t1
             ACQUIRE k b    -> nil
             RACQUIRE k b   -> nil
             WLOCK k b      -> nil
             RLOCK k b      -> nil
             INFO k FULL    -> mode=exclusive holders=1 count=1 token=t1 holds=a
             ACQUIRE other b -> t2
             RELEASE k a    -> 1
             INFO k         -> nil
             EXISTS k       -> 0
             ACQUIRE k b    -> t3"
        ));
    }
}

#[test]
fn acquire_is_not_reentrant() {
    tell(
        "ACQUIRE k a       -> t1
         ACQUIRE k a       -> nil
         INFO k            -> count=1
         RACQUIRE r a      -> t2
         ACQUIRE r a       -> nil
         INFO r            -> count=1
         RLOCK s a         -> t3
         ACQUIRE s a       -> nil
         INFO s            -> mode=shared count=1",
    );
}

#[test]
fn reentrant_commands_count_entries_and_keep_the_token() {
    tell(
        "RACQUIRE k a      -> t1
         RACQUIRE k a      -> t1
         WLOCK k a         -> t1
         INFO k FULL       -> mode=exclusive holders=1 count=3 token=t1 holds=a
         RELEASE k a       -> 0
         RELEASE k a       -> 0
         INFO k            -> mode=exclusive count=1
         ACQUIRE k b       -> nil
         RELEASE k a       -> 1
         RELEASE k a       -> nil
         # RACQUIRE and WLOCK are the same lock, and re-enter what ACQUIRE has taken
         ACQUIRE k a       -> t2
         RACQUIRE k a      -> t2
         WLOCK k a         -> t2
         INFO k            -> count=3",
    );
}

#[test]
fn readers_share_and_keep_writers_out() {
    tell(
        "RLOCK k a         -> t1
         RLOCK k b         -> t2
         RLOCK k c         -> t3
         RLOCK k b         -> t2
         INFO k FULL       -> mode=shared holders=3 count=4 token=t3 holds=a,b,c
         ACQUIRE k d       -> nil
         RACQUIRE k d      -> nil
         WLOCK k d         -> nil
         RELEASE k b       -> 0
         RELEASE k b       -> 1
         RELEASE k b       -> nil
         RELEASE k a       -> 1
         WLOCK k d         -> nil
         RELEASE k c       -> 1
         EXISTS k          -> 0
         WLOCK k d         -> t4",
    );
}

#[test]
fn a_writer_may_read_and_then_give_up_writing() {
    for write in ["ACQUIRE", "RACQUIRE", "WLOCK"] {
        tell(&format!(
            "{write} k a         -> t1
             RLOCK k a           -> t2
             INFO k FULL         -> mode=both holders=1 count=2 token=t2 holds=a,a
             RLOCK k a           -> t2
             RLOCK k b           -> nil
             INFO k              -> mode=both holders=1 count=3
             RELEASE k a WRITE   -> 1
             INFO k FULL         -> mode=shared holders=1 count=2 token=t2 holds=a
             RLOCK k b           -> t3
             WLOCK k b           -> nil
             RELEASE k a         -> 0
             RELEASE k a         -> 1"
        ));
    }
}

#[test]
fn a_lone_reader_may_write() {
    for write in ["RACQUIRE", "WLOCK"] {
        tell(&format!(
            "RLOCK k a           -> t1
             RLOCK k b           -> t2
             {write} k a         -> nil
             {write} k b         -> nil
             INFO k              -> mode=shared holders=2 count=2
             RELEASE k b         -> 1
             {write} k a         -> t3
             INFO k FULL         -> mode=both holders=1 count=2 token=t3 holds=a,a
             {write} k a         -> t3
             RLOCK k a           -> t1
             RLOCK k b           -> nil
             RELEASE k a READ    -> 0
             RELEASE k a READ    -> 1
             INFO k              -> mode=exclusive count=2 token=t3
             RLOCK k b           -> nil"
        ));
    }
}

#[test]
fn locks_of_two_databases_are_two_locks() {
    tell(
        "ACQUIRE k a       -> t1
         SELECT 1          -> OK
         ACQUIRE k b       -> t2
         INFO k FULL       -> holds=b
         SELECT 0          -> OK
         RELEASE k b       -> nil
         INFO k FULL       -> holds=a",
    );
}

#[test]
fn at_most_one_writer_or_only_readers_are_inside() {
    const WRITER: i64 = 1000;
    let server = Server::start();
    let inside = AtomicI64::new(0);
    let entries = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (inside, entries, mut client) = (&inside, &entries, server.client());
            scope.spawn(move || {
                let (command, weight) = if thread % 2 == 0 { ("RLOCK", 1) } else { ("WLOCK", WRITER) };
                let mut entered = 0;
                while entered < 50 {
                    let Value::Int(token) = client.run(format!("DLOCK.{command} k o{thread} PX 60000")) else {
                        continue;
                    };
                    let others = inside.fetch_add(weight, Ordering::SeqCst);
                    assert!(if weight == WRITER { others == 0 } else { others < WRITER }, "{others} inside");
                    inside.fetch_sub(weight, Ordering::SeqCst);
                    assert_eq!(client.int(format!("DLOCK.RELEASE k o{thread} TOKEN {token}")), 1);
                    entered += 1;
                    entries.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(entries.into_inner(), 400);
    assert_eq!(server.client().int("EXISTS k"), 0);
}
