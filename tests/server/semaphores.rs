//! Semaphores: `DLOCK.SACQUIRE` takes permits, as entries of a shared hold, up to the limit that the request names.

use redis::Value;

use crate::support::replica::counter;
use crate::support::story::{story, tell};
use crate::support::{Server, hold, int_of, list_of, lock_info, text_of};

#[test]
fn at_most_limit_permits_are_taken() {
    tell(
        "SACQUIRE k a 2          -> t1
         SACQUIRE k b 2          -> t2
         SACQUIRE k c 2          -> nil
         INFO k                  -> mode=shared holders=2 count=2 token=t2
         RELEASE k a             -> 1
         SACQUIRE k c 2          -> t3
         RELEASE k b             -> 1
         RELEASE k c             -> 1
         INFO k                  -> nil
         EXISTS k                -> 0",
    );
}

#[test]
fn several_permits_are_taken_together_or_not_at_all() {
    tell(
        "SACQUIRE k a 5 PERMITS 3 -> t1
         SACQUIRE k b 5 PERMITS 3 -> nil
         INFO k                   -> holders=1 count=3
         SACQUIRE k b 5 PERMITS 2 -> t2
         SACQUIRE k c 5           -> nil
         INFO k                   -> holders=2 count=5 token=t2
         RELEASE k a PERMITS 4    -> nil
         INFO k                   -> holders=2 count=5
         RELEASE k a PERMITS 2    -> 0
         INFO k                   -> holders=2 count=3
         RELEASE k a PERMITS 2    -> nil
         RELEASE k a PERMITS 1    -> 1
         RELEASE k b ALL          -> 1
         EXISTS k                 -> 0",
    );
}

#[test]
fn a_permit_is_an_ordinary_shared_hold() {
    let (server, mut session) = Server::start().with_client();
    let token = session.leaves("k", 5000, "DLOCK.SACQUIRE k a 9 PERMITS 4 PX 5000 SESSION");
    let info = lock_info(&mut session, "k FULL").unwrap();
    let held = &info.holds()[0];
    assert_eq!((info.mode.as_str(), held.mode.as_str(), held.count, held.token), ("shared", "shared", 4, token));
    assert_eq!(int_of(&held.session), session.id());
    assert!(session.int(format!("DLOCK.CHECK k {token}")) > 0);
    assert_eq!(session.leaves("k", 9000, format!("DLOCK.RENEW k a PX 9000 READ TOKEN {token}")), 1);
    assert_eq!(session.text("TYPE k"), "distrlock");
    // All permits end with the session.
    let mut client = server.client();
    client.watch_close(session);
    assert_eq!(client.int("EXISTS k"), 0);
    assert_eq!(["session_ends", "releases"].map(|name| counter(&mut client, name)), [1, 1]);
}

#[test]
fn each_request_is_judged_by_its_own_limit() {
    tell(
        "SACQUIRE k a 5 PERMITS 3 -> t1
         # A lower limit throws nobody out, and lets nobody in until the permits fit.
         SACQUIRE k b 3           -> nil
         SACQUIRE k b 1           -> nil
         INFO k                   -> holders=1 count=3
         SACQUIRE k b 4           -> t2
         SACQUIRE k c 4           -> nil
         RELEASE k a PERMITS 2    -> 0
         SACQUIRE k c 2           -> nil
         SACQUIRE k c 3           -> t3
         # Nothing remembers a limit.
         SACQUIRE k d 1000        -> t4
         RLOCK k e                -> t5
         INFO k                   -> holders=5 count=5",
    );
}

#[test]
fn every_shared_entry_is_a_permit_whichever_command_created_it() {
    tell(
        "RLOCK k a                -> t1
         RLOCK k a                -> t1
         SACQUIRE k b 2           -> nil
         SACQUIRE k b 3           -> t2
         # RLOCK has no limit.
         RLOCK k c                -> t3
         SACQUIRE k d 4           -> nil
         SACQUIRE k a 5           -> t1
         INFO k OWNER a           -> count=5 holds=a
         RELEASE k a PERMITS 3    -> 1",
    );
}

#[test]
fn writers_need_all_permits_back() {
    tell(
        "SACQUIRE k a 2           -> t1
         SACQUIRE k b 2           -> t2
         ACQUIRE k w              -> nil
         RACQUIRE k w             -> nil
         WLOCK k w                -> nil
         # A holder of permits may not write beside others, either.
         WLOCK k a                -> nil
         RELEASE k b              -> 1
         ACQUIRE k a              -> nil
         WLOCK k a                -> t3
         INFO k                   -> mode=both holders=1 count=2
         SACQUIRE k b 9           -> nil
         RELEASE k a WRITE        -> 1
         SACQUIRE k b 2           -> t4
         RELEASE k a              -> 1
         RELEASE k b              -> 1
         WLOCK k w                -> t5
         SACQUIRE k a 9           -> nil",
    );
}

