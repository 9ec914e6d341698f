//! The search for deadlocks goes through keys that the client may read, in its own database, and through no others.

use crate::support::replica::counter;
use crate::support::{Client, Server};

/// A server, its administrator, and a user with these permissions.
fn with_user(rules: &str) -> (Server, Client, Client) {
    let (server, [mut admin, mut user]) = Server::start().with_clients();
    admin.ok(format!("ACL SETUSER user on >secret +@all {rules}"));
    user.ok("AUTH user secret");
    (server, admin, user)
}

#[test]
fn a_cycle_over_foreign_keys_is_neither_found_nor_named() {
    let (server, mut admin, mut user) = with_user("~m:*");
    admin.int("DLOCK.ACQUIRE m:1 insider PX 600000");
    admin.int("DLOCK.ACQUIRE secret:1 me PX 600000");
    let mut insider = server.waiter("DLOCK.ACQUIRE secret:1 insider PX 600000 BLOCK 0");
    // The request waits, until its time is over.
    user.nil("DLOCK.ACQUIRE m:1 me BLOCK 100");
    assert_eq!(["deadlocks", "wait_timeouts"].map(|name| counter(&mut admin, name)), [0, 1]);
    // A user that may read both is told.
    let error = admin.error("DLOCK.ACQUIRE m:1 me BLOCK 0");
    assert_eq!(error, "DEADLOCK me waits for m:1 held by insider, insider waits for secret:1 held by me");
    admin.int("DLOCK.RELEASE secret:1 me");
    insider.granted();
}

#[test]
fn a_longer_way_over_a_foreign_key_is_not_followed_either() {
    let (server, mut admin, mut user) = with_user("~m:*");
    for (lock, owner) in [("m:1", "a"), ("secret:1", "b"), ("m:2", "me")] {
        admin.int(format!("DLOCK.ACQUIRE {lock} {owner} PX 600000"));
    }
    let mut waiters = server.waiters(["DLOCK.ACQUIRE secret:1 a BLOCK 0", "DLOCK.ACQUIRE m:2 b BLOCK 0"]);
    user.nil("DLOCK.ACQUIRE m:1 me BLOCK 50");
    let error = admin.error("DLOCK.ACQUIRE m:1 me BLOCK 0");
    assert!(error.starts_with("DEADLOCK ") && error.contains("secret:1"), "{error}");
    admin.int("DLOCK.RELEASE m:2 me");
    waiters[1].granted();
}

#[test]
fn a_cycle_among_own_keys_is_found() {
    for rules in ["~m:*", "~other %R~m:2 %W~m:2 ~m:1"] {
        let (server, mut admin, mut user) = with_user(rules);
        admin.int("DLOCK.ACQUIRE m:1 b PX 600000");
        admin.int("DLOCK.ACQUIRE m:2 a PX 600000");
        let _b = server.waiter("DLOCK.ACQUIRE m:2 b BLOCK 0");
        let error = user.error("DLOCK.ACQUIRE m:1 a BLOCK 0");
        assert_eq!(error, "DEADLOCK a waits for m:1 held by b, b waits for m:2 held by a", "{rules}");
    }
}

#[test]
fn a_cycle_over_a_key_that_may_only_be_read_is_found() {
    let (server, mut admin, mut user) = with_user("~m:* %R~shown:*");
    admin.int("DLOCK.ACQUIRE m:1 b PX 600000");
    admin.int("DLOCK.ACQUIRE shown:1 a PX 600000");
    let _b = server.waiter("DLOCK.ACQUIRE shown:1 b BLOCK 0");
    assert!(user.error("DLOCK.ACQUIRE m:1 a BLOCK 0").starts_with("DEADLOCK "));
    // A key that may only be written is not searched.
    admin.ok("ACL SETUSER user resetkeys ~m:* %W~shown:*");
    user.nil("DLOCK.ACQUIRE m:1 a BLOCK 50");
}

#[test]
fn foreign_users_of_an_owners_name_cause_no_deadlock() {
    let (server, mut admin, _) = with_user("~m:*");
    admin.ok("ACL SETUSER victim on >secret +@all ~v:*");
    let mut victim = server.client();
    victim.ok("AUTH victim secret");
    victim.int("DLOCK.ACQUIRE v:2 worker PX 600000");
    // The attacker uses the names of others: it looks as if `worker` waited for `victim`, which waits for `worker`.
    let mut attacker = server.client();
    attacker.ok("AUTH user secret");
    attacker.int("DLOCK.ACQUIRE m:1 victim PX 600000");
    server.enters_queue(&mut attacker, "DLOCK.ACQUIRE m:1 worker BLOCK 0");
    victim.nil("DLOCK.ACQUIRE v:2 victim BLOCK 50");
    server.enters_queue(&mut victim, "DLOCK.ACQUIRE v:2 victim BLOCK 0");
    assert_eq!(counter(&mut admin, "deadlocks"), 0);
    admin.int("DLOCK.RELEASE v:2 worker");
    victim.granted();
}

