//! `DLOCK.MACQUIRE … REQUEST`: a request that is sent twice is carried out once.

use crate::several::owners;
use crate::support::replica::counter;
use crate::support::story::{story, tell};
use crate::support::{Server, int_of};

#[test]
fn a_repeat_gets_the_answer_of_the_first() {
    let (_server, mut client) = Server::start().with_client();
    story(
        &mut client,
        "MACQUIRE 2 x y a REQUEST 1        -> t1
         MACQUIRE 2 x y a REQUEST 1        -> t1
         # The order of the keys and other options do not matter.
         MACQUIRE 2 y x a REQUEST 1 PX 5   -> t1
         MACQUIRE 2 x y a REQUEST 1 BLOCK 0 -> t1
         INFO x                            -> count=1
         INFO y                            -> count=1
         # A request with another id, owner or command is no repeat.
         MACQUIRE 2 x y a REQUEST 2        -> nil
         MACQUIRE 2 x y b REQUEST 1        -> nil
         ACQUIRE x a REQUEST 1             -> nil
         MACQUIRE 2 x y a                  -> nil",
    );
    assert_eq!(counter(&mut client, "replays"), 3);
}

#[test]
fn the_answer_is_the_highest_token() {
    tell(
        "MACQUIRE 2 x y a REQUEST 1        -> t1
         ACQUIRE other b                   -> t2
         RENEW y a MINTOKEN t2             -> 1
         MACQUIRE 2 x y a REQUEST 1        -> t2
         RENEW x a TOKEN t1                -> 1",
    );
}

#[test]
fn a_request_of_which_a_hold_is_gone_is_no_repeat() {
    for act in ["DEL y", "DLOCK.RELEASE y a", "PEXPIRE y -1", "RENAME y z"] {
        let (server, mut client) = Server::start().with_client();
        client.int("DLOCK.MACQUIRE 3 w x y a REQUEST 1 PX 60000");
        client.run(act);
        client.nil("DLOCK.MACQUIRE 3 w x y a REQUEST 1");
        let error = client.error("DLOCK.MACQUIRE 3 w x y a REQUEST 1 BLOCK 0");
        assert!(error.starts_with("DEADLOCK "), "{act}: {error}");
        assert_eq!(owners(&server, "w x y"), "a a -", "{act}");
        // Each hold that is left knows the request: a request for just these is a repeat.
        assert!(client.int("DLOCK.MACQUIRE 2 w x a REQUEST 1") > 0, "{act}");
        // A request for more keys is no repeat either.
        client.nil("DLOCK.MACQUIRE 4 w x y v a REQUEST 1");
    }
    // A request on one of the holds replaces the record there.
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.MACQUIRE 2 x y a REQUEST 1");
    client.int("DLOCK.RACQUIRE y a REQUEST 2");
    client.nil("DLOCK.MACQUIRE 2 x y a REQUEST 1");
    client.int("DLOCK.MACQUIRE 1 x a REQUEST 1");
}

#[test]
fn a_repeat_binds_all_holds_to_its_session() {
    let (server, mut client) = Server::start().with_client();
    let mut session = server.client();
    let token = client.int("DLOCK.MACQUIRE 2 x y a REQUEST 1 PX 60000");
    assert_eq!(session.int("DLOCK.MACQUIRE 2 x y a REQUEST 1 SESSION"), token);
    let id = session.id();
    for key in ["x", "y"] {
        assert_eq!(client.session_of(key, "a", "exclusive"), Some(id));
    }
    client.watch_close(session);
    assert_eq!(owners(&server, "x y"), "- -");
}

#[test]
fn a_session_that_one_hold_cannot_have_binds_none() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.MACQUIRE 2 x y a REQUEST 1 PX 60000");
    client.int("DLOCK.RENEW y a PX 250");
    let error = client.error("DLOCK.MACQUIRE 2 x y a REQUEST 1 SESSION");
    assert!(error.starts_with("ERR SESSION needs a lease"), "{error}");
    assert_eq!(client.session_of("x", "a", "exclusive"), None);
    assert_eq!(counter(&mut client, "sessions"), 0);
}

#[test]
fn a_repeat_takes_the_place_of_the_request_that_waits() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE x h PX 60000");
    let mut first = server.waiter("DLOCK.MACQUIRE 2 x y a REQUEST 1 BLOCK 0 PX 60000");
    let mut behind = server.waiter("DLOCK.ACQUIRE y b BLOCK 0 PX 60000");
    // A repeat without BLOCK gets nil, and the queues are unchanged.
    client.nil("DLOCK.MACQUIRE 2 y x a REQUEST 1");
    let mut second = server.client();
    second.send("DLOCK.MACQUIRE 2 y x a REQUEST 1 BLOCK 0 PX 90000");
    first.gives_up();
    assert_eq!((server.queue("x"), server.queue("y")), (vec!["a".into()], vec!["a".into(), "b".to_owned()]));
    behind.waits();
    client.int("DLOCK.RELEASE x h");
    let token = second.granted();
    assert!(client.int("PTTL x") > 60_000, "the lease is that of the repeat");
    assert_eq!(client.int("DLOCK.MACQUIRE 2 x y a REQUEST 1"), token);
    client.int("DLOCK.RELEASE y a");
    behind.granted();
}

#[test]
fn another_set_of_keys_is_another_request() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE x h PX 60000");
    let mut first = server.waiter("DLOCK.MACQUIRE 2 x y a REQUEST 1 BLOCK 0");
    for other in ["1 x", "3 x y z", "2 x z"] {
        let mut waiter = server.waiter(format!("DLOCK.MACQUIRE {other} a REQUEST 1 BLOCK 20"));
        waiter.gives_up();
        first.waits();
    }
    // A request for one lock by ACQUIRE is no repeat either.
    server.waiter("DLOCK.ACQUIRE x a REQUEST 1 BLOCK 20").gives_up();
    first.waits();
    client.int("DLOCK.RELEASE x h");
    first.granted();
}

#[test]
fn the_first_gets_the_answer_of_a_repeat_that_was_granted_at_once() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE x h PX 60000");
    let mut first = server.waiter("DLOCK.MACQUIRE 2 x y a REQUEST 1 BLOCK 0 PX 60000");
    // The commands run in one turn. Between them, the lock is free, and the first request heads all its queues.
    let replies = client.pipeline(&["DLOCK.RELEASE x h", "DLOCK.MACQUIRE 2 x y a REQUEST 1"]);
    let token = int_of(replies[1].as_ref().unwrap());
    assert_eq!(first.granted(), token);
    assert_eq!(owners(&server, "x y"), "a a");
    assert_eq!(server.waiting(), 0);
}

#[test]
fn a_session_is_bound_although_looking_at_the_key_removes_an_expired_lock() {
    let (_server, [mut client, mut other]) = Server::start().with_clients();
    // The expired key stays until a command looks at it.
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for request in ["DLOCK.MACQUIRE 1 k b PX 5000 SESSION", "DLOCK.MACQUIRE 2 k k2 b PX 5000 SESSION"] {
        client.int("DLOCK.ACQUIRE k a PX 20");
        client.pass_ms(40);
        client.int(request);
        assert!(client.session_of("k", "b", "exclusive").is_some(), "{request}");
        let bound = if request.contains("k2") { 2 } else { 1 };
        assert_eq!(counter(&mut other, "sessions"), bound, "{request}");
        client.ok("FLUSHALL");
    }
}