#[test]
fn the_exclusive_owner_takes_permits_up_to_the_limit() {
    let server = Server::start();
    story(
        &mut server.client(),
        "WLOCK k a                -> t1
         SACQUIRE k a 3 PERMITS 2 -> t2
         INFO k                   -> mode=both holders=1 count=3
         SACQUIRE k a 3 PERMITS 2 -> nil
         SACQUIRE k a 3           -> t2
         SACQUIRE k b 9           -> nil
         RELEASE k a PERMITS 1    -> ! AMBIGUOUS
         RELEASE k a WRITE        -> 1
         SACQUIRE k b 3           -> nil
         SACQUIRE k b 4           -> t3
         INFO k                   -> mode=shared holders=2 count=4",
    );
    let mut client = server.client();
    client.int("DLOCK.WLOCK l a");
    client.int("DLOCK.SACQUIRE l a 1");
    assert!(client.error("DLOCK.SACQUIRE l a 1 BLOCK 0").starts_with("DEADLOCK "));
}

#[test]
fn more_permits_follow_the_rules_of_reentry() {
    let (_server, mut client) = Server::start().with_client();
    let token = client.leaves("k", 600_000, "DLOCK.SACQUIRE k a 9 PERMITS 2 PX 600000");
    let end = client.end_of("k");
    assert_eq!(client.int("DLOCK.SACQUIRE k a 9 PERMITS 3 PX 10"), token, "the token of the first entry");
    assert_eq!(client.end_of("k"), end, "never shorter");
    assert_eq!(client.leaves("k", 700_000, "DLOCK.SACQUIRE k a 9 PX 700000"), token, "never added up");
    assert_eq!(hold(&mut client, "k", "a", "shared").unwrap().count, 6);
    assert_eq!(["grants", "reentries"].map(|name| counter(&mut client, name)), [1, 2], "once for each request");
    // Without a lease, re-entry uses the hold's own, also after a part was released.
    assert_eq!(client.int("DLOCK.RELEASE k a PERMITS 4"), 0);
    assert_eq!(client.leaves("k", 700_000, "DLOCK.SACQUIRE k a 9"), token);
    assert_eq!(hold(&mut client, "k", "a", "shared").unwrap().count, 3);
}

#[test]
fn a_wait_that_can_never_be_granted_is_refused_at_once() {
    let (_server, mut client) = Server::start().with_client();
    story(
        &mut client,
        "SACQUIRE k a 3 PERMITS 2         -> t1
         SACQUIRE k a 3 PERMITS 2         -> nil
         SACQUIRE k a 3 PERMITS 2 BLOCK 0 -> ! DEADLOCK
         SACQUIRE k a 1 BLOCK 0           -> ! DEADLOCK
         SACQUIRE k a 3 BLOCK 0           -> t1
         INFO k                           -> holders=1 count=3",
    );
    assert_eq!(["refusals", "deadlocks", "waits"].map(|name| counter(&mut client, name)), [1, 2, 0]);
}

#[test]
fn the_server_makes_up_an_owner_for_a_permit() {
    let (server, mut client) = Server::start().with_client();
    let mut owners: Vec<_> = (0..3).map(|_| list_of(&client.run("DLOCK.SACQUIRE k * 3"))).collect();
    client.nil("DLOCK.SACQUIRE k * 3");
    let info = lock_info(&mut client, "k FULL").unwrap();
    assert_eq!((info.holders, info.count), (3, 3), "an owner per permit");
    let last = owners.pop().unwrap();
    let (owner, token) = (text_of(&last[0]), int_of(&last[1]));
    assert_eq!(owner.len(), 36);
    assert_eq!(client.int(format!("DLOCK.RELEASE k {owner} TOKEN {token}")), 1);
    // A released permit goes to a waiter.
    assert_ne!(client.run("DLOCK.SACQUIRE k * 3"), Value::Nil);
    let mut waiter = server.waiter("DLOCK.SACQUIRE k * 3 BLOCK 0");
    let first = text_of(&owners[0][0]);
    client.int(format!("DLOCK.RELEASE k {first}"));
    assert_eq!(list_of(&waiter.read().unwrap()).len(), 2);
}

