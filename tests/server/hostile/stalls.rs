//! A server that does nothing for a while (`DEBUG SLEEP`), and makes up for it.

use redis::Value;

use crate::support::{Server, lock_info, soon};

#[test]
fn waiters_are_served_in_order_before_a_client_that_came_during_a_stall() {
    let (server, [mut client, mut sleeper]) = Server::start().with_clients();
    client.int("DLOCK.ACQUIRE k a PX 1000");
    let mut waiters = server.waiters(["b", "c", "d"].map(|o| format!("DLOCK.ACQUIRE k {o} PX 300 BLOCK 0")));
    let end = client.end_of("k");
    sleeper.send("DEBUG SLEEP 1.5");
    let mut newcomer = server.client();
    newcomer.send("DLOCK.ACQUIRE k late");
    sleeper.read().expect("it has slept");
    assert_eq!(newcomer.read(), Ok(Value::Nil));
    let tokens: Vec<_> = waiters.iter_mut().map(|waiter| waiter.granted()).collect();
    assert!(tokens[0] / 1000 > end, "the lease was over");
    // Leases begin when they are granted, not when they could have been.
    assert!(tokens.windows(2).all(|pair| pair[1] / 1000 >= pair[0] / 1000 + 300), "{tokens:?}");
}

#[test]
fn a_client_that_died_during_a_stall_holds_nothing_afterwards() {
    let (server, [mut client, mut sleeper, mut session]) = Server::start().with_clients();
    session.int("DLOCK.ACQUIRE k a PX 600000 SESSION");
    let head = server.waiter("DLOCK.ACQUIRE k gone PX 600000 BLOCK 0 SESSION");
    let mut next = server.waiter("DLOCK.ACQUIRE k b PX 600000 BLOCK 0");
    sleeper.send("DEBUG SLEEP 0.7");
    drop(head);
    drop(session);
    sleeper.read().expect("it has slept");
    next.granted();
    soon("nobody waits", || server.waiting() == 0);
    assert_eq!(server.holders("k"), ["b"]);
    assert_eq!(client.int("DLOCK.RELEASE k b"), 1);
}

#[test]
fn a_session_survives_a_stall_of_less_than_two_thirds_of_its_lease() {
    let (_server, [mut client, mut session, mut sleeper]) = Server::start().with_clients();
    let token = session.int("DLOCK.ACQUIRE k a PX 6000 SESSION");
    for _ in 0..3 {
        sleeper.run("DEBUG SLEEP 2");
        assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    }
    assert_eq!(client.session_of("k", "a", "exclusive"), Some(session.id()));
}

#[test]
fn a_session_that_a_stall_outlived_is_lost_to_one_owner_only() {
    let (server, [mut client, mut session, mut sleeper]) = Server::start().with_clients();
    let token = session.int("DLOCK.ACQUIRE k a PX 600 SESSION");
    let mut next = server.waiter("DLOCK.ACQUIRE k b PX 600000 BLOCK 0");
    sleeper.run("DEBUG SLEEP 1.2");
    assert!(next.granted() > token);
    client.nil(format!("DLOCK.CHECK k {token}"));
    session.nil("DLOCK.RENEW k a SESSION");
    session.nil("DLOCK.RELEASE k a");
    let info = lock_info(&mut client, "k").unwrap();
    assert_eq!((info.holders, info.count), (1, 1));
}
