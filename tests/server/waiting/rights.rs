//! A user's rights count when the turn of its request comes. They are checked again, and a request without them is
//! passed over.

use redis::Value;

use crate::support::version::Version;
use crate::support::{Client, Server, lock_info, soon};

/// The requests that can wait, for the lock `k`.
const REQUESTS: [&str; 9] = [
    "DLOCK.ACQUIRE k user PX 600000 BLOCK 0",
    "DLOCK.RACQUIRE k user PX 600000 BLOCK 0",
    "DLOCK.WLOCK k user PX 600000 BLOCK 0",
    "DLOCK.RLOCK k user PX 600000 BLOCK 0",
    "DLOCK.SACQUIRE k user 1 PX 600000 BLOCK 0",
    "DLOCK.SACQUIRE k * 1 SLOT PX 600000 BLOCK 0",
    "DLOCK.MACQUIRE 2 other k user PX 600000 BLOCK 0",
    "DLOCK.ACQUIRE k user PX 600000 BLOCK 0 SESSION",
    "DLOCK.ACQUIRE k user PX 600000 BLOCK 0 SESSIONID s",
];

/// The rules by which a user loses a right that each of the requests needs.
const LOSSES: [&str; 5] = [
    "resetkeys ~other",
    "resetkeys %R~k ~other",
    "-@all",
    "off",
    "-dlock.acquire -dlock.racquire -dlock.wlock -dlock.rlock -dlock.sacquire -dlock.macquire",
];

/// Returns a server, its administrator, and a user who may do everything.
fn with_user() -> (Server, Client, Client) {
    let (server, mut admin) = Server::start().with_client();
    admin.ok("ACL SETUSER u reset on >p ~* +@all");
    let user = logged_in(&server);
    (server, admin, user)
}

fn logged_in(server: &Server) -> Client {
    let mut user = server.client();
    user.ok("AUTH u p");
    user
}

#[track_caller]
fn lacks_rights(user: &mut Client) {
    let error = user.fails();
    assert!(error.starts_with("NOPERM "), "{error}");
}

#[test]
fn a_user_that_lost_a_right_gets_noperm_and_the_next_one_the_lock() {
    let (server, mut admin, mut user) = with_user();
    let mut next = server.client();
    for request in REQUESTS {
        for loss in LOSSES {
            admin.ok("ACL SETUSER u reset on >p ~* +@all");
            let opened = user.attempt("DLOCK.SESSION s PX 600000");
            assert!(opened.is_ok(), "{opened:?}");
            admin.int("DLOCK.ACQUIRE k holder PX 600000");
            server.enters_queue(&mut user, request);
            server.enters_queue(&mut next, "DLOCK.ACQUIRE k next PX 600000 BLOCK 0");
            admin.ok(format!("ACL SETUSER u {loss}"));
            assert_eq!(admin.int("DLOCK.RELEASE k holder"), 1);
            let error = user.fails();
            // The sessions of a disabled user end, and a request ends with its session.
            let has_no_session = loss == "off" && request.contains("SESSIONID") && error.starts_with("NOSESSION ");
            assert!(error.starts_with("NOPERM ") || has_no_session, "{request}, {loss}: {error}");
            next.granted();
            assert_eq!(server.holders("k"), ["next"], "{request}, {loss}");
            assert!(lock_info(&mut admin, "other").is_none());
            admin.int("DLOCK.RELEASE k next");
        }
    }
}

#[test]
fn rights_are_checked_whatever_frees_the_lock() {
    // The options of the hold, and the commands that free the lock. Without commands, the lease or the session ends.
    let ways: [(&str, &[&str]); 6] = [
        ("PX 600000", &["DEL k"]),
        ("PX 600000", &["SET k x", "DEL k"]),
        ("PX 600000", &["EVAL return(redis.call('DLOCK.RELEASE',KEYS[1],'holder')) 1 k"]),
        ("PX 600000", &["FLUSHALL"]),
        ("PX 400", &[]),
        ("PX 600000 SESSION", &[]),
    ];
    for (options, commands) in ways {
        let (server, mut admin, mut user) = with_user();
        let (mut holder, mut next) = (server.client(), server.client());
        holder.int(format!("DLOCK.ACQUIRE k holder {options}"));
        let is_overwritten = commands.len() > 1;
        server.enters_queue(&mut user, "DLOCK.ACQUIRE k user PX 600000 BLOCK 0");
        server.enters_queue(&mut next, "DLOCK.ACQUIRE k next PX 600000 BLOCK 0");
        admin.ok("ACL SETUSER u resetkeys");
        for command in commands {
            admin.run(*command);
        }
        if options.contains("SESSION") {
            holder.hang_up();
        }
        // The overwritten key ends both waits, before any right is checked.
        if is_overwritten {
            assert!(user.fails().starts_with("WRONGTYPE ") && next.fails().starts_with("WRONGTYPE "));
            continue;
        }
        lacks_rights(&mut user);
        next.granted();
        assert_eq!(server.holders("k"), ["next"], "{options} {commands:?}");
    }
}

