//! A command that is sent again with the `REQUEST` id of the first is not executed again.

use redis::Value;

use crate::support::replica::counter;
use crate::support::state::{assert_same, state};
use crate::support::story::tell;
use crate::support::{Client, Server, hold, lock_info, req, soon};

/// Sends a request, waits until `done` sees that the server has executed it, and closes the connection. Reads the reply
/// first if `delivered`.
#[track_caller]
fn first(server: &Server, request: &str, delivered: bool, done: impl FnMut() -> bool) -> Option<Value> {
    let mut client = server.client();
    client.send(request);
    let reply = delivered.then(|| client.read().expect("a reply"));
    soon("the first request is executed", done);
    reply
}

#[test]
fn an_acquisition_sent_again_gets_the_same_token() {
    for command in ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK"] {
        for delivered in [true, false] {
            for options in ["", " BLOCK 1000", " SESSION"] {
                let (server, mut client) = Server::start().with_client();
                let request = format!("DLOCK.{command} k a PX 600000 REQUEST id-1");
                let reply = first(&server, &request, delivered, || lock_info(&mut client, "k").is_some());
                let before = state(&mut client);
                let token = lock_info(&mut client, "k").unwrap().token;
                assert!(reply.is_none_or(|reply| reply == Value::Int(token)));
                let mut again = server.client();
                for _ in 0..3 {
                    assert_eq!(again.int(format!("{request}{options}")), token, "{command}{options}");
                }
                assert_same(command, &before, &state(&mut client));
                assert_eq!(lock_info(&mut client, "k").unwrap().count, 1, "{command}{options}");
                let counted = ["grants", "reentries", "replays"].map(|name| counter(&mut client, name));
                assert_eq!(counted, [1, 0, 3], "{command}{options}");
                assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
            }
        }
    }
}

#[test]
fn a_re_entry_sent_again_enters_once() {
    for (command, mode) in [("RACQUIRE", "exclusive"), ("WLOCK", "exclusive"), ("RLOCK", "shared")] {
        for delivered in [true, false] {
            let (server, mut client) = Server::start().with_client();
            let token = client.int(format!("DLOCK.{command} k a PX 600000 REQUEST id-1"));
            let request = format!("DLOCK.{command} k a REQUEST id-2");
            let entered = || hold(&mut client, "k", "a", mode).unwrap().count == 2;
            first(&server, &request, delivered, entered);
            assert_eq!(server.client().int(&request), token);
            assert_eq!(lock_info(&mut client, "k").unwrap().count, 2, "{command}, delivered {delivered}");
        }
    }
}

#[test]
fn a_partial_release_sent_again_gives_up_one_entry() {
    for delivered in [true, false] {
        let (server, mut client) = Server::start().with_client();
        for _ in 0..3 {
            client.int("DLOCK.RACQUIRE k a PX 600000");
        }
        let request = "DLOCK.RELEASE k a REQUEST id-1";
        let reply = first(&server, request, delivered, || lock_info(&mut client, "k").unwrap().count == 2);
        assert!(reply.is_none_or(|reply| reply == Value::Int(0)));
        for _ in 0..3 {
            assert_eq!(server.client().int(request), 0);
        }
        assert_eq!(lock_info(&mut client, "k").unwrap().count, 2);
        assert_eq!((counter(&mut client, "releases"), counter(&mut client, "replays")), (1, 3));
        assert_eq!(client.int("DLOCK.RELEASE k a REQUEST id-2"), 0);
        assert_eq!(client.int("DLOCK.RELEASE k a REQUEST id-3"), 1);
    }
}

