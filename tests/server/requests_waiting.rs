//! A request that is sent again while the first still waits takes over its place in the queue.

use std::time::Duration;

use redis::Value;

use crate::support::replica::counter;
use crate::support::{Client, Server, lock_info, soon};

/// Starts a server where `x` holds `k`, with `N` connections.
fn held<const N: usize>() -> (Server, Client, [Client; N]) {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE k x PX 600000");
    let others = std::array::from_fn(|_| server.client());
    (server, client, others)
}

/// Sends a request that must wait, and waits until `waiters` do.
#[track_caller]
fn wait(client: &mut Client, waiter: &mut Client, request: &str, waiters: i64) {
    waiter.send(request);
    soon("it waits", || lock_info(client, "k").is_some_and(|info| info.waiters == waiters));
}

#[track_caller]
fn granted(client: &mut Client) -> i64 {
    match client.read() {
        Ok(Value::Int(token)) => token,
        reply => panic!("a token, not {reply:?}"),
    }
}

#[test]
fn a_repeat_takes_over_the_place_and_the_first_gets_nil() {
    for command in ["ACQUIRE", "RACQUIRE", "WLOCK", "RLOCK"] {
        let (_server, mut client, [mut first, mut behind, mut again]) = held();
        wait(&mut client, &mut first, &format!("DLOCK.{command} k a PX 600000 BLOCK 0 REQUEST id"), 1);
        wait(&mut client, &mut behind, "DLOCK.ACQUIRE k b PX 600000 BLOCK 0", 2);
        again.send(format!("DLOCK.{command} k a PX 500000 BLOCK 0 REQUEST id"));
        assert_eq!(first.read(), Ok(Value::Nil), "{command}");
        let info = lock_info(&mut client, "k FULL").unwrap();
        assert_eq!(info.waiters, 2, "{command}");
        assert_eq!(counter(&mut client, "waiters"), 2);
        client.int("DLOCK.RELEASE k x");
        let token = granted(&mut again);
        let info = lock_info(&mut client, "k FULL").unwrap();
        assert_eq!((info.token, info.count, info.waiters), (token, 1, 1), "{command}");
        assert!((400_000..=500_000).contains(&info.ttl), "its own lease, not {}", info.ttl);
        // A third copy repeats the grant.
        assert_eq!(first.int(format!("DLOCK.{command} k a REQUEST id")), token);
        assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
        granted(&mut behind);
        assert_eq!(first.text("PING"), "PONG");
    }
}

#[test]
fn a_repeat_waits_as_long_as_it_says_itself() {
    let (_server, mut client, [mut first, mut again]) = held();
    wait(&mut client, &mut first, "DLOCK.ACQUIRE k a BLOCK 0 REQUEST id", 1);
    again.nil("DLOCK.ACQUIRE k a BLOCK 50 REQUEST id");
    assert_eq!(first.read(), Ok(Value::Nil));
    assert_eq!(lock_info(&mut client, "k").unwrap().waiters, 0);
    // The repeat waits longer than the first.
    wait(&mut client, &mut first, "DLOCK.ACQUIRE k a BLOCK 300 REQUEST id", 1);
    again.send("DLOCK.ACQUIRE k a BLOCK 0 REQUEST id");
    assert_eq!(first.read(), Ok(Value::Nil));
    assert_eq!(again.poll(Duration::from_millis(400)), None, "the BLOCK of the first does not end it");
    client.int("DLOCK.RELEASE k x");
    granted(&mut again);
}

#[test]
fn a_repeat_that_cannot_wait_leaves_the_queue_alone() {
    let (_server, mut client, [mut first, mut behind, mut again]) = held();
    wait(&mut client, &mut first, "DLOCK.ACQUIRE k a BLOCK 0 REQUEST id", 1);
    wait(&mut client, &mut behind, "DLOCK.ACQUIRE k b BLOCK 0", 2);
    again.nil("DLOCK.ACQUIRE k a REQUEST id");
    again.ok("MULTI");
    again.text("DLOCK.ACQUIRE k a BLOCK 0 REQUEST id");
    assert_eq!(again.run("EXEC"), Value::Array(vec![Value::Nil]));
    again.nil(["EVAL", "return redis.call('DLOCK.ACQUIRE', KEYS[1], 'a', 'BLOCK', '0', 'REQUEST', 'id')", "1", "k"]);
    assert_eq!(lock_info(&mut client, "k").unwrap().waiters, 2);
    assert_eq!(first.poll(Duration::from_millis(20)), None);
    client.int("DLOCK.RELEASE k x");
    let token = granted(&mut first);
    assert_eq!(again.int("DLOCK.ACQUIRE k a REQUEST id"), token, "now it repeats a grant");
    assert_eq!(behind.poll(Duration::from_millis(20)), None);
}

#[test]
fn many_repeats_leave_one_place() {
    let (server, mut client, [mut first]) = held();
    wait(&mut client, &mut first, "DLOCK.ACQUIRE k a BLOCK 0 REQUEST id", 1);
    let mut last = first;
    for _ in 0..20 {
        let mut again = server.client();
        again.send("DLOCK.ACQUIRE k a BLOCK 0 REQUEST id");
        assert_eq!(last.read(), Ok(Value::Nil));
        assert_eq!(lock_info(&mut client, "k").unwrap().waiters, 1);
        last = again;
    }
    client.int("DLOCK.RELEASE k x");
    granted(&mut last);
    let counted = ["waiters", "queues", "grants", "waits"].map(|name| counter(&mut client, name));
    assert_eq!(counted, [0, 0, 2, 1]);
}

