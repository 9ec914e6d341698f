//! A callback of another module deletes a lock while this module opens the expired key of another lock.

use crate::support::replica::counter;
use crate::support::{Setup, soon};

#[test]
fn a_lock_that_is_deleted_when_another_expires_serves_its_queue() {
    let (mut server, mut client) = Setup::new().hooks().start().with_client();
    server.tolerate("DEBUG");
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for request in ["ACQUIRE k1 c", "MACQUIRE 2 k0 k1 c", "RELEASE k1 a", "RENEW k1 a"] {
        client.int("DLOCK.ACQUIRE k2 a PX 600000");
        let mut waiter = server.waiter("DLOCK.ACQUIRE k2 b BLOCK 0");
        let token = client.int("DLOCK.ACQUIRE k1 a PX 5");
        client.pass(token / 1000 + 10);
        client.ok("DLOCK.MEDDLE k2");
        // Opening k1 removes it, and the server calls the other module before it goes on.
        let expired = counter(&mut client, "lapses");
        let _ = client.attempt(format!("DLOCK.{request}"));
        waiter.granted();
        assert_eq!(server.holders("k2"), ["b"], "{request}");
        assert_eq!(counter(&mut client, "lapses"), expired + 1, "{request}");
        client.int("DEL k0 k1 k2");
    }
}

#[test]
fn whatever_takes_a_lock_away_when_another_expires_serves_its_queue() {
    let (mut server, mut client) = Setup::new().hooks().start().with_client();
    server.tolerate("DEBUG");
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for way in [
        "UNLINK k2",
        "RENAME k2 elsewhere",
        "MOVE k2 1",
        "PEXPIREAT k2 1",
        "COPY other k2 REPLACE",
        "SWAPDB 0 1",
        "FLUSHALL",
    ] {
        for request in ["ACQUIRE k1 c", "RLOCK k1 c", "RELEASE k1 a", "CHECK k1 1", "MACQUIRE 2 k0 k1 c"] {
            client.ok("SET other x");
            client.int("DLOCK.ACQUIRE k2 a PX 600000");
            let mut waiter = server.waiter("DLOCK.ACQUIRE k2 b BLOCK 0");
            let token = client.int("DLOCK.ACQUIRE k1 a PX 5");
            client.pass(token / 1000 + 10);
            client.ok(format!("DLOCK.MEDDLE k2 {way}"));
            let _ = client.attempt(format!("DLOCK.{request}"));
            if way.starts_with("COPY") {
                assert!(waiter.read().is_err_and(|error| error.starts_with("WRONGTYPE")), "{way}, {request}");
            } else {
                waiter.granted();
                assert_eq!(server.holders("k2"), ["b"], "{way}, {request}");
            }
            client.ok("FLUSHALL");
        }
    }
}

#[test]
fn a_waiter_that_another_module_unblocks_is_told_of_its_grant() {
    let (server, mut client) = Setup::new().hooks().start().with_client();
    for (event, act) in [
        ("dlock.release", "DLOCK.RELEASE k a"),
        ("dlock.acquire", "DLOCK.RELEASE k a"),
        ("dlock.release", "DLOCK.RELEASE k a ALL"),
        ("dlock.lapse", "DLOCK.RENEW k a PX 1"),
        ("dlock.acquire", "DLOCK.RENEW k a PX 1"),
        ("dlock.acquire", "DEL k"),
    ] {
        for request in ["ACQUIRE k b BLOCK 0", "RLOCK k b BLOCK 0", "MACQUIRE 2 k l b BLOCK 0"] {
            client.int("DLOCK.ACQUIRE k a PX 600000");
            let mut waiter = server.client();
            let id = waiter.id();
            server.enters_queue(&mut waiter, format!("DLOCK.{request}"));
            client.ok(format!("DLOCK.MEDDLE other AT {event} CLIENT UNBLOCK {id}"));
            client.int(act);
            let token = waiter.granted();
            assert_eq!(server.holders("k"), ["b"], "{event}, {act}, {request}");
            // The reply was the only one.
            assert_eq!(client.int(format!("DLOCK.CHECK k {token}")).signum(), 1, "{event}, {act}, {request}");
            assert_eq!(waiter.id(), id, "{event}, {act}, {request}");
            client.ok("FLUSHALL");
        }
    }
}

#[test]
fn a_waiter_that_another_module_unblocks_during_the_work_gets_no_lock() {
    let (mut server, mut client) = Setup::new().hooks().start().with_client();
    server.tolerate("DEBUG");
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for act in ["DLOCK.RELEASE k a", "DLOCK.ACQUIRE k c", "DLOCK.RLOCK k c", "DLOCK.MACQUIRE 2 k l c"] {
        client.int("DLOCK.ACQUIRE k a PX 600000");
        let mut waiter = server.client();
        let id = waiter.id();
        server.enters_queue(&mut waiter, "DLOCK.ACQUIRE k b BLOCK 0");
        client.ok(format!("DLOCK.MEDDLE other CLIENT UNBLOCK {id}"));
        client.int("PEXPIRE k 3");
        client.pass_ms(20);
        let _ = client.attempt(act);
        waiter.gives_up();
        assert!(!server.holders("k").contains(&"b".to_owned()), "{act}");
        client.ok("FLUSHALL");
    }
}

#[test]
fn a_waiter_that_another_module_unblocks_after_its_grant_in_the_same_work_is_told_of_it() {
    let (mut server, mut client) = Setup::new().hooks().start().with_client();
    server.tolerate("DEBUG");
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for expired in ["SET l x PX 3", "DLOCK.ACQUIRE l x PX 3"] {
        client.int("DLOCK.ACQUIRE k a PX 600000");
        let mut waiter = server.client();
        let id = waiter.id();
        server.enters_queue(&mut waiter, "DLOCK.ACQUIRE k b BLOCK 0");
        client.run(expired);
        client.int("PEXPIRE k 3");
        client.ok(format!("DLOCK.MEDDLE k CLIENT UNBLOCK {id}"));
        client.pass_ms(20);
        // The command meets k first, whose waiter gets in, and l then.
        let _ = client.attempt("DLOCK.MACQUIRE 2 k l c");
        waiter.granted();
        assert_eq!(server.holders("k"), ["b"], "{expired}");
        client.ok("FLUSHALL");
    }
}

#[test]
fn the_end_of_a_repeated_request_leaves_its_repeat_waiting() {
    let (mut server, mut client) = Setup::new().hooks().start().with_client();
    server.tolerate("DEBUG");
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let request = "DLOCK.MACQUIRE 2 k l w BLOCK 0 REQUEST r";
    for end in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
        client.int("DLOCK.ACQUIRE k a PX 600000");
        client.int("DLOCK.ACQUIRE l a PX 600000");
        let mut first = server.client();
        let id = first.id();
        server.enters_queue(&mut first, request);
        client.ok(format!("DLOCK.MEDDLE other {end} {id}"));
        client.int("PEXPIRE k 3");
        client.pass_ms(20);
        // The repeat opens k, which has expired, and another module ends the wait of the first meanwhile.
        let before = counter(&mut client, "replays");
        let mut repeat = server.client();
        repeat.send(request);
        soon("the repeat waits", || counter(&mut client, "replays") > before);
        assert_eq!(server.queue("l"), ["w"], "{end}");
        client.int("DLOCK.RELEASE l a");
        repeat.granted();
        client.ok("FLUSHALL");
    }
}