#[test]
fn a_final_release_sent_again_gets_nil() {
    for request in ["DLOCK.RELEASE k a REQUEST id-1", "DLOCK.RELEASE k a ALL REQUEST id-1"] {
        for delivered in [true, false] {
            let (server, mut client) = Server::start().with_client();
            client.int("DLOCK.RACQUIRE k a PX 600000");
            let reply = first(&server, request, delivered, || lock_info(&mut client, "k").is_none());
            assert!(reply.is_none_or(|reply| reply == Value::Int(1)));
            server.client().nil(request);
            // The repeat does not touch another owner's hold.
            client.int("DLOCK.ACQUIRE k b");
            server.client().nil(request);
            assert_eq!(lock_info(&mut client, "k").unwrap().count, 1);
            assert_eq!(counter(&mut client, "replays"), 0);
        }
    }
}

#[test]
fn the_holders_acquisition_sent_again_is_not_refused() {
    tell(
        "ACQUIRE k a PX 600000 REQUEST id           -> t1
         ACQUIRE k a REQUEST id                     -> t1
         ACQUIRE k a BLOCK 0 REQUEST id             -> t1
         ACQUIRE k a REQUEST other                  -> nil
         ACQUIRE k a BLOCK 0 REQUEST other          -> ! DEADLOCK
         ACQUIRE k a REQUEST id                     -> t1
         RLOCK k a REQUEST id                       -> t2
         ACQUIRE k a REQUEST id                     -> t1
         INFO k                                     -> mode=both count=2",
    );
}

#[test]
fn a_repeat_has_the_same_command_id_owner_mode_and_key() {
    tell(
        "RACQUIRE k a PX 600000 REQUEST id   -> t1
         WLOCK k a REQUEST id                -> t1
         INFO k                              -> count=2
         RLOCK k a REQUEST id                -> t2
         INFO k                              -> count=3
         RELEASE k a READ REQUEST id         -> 1
         RELEASE k a REQUEST id              -> 0
         RELEASE k a REQUEST id              -> 0
         INFO k                              -> count=1
         RACQUIRE k a REQUEST ID             -> t1
         RACQUIRE k a REQUEST id             -> t1
         INFO k                              -> count=3
         RACQUIRE k b REQUEST id             -> nil
         RACQUIRE l a REQUEST id             -> t3
         RLOCK r a PX 600000 REQUEST id      -> t4
         RLOCK r b PX 600000 REQUEST id      -> t5
         RLOCK r a REQUEST id                -> t4
         RLOCK r b REQUEST id                -> t5
         INFO r                              -> count=2
         SELECT 1                            -> OK
         RACQUIRE k a REQUEST id             -> t6
         SELECT 0                            -> OK",
    );
}

#[test]
fn both_modes_have_a_record_each() {
    tell(
        "WLOCK k a PX 600000 REQUEST w      -> t1
         WLOCK k a                          -> t1
         RLOCK k a PX 600000 REQUEST r      -> t2
         RLOCK k a                          -> t2
         WLOCK k a REQUEST w                -> t1
         RLOCK k a REQUEST r                -> t2
         INFO k                             -> count=4
         RELEASE k a REQUEST x              -> ! AMBIGUOUS
         RELEASE k a READ REQUEST x         -> 0
         RELEASE k a READ REQUEST x         -> 0
         WLOCK k a REQUEST w                -> t1
         RELEASE k a WRITE REQUEST x        -> 0
         RELEASE k a WRITE REQUEST x        -> 0
         INFO k                             -> count=2
         RELEASE k a ALL REQUEST y          -> 1
         RELEASE k a ALL REQUEST y          -> nil",
    );
}

#[test]
fn another_id_replaces_the_record_and_commands_without_one_keep_it() {
    tell(
        "RACQUIRE k a PX 600000 REQUEST one   -> t1
         RACQUIRE k a                         -> t1
         WLOCK k a                            -> t1
         RELEASE k a                          -> 0
         RENEW k a PX 700000                  -> 1
         RLOCK k a REQUEST one                -> t2
         RELEASE k a READ                     -> 1
         RENAME k l                           -> OK
         RENAME l k                           -> OK
         RACQUIRE k a REQUEST one             -> t1
         INFO k                               -> count=2
         RACQUIRE k a REQUEST two             -> t1
         RACQUIRE k a REQUEST one             -> t1
         INFO k                               -> count=4
         RELEASE k a REQUEST three            -> 0
         RACQUIRE k a REQUEST one             -> t1
         INFO k                               -> count=4
         RACQUIRE k b REQUEST one             -> nil
         RACQUIRE k a REQUEST one             -> t1
         INFO k                               -> count=4
         DEL k                                -> 1
         RACQUIRE k a REQUEST one             -> t3
         INFO k                               -> count=1",
    );
}