#[test]
fn a_repeat_after_the_first_has_died_waits_at_the_end() {
    let (_server, mut client, [mut first, mut behind, mut again]) = held();
    wait(&mut client, &mut first, "DLOCK.ACQUIRE k a PX 600000 BLOCK 0 REQUEST id", 1);
    wait(&mut client, &mut behind, "DLOCK.ACQUIRE k b PX 600000 BLOCK 0", 2);
    drop(first);
    soon("it left", || lock_info(&mut client, "k").unwrap().waiters == 1);
    wait(&mut client, &mut again, "DLOCK.ACQUIRE k a PX 600000 BLOCK 0 REQUEST id", 2);
    client.int("DLOCK.RELEASE k x");
    let token = granted(&mut behind);
    client.int("DLOCK.RELEASE k b");
    assert!(granted(&mut again) > token);
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 1);
}

#[test]
fn the_end_of_the_first_does_not_end_the_repeat() {
    let (_server, mut client, [mut first, mut again]) = held();
    wait(&mut client, &mut first, "DLOCK.ACQUIRE k a SESSION BLOCK 0 REQUEST id", 1);
    let id = the_waiter(&mut client);
    again.send("DLOCK.ACQUIRE k a SESSION BLOCK 0 REQUEST id");
    soon("it took over", || the_waiter(&mut client) != id);
    drop(first);
    client.outlive_client(id);
    assert_eq!(lock_info(&mut client, "k").unwrap().waiters, 1);
    client.int("DLOCK.RELEASE k x");
    granted(&mut again);
    let id = again.id();
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(id));
}

#[test]
fn a_repeat_binds_by_its_own_word() {
    for (one, two) in [(" SESSION", ""), ("", " SESSION")] {
        let (_server, mut client, [mut first, mut again]) = held();
        let id = again.id();
        wait(&mut client, &mut first, &format!("DLOCK.ACQUIRE k a BLOCK 0 REQUEST id{one}"), 1);
        again.send(format!("DLOCK.ACQUIRE k a BLOCK 0 REQUEST id{two}"));
        assert_eq!(first.read(), Ok(Value::Nil));
        client.int("DLOCK.RELEASE k x");
        granted(&mut again);
        let expected = if two.is_empty() { None } else { Some(id) };
        assert_eq!(client.session_of("k", "a", "exclusive"), expected, "first{one}, again{two}");
    }
}

#[test]
fn a_lost_grant_to_a_waiter_is_repeated() {
    let (_server, mut client, [mut first, mut again]) = held();
    wait(&mut client, &mut first, "DLOCK.RACQUIRE k a PX 600000 BLOCK 0 REQUEST id", 1);
    client.int("DLOCK.RELEASE k x");
    soon("granted", || lock_info(&mut client, "k OWNER a").is_some_and(|info| !info.holds().is_empty()));
    drop(first);
    let token = again.int("DLOCK.RACQUIRE k a PX 600000 BLOCK 0 REQUEST id");
    let info = lock_info(&mut client, "k").unwrap();
    assert_eq!((info.token, info.count), (token, 1));
    assert_eq!(counter(&mut client, "replays"), 1);
}

#[test]
fn another_id_or_owner_has_a_place_of_its_own() {
    let (_server, mut client, [mut first, mut second, mut third]) = held();
    wait(&mut client, &mut first, "DLOCK.RACQUIRE k a PX 600000 BLOCK 0 REQUEST one", 1);
    wait(&mut client, &mut second, "DLOCK.RACQUIRE k a PX 600000 BLOCK 0 REQUEST two", 2);
    wait(&mut client, &mut third, "DLOCK.RACQUIRE k b PX 600000 BLOCK 0 REQUEST one", 3);
    client.int("DLOCK.RELEASE k x");
    assert_eq!(granted(&mut first), granted(&mut second), "both enter the same hold");
    assert_eq!(lock_info(&mut client, "k").unwrap().count, 2);
    assert_eq!(client.int("DLOCK.RELEASE k a ALL"), 1);
    granted(&mut third);
}

#[test]
fn an_upgrade_sent_again_keeps_its_place() {
    let server = Server::start();
    let [mut client, mut first, mut again] = std::array::from_fn(|_| server.client());
    client.int("DLOCK.RLOCK k x PX 600000");
    client.int("DLOCK.RLOCK k a PX 600000");
    wait(&mut client, &mut first, "DLOCK.WLOCK k a BLOCK 0 REQUEST id", 1);
    again.nil("DLOCK.WLOCK k a REQUEST id");
    again.send("DLOCK.WLOCK k a BLOCK 0 REQUEST id");
    assert_eq!(first.read(), Ok(Value::Nil));
    client.int("DLOCK.RELEASE k x");
    granted(&mut again);
    assert_eq!(lock_info(&mut client, "k").unwrap().mode, "both");
}

#[test]
fn a_repeat_needs_no_place_of_its_own() {
    let (_server, mut client, [mut first, mut again, mut other]) = held();
    client.ok("CONFIG SET dlock.max-waiters 1");
    wait(&mut client, &mut first, "DLOCK.ACQUIRE k a BLOCK 0 REQUEST id", 1);
    assert_eq!(
        other.error("DLOCK.ACQUIRE k a BLOCK 0 REQUEST other"),
        "ERR max number of waiters reached: dlock.max-waiters"
    );
    again.send("DLOCK.ACQUIRE k a BLOCK 0 REQUEST id");
    assert_eq!(first.read(), Ok(Value::Nil));
    client.int("DLOCK.RELEASE k x");
    granted(&mut again);
}

/// Returns the id of the one connection that waits for `k`.
#[track_caller]
fn the_waiter(client: &mut Client) -> i64 {
    let queue = lock_info(client, "k FULL").unwrap().queue.expect("FULL shows the queue");
    assert_eq!(queue.len(), 1, "one waits");
    queue[0].client
}