#[test]
fn another_database_is_another_search() {
    let (server, [mut zero, mut one]) = Server::start().with_clients();
    one.ok("SELECT 1");
    zero.int("DLOCK.ACQUIRE k a PX 600000");
    one.int("DLOCK.ACQUIRE k b PX 600000");
    let mut b = server.waiter("DLOCK.ACQUIRE k b BLOCK 0");
    one.nil("DLOCK.ACQUIRE k a BLOCK 50");
    server.enters_queue(&mut one, "DLOCK.ACQUIRE k a BLOCK 0");
    assert_eq!(counter(&mut zero, "deadlocks"), 0);
    assert_eq!(zero.int("DLOCK.RELEASE k a"), 1);
    b.granted();
    zero.ok("SELECT 1");
    assert_eq!(zero.int("DLOCK.RELEASE k b"), 1);
    one.granted();
}

#[test]
fn an_owner_that_also_waits_in_another_database_is_left_out() {
    let (server, [mut client, mut elsewhere]) = Server::start().with_clients();
    elsewhere.ok("SELECT 1");
    elsewhere.int("DLOCK.ACQUIRE k x PX 600000");
    client.int("DLOCK.ACQUIRE L1 b PX 600000");
    client.int("DLOCK.ACQUIRE L2 a PX 600000");
    let _b = server.waiter("DLOCK.ACQUIRE L2 b BLOCK 0");
    server.enters_queue(&mut elsewhere, "DLOCK.ACQUIRE k b BLOCK 0");
    client.nil("DLOCK.ACQUIRE L1 a BLOCK 50");
}

#[test]
fn a_holder_that_came_from_the_queue_closes_a_cycle() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.WLOCK L1 h PX 600000");
    client.int("DLOCK.ACQUIRE L2 r PX 600000");
    let mut w = server.waiter("DLOCK.WLOCK L1 w BLOCK 0");
    let mut behind = server.waiter("DLOCK.RLOCK L1 q BLOCK 0");
    client.int("DLOCK.RELEASE L1 h");
    w.granted();
    let mut wants = server.waiter("DLOCK.ACQUIRE L2 w BLOCK 0");
    assert!(client.error("DLOCK.RLOCK L1 r BLOCK 0").starts_with("DEADLOCK "), "w holds L1 and waits for r");
    client.int("DLOCK.RELEASE L2 r");
    wants.granted();
    client.int("DLOCK.RELEASE L1 w");
    behind.granted();
}

const CYCLE: &str = "DLOCK.SACQUIRE m:1 a 5 BLOCK 100";

/// The owner `a` holds `m:1`, `b` waits for it, and [`CYCLE`] would wait behind `b`.
#[track_caller]
fn cycle_on_one_lock(server: &Server, admin: &mut Client) -> Client {
    admin.int("DLOCK.RLOCK m:1 a PX 600000");
    admin.int("DLOCK.RLOCK m:1 e PX 600000");
    server.waiter("DLOCK.WLOCK m:1 b BLOCK 0")
}

#[test]
fn a_user_that_may_not_run_info_learns_no_name() {
    for rules in ["~* -dlock.info", "~* -dlock.info (+dlock.info ~m:2)", "~m:1 -dlock.info (~* -@all +get)"] {
        let (server, mut admin, mut user) = with_user(rules);
        assert!(user.error("DLOCK.INFO m:1").starts_with("NOPERM "), "{rules}");
        // A cycle on the request's own lock is found, and not described.
        let b = cycle_on_one_lock(&server, &mut admin);
        let error = user.error(CYCLE);
        assert!(error.starts_with("DEADLOCK ") && error.contains("DLOCK.INFO"), "{rules}: {error}");
        assert!(!error.contains(" b ") && !error.contains("m:1"), "{rules}: {error}");
        assert_eq!(admin.error(CYCLE), "DEADLOCK a waits for m:1 behind b, b waits for m:1 held by a");
        drop(b);
        server.left_waiting(0);
        // Other locks are not searched.
        admin.int("DLOCK.ACQUIRE m:3 a PX 600000");
        admin.int("DLOCK.ACQUIRE m:4 b PX 600000");
        admin.ok("ACL SETUSER user resetkeys ~m:*");
        let _b = server.waiter("DLOCK.ACQUIRE m:3 b BLOCK 0");
        user.nil("DLOCK.ACQUIRE m:4 a BLOCK 50");
    }
}

#[test]
fn a_selector_that_permits_info_counts() {
    let (server, mut admin, mut user) = with_user("~m:* -dlock.info (+dlock.info ~m:*)");
    let _b = cycle_on_one_lock(&server, &mut admin);
    assert_eq!(user.error(CYCLE), "DEADLOCK a waits for m:1 behind b, b waits for m:1 held by a");
}