#[test]
fn a_repeat_gets_the_token_that_the_hold_has_now() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k a PX 600000 REQUEST id");
    let lifted = client.now_us() + 5_000_000;
    assert_eq!(client.int(format!("DLOCK.RENEW k a MINTOKEN {lifted}")), 1);
    assert_eq!(client.int("DLOCK.ACQUIRE k a REQUEST id"), lifted);
}

#[test]
fn other_arguments_are_checked_and_then_ignored() {
    let (_server, mut client) = Server::start().with_client();
    client.int("DLOCK.RACQUIRE k a PX 600000 REQUEST id");
    client.int("DLOCK.RACQUIRE k a");
    let before = state(&mut client);
    for (request, error) in [
        ("RACQUIRE k a PX 0 REQUEST id", "ERR invalid expire time in 'dlock.racquire' command"),
        ("RACQUIRE k a PX x REQUEST id", "ERR value is not an integer or out of range"),
        ("RACQUIRE k a BLOCK -1 REQUEST id", "ERR timeout is negative"),
        ("RACQUIRE k a REQUEST id REQUEST id", "ERR syntax error"),
        ("RACQUIRE k a REQUEST id PXAT 9 SESSION", "ERR "),
        ("RACQUIRE k a PX 200 SESSION REQUEST id", "ERR SESSION needs a lease"),
    ] {
        let text = client.error(format!("DLOCK.{request}"));
        assert!(text.starts_with(error), "{request}: {text}");
    }
    for options in ["PX 900000", "EX 1", "BLOCK 0", "PX 1 BLOCK 5"] {
        client.int(format!("DLOCK.RACQUIRE k a {options} REQUEST id"));
        assert_same(options, &before, &state(&mut client));
    }
    assert_eq!(client.int("DLOCK.RELEASE k a REQUEST out"), 0);
    let before = state(&mut client);
    for options in ["ALL", "WRITE", "TOKEN 5", "WRITE TOKEN 5 ALL"] {
        assert_eq!(client.int(format!("DLOCK.RELEASE k a {options} REQUEST out")), 0, "{options}");
        assert_same(options, &before, &state(&mut client));
    }
}

#[test]
fn ids_are_any_64_bytes() {
    let (_server, mut client) = Server::start().with_client();
    for (n, id) in [b"\0".to_vec(), b"\r\n\xff \0".to_vec(), vec![0; 64], vec![0xff; 64]].into_iter().enumerate() {
        let key = format!("k{n}");
        let request = req!["DLOCK.RACQUIRE", &key, "a", "REQUEST", &id];
        assert_eq!(client.int(&request), client.int(&request));
        assert_eq!(lock_info(&mut client, &key).unwrap().count, 1);
    }
}

#[test]
fn refusals_and_errors_are_not_recorded() {
    tell(
        "RLOCK k b PX 600000                     -> t1
         WLOCK k a REQUEST id                    -> nil
         RELEASE k a REQUEST out                 -> nil
         RLOCK k a PX 600000 REQUEST id          -> t2
         WLOCK k a REQUEST id                    -> nil
         RELEASE k b                             -> 1
         WLOCK k a REQUEST id                    -> t3
         WLOCK k a REQUEST id                    -> t3
         INFO k                                  -> mode=both count=2",
    );
}