/// The server closes the connections of a deleted user, so no right is checked.
#[test]
fn a_deleted_user_is_disconnected_and_leaves_the_queue() {
    let (server, mut admin, mut user) = with_user();
    let mut next = server.client();
    admin.int("DLOCK.ACQUIRE k holder PX 600000");
    server.enters_queue(&mut user, "DLOCK.ACQUIRE k user PX 600000 BLOCK 0");
    server.enters_queue(&mut next, "DLOCK.ACQUIRE k next PX 600000 BLOCK 0");
    admin.int("ACL DELUSER u");
    assert!(user.closes().is_empty());
    server.left_waiting(1);
    assert_eq!(server.queue("k"), ["next"]);
    admin.int("DLOCK.RELEASE k holder");
    next.granted();
    assert_eq!(server.holders("k"), ["next"]);
}

#[test]
fn a_right_that_comes_back_before_the_turn_counts() {
    let (server, mut admin, mut user) = with_user();
    admin.int("DLOCK.ACQUIRE k holder PX 600000");
    server.enters_queue(&mut user, "DLOCK.ACQUIRE k user PX 600000 BLOCK 0");
    admin.ok("ACL SETUSER u off resetkeys -@all");
    admin.ok("ACL SETUSER u on ~k +dlock.acquire");
    admin.int("DLOCK.RELEASE k holder");
    user.granted();
    assert_eq!(server.holders("k"), ["user"]);
}

#[test]
fn many_who_lost_their_rights_keep_nobody_from_the_lock() {
    let (server, mut admin, _user) = with_user();
    admin.int("DLOCK.ACQUIRE k holder PX 600000");
    let mut losers: Vec<Client> = (0..200).map(|_| logged_in(&server)).collect();
    for (number, loser) in losers.iter_mut().enumerate() {
        loser.send(format!("DLOCK.ACQUIRE k loser{number} PX 600000 BLOCK 0"));
    }
    server.left_waiting(200);
    let mut next = server.client();
    server.enters_queue(&mut next, "DLOCK.ACQUIRE k next PX 600000 BLOCK 0");
    admin.ok("ACL SETUSER u resetkeys");
    admin.int("DLOCK.RELEASE k holder");
    next.granted();
    losers.iter_mut().for_each(lacks_rights);
    assert_eq!(server.holders("k"), ["next"]);
}

#[test]
fn a_restriction_to_databases_is_checked_in_the_database_of_the_lock() {
    let (server, mut admin, mut user) = with_user();
    if Version::of(&mut admin) < Version::Valkey(9, 1) {
        return crate::support::skip::skipped("this server has no rights by database");
    }
    let mut next = server.client();
    for (rule, is_granted) in [("db=0", true), ("db=1", false)] {
        admin.ok("ACL SETUSER u reset on >p ~* +@all db=0");
        admin.int("DLOCK.ACQUIRE k holder PX 600000");
        server.enters_queue(&mut user, "DLOCK.ACQUIRE k user PX 600000 BLOCK 0");
        server.enters_queue(&mut next, "DLOCK.ACQUIRE k next PX 600000 BLOCK 0");
        admin.ok(format!("ACL SETUSER u resetdbs {rule}"));
        admin.int("DLOCK.RELEASE k holder");
        if is_granted {
            user.granted();
            assert_eq!(user.int("DLOCK.RELEASE k user"), 1);
        } else {
            lacks_rights(&mut user);
        }
        next.granted();
        admin.int("DLOCK.RELEASE k next");
    }
}

#[test]
fn a_user_that_lost_a_right_waits_on_until_its_turn() {
    let (server, mut admin, mut user) = with_user();
    admin.int("DLOCK.ACQUIRE k holder PX 600000");
    server.enters_queue(&mut user, "DLOCK.ACQUIRE k user PX 600000 BLOCK 60000");
    admin.ok("ACL SETUSER u resetkeys");
    user.waits();
    admin.ok("ACL SETUSER u ~k");
    soon("the user has the lock", || {
        admin.run("DLOCK.RELEASE k holder");
        server.holders("k") == ["user"]
    });
    assert!(matches!(user.read(), Ok(Value::Int(_))));
}
