//! A request that is sent again while the first waits, and whose owner has got in meanwhile by another connection.

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Client, Server, lock_info};

const KEEP: &str = "PX 600000";

/// A lock `k` that `x` has released. In its queue were a request of `a`, which got the lock (`inside`), then one of `b`
/// if asked for (`between`), then another of `a`, with the id `one` (`first`: the test sends it again).
struct Crossed {
    server: Server,
    client: Client,
    inside: Client,
    between: Option<Client>,
    first: Client,
    token: i64,
}

impl Crossed {
    #[track_caller]
    fn new(command: &str, between: bool) -> Self {
        let (server, mut client) = Server::start().with_client();
        client.int(format!("DLOCK.ACQUIRE k x {KEEP}"));
        let mut inside = server.waiter(format!("DLOCK.{command} k a {KEEP} BLOCK 0 REQUEST zero"));
        let between = between.then(|| server.waiter(format!("DLOCK.ACQUIRE k b {KEEP} BLOCK 0")));
        let first = server.waiter(format!("DLOCK.{command} k a {KEEP} BLOCK 0 REQUEST one"));
        client.int("DLOCK.RELEASE k x");
        let token = inside.granted();
        Self { server, client, inside, between, first, token }
    }
}

#[test]
fn a_repeat_that_only_re_enters_is_granted_at_once() {
    for command in ["RACQUIRE", "WLOCK", "RLOCK"] {
        for block in ["", "BLOCK 0"] {
            let mut crossed = Crossed::new(command, true);
            let mut again = crossed.server.client();
            assert_eq!(
                again.int(format!("DLOCK.{command} k a {block} REQUEST one")),
                crossed.token,
                "{command} {block}"
            );
            assert_eq!(lock_info(&mut crossed.client, "k").unwrap().count, 2, "{command} {block}");
            assert_eq!(crossed.server.queue("k"), ["b", "a"], "the first keeps its place");
            crossed.first.waits();
            // A third copy repeats the grant.
            assert_eq!(again.int(format!("DLOCK.{command} k a REQUEST one")), crossed.token);
            assert_eq!(lock_info(&mut crossed.client, "k").unwrap().count, 2);
            // The first request gets the same answer at its turn, and enters no more.
            drop(crossed.between.take());
            assert_eq!(crossed.first.granted(), crossed.token, "{command} {block}");
            let info = lock_info(&mut crossed.client, "k").unwrap();
            assert_eq!((info.count, info.waiters), (2, 0), "{command} {block}");
        }
    }
}

#[test]
fn the_first_is_served_alone_if_the_hold_of_the_repeat_is_gone() {
    for command in ["RACQUIRE", "WLOCK", "RLOCK"] {
        let mut crossed = Crossed::new(command, true);
        let mut again = crossed.server.client();
        assert_eq!(again.int(format!("DLOCK.{command} k a REQUEST one")), crossed.token);
        assert_eq!(again.int("DLOCK.RELEASE k a ALL"), 1);
        crossed.between.as_mut().expect("one between").granted();
        crossed.first.waits();
        assert_eq!(again.int("DLOCK.RELEASE k b"), 1);
        let token = crossed.first.granted();
        assert!(token > crossed.token, "{command}: a new hold");
        let info = lock_info(&mut crossed.client, "k").unwrap();
        assert_eq!((info.count, info.token), (1, token), "{command}");
    }
}