#[test]
fn session_on_a_command_sent_again_binds_the_hold() {
    let (_server, [mut lost, mut client, mut again]) = Server::start().with_clients();
    let token = lost.int("DLOCK.ACQUIRE k a PX 600000 SESSION REQUEST id");
    assert_eq!(again.int("DLOCK.ACQUIRE k a PX 600000 SESSION REQUEST id"), token);
    let id = again.id();
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(id));
    assert_eq!(counter(&mut client, "sessions"), 1);
    client.watch_close(lost);
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(id));
    // Without SESSION the binding stays as it is.
    assert_eq!(client.int("DLOCK.ACQUIRE k a REQUEST id"), token);
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(id));
    client.watch_close(again);
    assert!(lock_info(&mut client, "k").is_none());
}

#[test]
fn a_hold_bound_late_by_a_repeat_is_kept_alive() {
    let (_server, [mut client, mut again]) = Server::start().with_clients();
    let token = client.int("DLOCK.ACQUIRE k a PX 3000 REQUEST id");
    let end = client.end_of("k");
    // The rest of the lease is shorter than the third after which the server renews a bound hold.
    client.pass(end - 600);
    assert_eq!(again.int("DLOCK.ACQUIRE k a SESSION REQUEST id"), token);
    client.pass(end);
    assert!(matches!(client.run(format!("DLOCK.CHECK k {token}")), Value::Int(1..)), "its connection lives");
}

#[test]
fn a_session_that_ended_leaves_nothing_to_repeat() {
    let (_server, [mut lost, mut client]) = Server::start().with_clients();
    let token = lost.int("DLOCK.ACQUIRE k a PX 600000 SESSION REQUEST id");
    client.watch_close(lost);
    let next = client.int("DLOCK.ACQUIRE k a PX 600000 SESSION REQUEST id");
    assert!(next > token);
    assert_eq!(counter(&mut client, "replays"), 0);
}

/// Sends the requests and waits until the lease on `k` is over: nothing is left of the hold and its records.
#[track_caller]
fn lapse(client: &mut Client, requests: &[&str]) {
    for request in requests {
        client.run(format!("DLOCK.{request}"));
    }
    client.outlive("k");
}

#[test]
fn a_repeat_after_the_lapse_is_a_new_request() {
    for command in ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK"] {
        let (_server, mut client) = Server::start().with_client();
        let request = format!("DLOCK.{command} k a PX 50 REQUEST id");
        let token = client.int(&request);
        client.outlive("k");
        let next = client.int(format!("DLOCK.{command} k a PX 600000 REQUEST id"));
        assert!(next > token);
        assert_eq!(client.int(format!("DLOCK.{command} k a REQUEST id")), next);
        let info = lock_info(&mut client, "k FULL").unwrap();
        assert_eq!((info.count, info.holds().len(), counter(&mut client, "replays")), (1, 1, 1), "{command}");
    }
}

#[test]
fn a_repeat_never_gets_somebody_elses_token() {
    for command in ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK"] {
        let (_server, [mut client, mut again]) = Server::start().with_clients();
        lapse(&mut client, &[&format!("{command} k a PX 50 REQUEST id")]);
        let theirs = client.int("DLOCK.ACQUIRE k b PX 600000 REQUEST id");
        again.nil(format!("DLOCK.{command} k a REQUEST id"));
        again.nil(format!("DLOCK.{command} k a BLOCK 20 REQUEST id"));
        again.send(format!("DLOCK.{command} k a BLOCK 0 REQUEST id"));
        soon("the repeat waits", || lock_info(&mut client, "k").unwrap().waiters == 1);
        client.int("DLOCK.RELEASE k b");
        assert!(matches!(again.read(), Ok(Value::Int(token)) if token > theirs), "{command}");
        assert_eq!(lock_info(&mut client, "k").unwrap().count, 1);
        assert_eq!(counter(&mut client, "replays"), 0);
    }
    // A release does not reach another owner's hold, either.
    let (_server, mut client) = Server::start().with_client();
    lapse(&mut client, &["RACQUIRE k a PX 50", "RACQUIRE k a", "RELEASE k a REQUEST out"]);
    client.int("DLOCK.RACQUIRE k b PX 600000");
    client.nil("DLOCK.RELEASE k a REQUEST out");
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 1);
}