#[test]
fn replies_are_those_of_acquire_in_both_protocols() {
    let server = Server::start();
    let (mut two, mut three) = (server.client(), server.client().resp3());
    assert!(two.exact("DLOCK.SACQUIRE k a 2").starts_with(b":"));
    assert!(three.exact("DLOCK.SACQUIRE k b 2").starts_with(b":"));
    assert_eq!(two.exact("DLOCK.SACQUIRE k c 2"), b"$-1\r\n");
    assert_eq!(three.exact("DLOCK.SACQUIRE k c 2"), b"_\r\n");
    assert_eq!(two.exact("DLOCK.RELEASE k a PERMITS 2"), b"$-1\r\n");
    assert_eq!(three.exact("DLOCK.RELEASE k a PERMITS 2"), b"_\r\n");
    for client in [&mut two, &mut three] {
        assert!(client.exact("DLOCK.SACQUIRE other * 9").starts_with(b"*2\r\n$36\r\n"));
    }
}

#[test]
fn a_transaction_and_a_script_never_wait_for_a_permit() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.SACQUIRE k a 1");
    client.ok("MULTI");
    client.text("DLOCK.SACQUIRE k b 1 BLOCK 0");
    client.text("DLOCK.SACQUIRE k b 2 BLOCK 0 PERMITS 1");
    let replies = list_of(&client.run("EXEC"));
    assert_eq!(replies[0], Value::Nil);
    assert!(int_of(&replies[1]) > 0);
    let script = |body: &str| vec!["EVAL".to_owned(), body.to_owned(), "1".to_owned(), "k".to_owned()];
    client.nil(script("return redis.call('DLOCK.SACQUIRE', KEYS[1], 'c', 2, 'BLOCK', 0)"));
    assert!(client.int(script("return redis.call('DLOCK.SACQUIRE', KEYS[1], 'c', 3, 'BLOCK', 0)")) > 0);
    let error = client.error(script("return redis.call('DLOCK.SACQUIRE', KEYS[1], 'd', 9, 'SESSION')"));
    assert!(error.contains("SESSION needs a client connection"), "{error}");
    assert_eq!(server.waiting(), 0);
}

#[test]
fn a_repeat_takes_no_permit_twice() {
    tell(
        "SACQUIRE k a 5 PERMITS 2 REQUEST 1 -> t1
         SACQUIRE k a 5 PERMITS 2 REQUEST 1 -> t1
         # The other arguments of the repeat are ignored.
         SACQUIRE k a 1 REQUEST 1           -> t1
         INFO k                             -> count=2
         # Another command with this id is another request.
         RLOCK k a REQUEST 1                -> t1
         INFO k                             -> count=3
         SACQUIRE k a 5 REQUEST 2           -> t1
         INFO k                             -> count=4
         RELEASE k a PERMITS 2 REQUEST 3    -> 0
         RELEASE k a PERMITS 2 REQUEST 3    -> 0
         RELEASE k a ALL REQUEST 3          -> 0
         INFO k                             -> count=2
         # A final release leaves no hold that could record it.
         RELEASE k a PERMITS 2 REQUEST 4    -> 1
         RELEASE k a PERMITS 2 REQUEST 4    -> nil",
    );
}

#[test]
fn a_release_of_permits_works_in_either_mode() {
    tell(
        "RACQUIRE k a                     -> t1
         RACQUIRE k a                     -> t1
         RACQUIRE k a                     -> t1
         RELEASE k a PERMITS 2            -> 0
         RELEASE k a PERMITS 2            -> nil
         INFO k                           -> count=1
         SACQUIRE k a 2 PERMITS 2         -> t2
         RELEASE k a PERMITS 2            -> ! AMBIGUOUS
         RELEASE k a PERMITS 2 WRITE      -> nil
         RELEASE k a PERMITS 1 TOKEN t1   -> 1
         RELEASE k a READ PERMITS 1       -> 0
         RELEASE k a PERMITS 1 TOKEN t1   -> nil
         RELEASE k a TOKEN t2 PERMITS 1   -> 1
         RELEASE k a PERMITS 1            -> nil",
    );
}

#[test]
fn a_key_of_another_type_and_a_replica_refuse_permits() {
    let (server, mut client) = Server::start().with_client();
    client.ok("SET k v");
    for request in ["SACQUIRE k a 1", "SACQUIRE k a 1 BLOCK 0", "RELEASE k a PERMITS 1"] {
        assert!(client.error(format!("DLOCK.{request}")).starts_with("WRONGTYPE "), "{request}");
    }
    assert_eq!(client.text("GET k"), "v");
    let replica = server.replica();
    assert!(replica.client().error("DLOCK.SACQUIRE l a 1").starts_with("READONLY "));
}