#[test]
fn a_repeat_that_must_wait_takes_over_the_place_though_its_owner_is_inside() {
    let mut crossed = Crossed::new("ACQUIRE", false);
    let mut behind = crossed.server.waiter(format!("DLOCK.ACQUIRE k c {KEEP} BLOCK 0"));
    crossed.first.waits();
    // A new request of this owner would be a deadlock.
    let mut again = crossed.server.client();
    assert!(again.error("DLOCK.ACQUIRE k a BLOCK 0 REQUEST new").starts_with("DEADLOCK "));
    again.send("DLOCK.ACQUIRE k a PX 500000 BLOCK 0 REQUEST one");
    crossed.first.gives_up();
    assert_eq!(crossed.server.queue("k"), ["a", "c"], "the place of the first");
    again.waits();
    assert_eq!(crossed.inside.int("DLOCK.RELEASE k a"), 1);
    let token = again.granted();
    assert!(token > crossed.token);
    let info = lock_info(&mut crossed.client, "k").unwrap();
    assert!((400_000..=500_000).contains(&info.ttl) && info.token == token, "with its own arguments: {info:?}");
    assert_eq!(counter(&mut crossed.client, "deadlocks"), 1);
    behind.waits();
}

#[test]
fn a_repeat_that_cannot_wait_changes_nothing_though_its_owner_is_inside() {
    let mut crossed = Crossed::new("ACQUIRE", false);
    let mut again = crossed.server.client();
    again.nil("DLOCK.ACQUIRE k a REQUEST one");
    again.ok("MULTI");
    again.text("DLOCK.ACQUIRE k a BLOCK 0 REQUEST one");
    assert_eq!(again.run("EXEC"), Value::Array(vec![Value::Nil]));
    assert_eq!(crossed.server.queue("k"), ["a"]);
    crossed.first.waits();
    assert_eq!(crossed.inside.int("DLOCK.RELEASE k a"), 1);
    let token = crossed.first.granted();
    assert_eq!(again.int("DLOCK.ACQUIRE k a REQUEST one"), token);
}

#[test]
fn an_acquire_whose_owner_is_inside_waits_until_that_hold_is_gone() {
    let mut crossed = Crossed::new("ACQUIRE", false);
    let mut behind = crossed.server.waiter(format!("DLOCK.RLOCK k c {KEEP} BLOCK 0"));
    crossed.first.waits();
    assert_eq!(crossed.server.queue("k"), ["a", "c"]);
    assert_eq!(crossed.inside.int("DLOCK.RELEASE k a"), 1);
    assert!(crossed.first.granted() > crossed.token);
    behind.waits();
}

#[test]
fn a_repeat_takes_over_the_place_though_a_cycle_has_closed_meanwhile() {
    let (server, mut client) = Server::start().with_client();
    for (lock, owner) in [("L1", "b"), ("L2", "a"), ("L3", "c")] {
        client.int(format!("DLOCK.ACQUIRE {lock} {owner} {KEEP}"));
    }
    let mut first = server.waiter("DLOCK.ACQUIRE L1 a BLOCK 0 REQUEST one");
    // While a waits twice, it is left out of the search: b may wait for it.
    let elsewhere = server.waiter("DLOCK.ACQUIRE L3 a BLOCK 0");
    let mut b = server.waiter("DLOCK.ACQUIRE L2 b BLOCK 0");
    drop(elsewhere);
    server.left_waiting(2);
    let mut again = server.client();
    again.send("DLOCK.ACQUIRE L1 a BLOCK 0 REQUEST one");
    first.gives_up();
    assert_eq!(server.queue("L1"), ["a"]);
    client.int("DLOCK.RELEASE L2 a");
    b.granted();
    client.int("DLOCK.RELEASE L1 b");
    again.granted();
}

#[test]
fn a_repeat_that_is_granted_at_once_binds_and_the_first_gets_the_same_token() {
    let mut crossed = Crossed::new("WLOCK", true);
    let mut again = crossed.server.client();
    assert_eq!(again.int("DLOCK.WLOCK k a SESSION REQUEST one"), crossed.token);
    let id = again.id();
    assert_eq!(crossed.client.session_of("k", "a", "exclusive"), Some(id));
    drop(crossed.between.take());
    assert_eq!(crossed.first.granted(), crossed.token);
    assert_eq!(lock_info(&mut crossed.client, "k").unwrap().count, 2);
}
