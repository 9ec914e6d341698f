//! The order of visits: locks, waiters and sessions that are gone delay no others.

use dlock_core::engine::{Entered, Fault, Input, Output};
use dlock_core::{BindTo, ClientId, Keyspace, Lease, LeaseChoice, Lock, Request, UnixMs, Want};

use crate::{Server, is_granted, name, owner};

/// Asks for an exclusive hold with this lease, bound to the client.
fn bind(server: &mut Server, key: &str, client: u64, lease_ms: u64) {
    let lease = LeaseChoice::For(Lease::new(lease_ms).unwrap());
    let ask = Request { session: BindTo::Connection, ..Request::new(owner("o"), Want::ExclusiveOnce, lease) };
    assert!(is_granted(&server.ask(key, ClientId(client), &ask)), "{key}");
}

fn ask_all(server: &mut Server, keys: &[&str], by: &str) -> Result<Entered, Fault> {
    server.ask_all(keys, 999, &Request::new(owner(by), Want::ExclusiveOnce, LeaseChoice::Own), true)
}

fn waiter(entered: Result<Entered, Fault>) -> dlock_core::engine::WaiterId {
    match entered {
        Ok(Entered::Waiting(id)) => id,
        other => panic!("{other:?}"),
    }
}

/// Deletes a key, and tells the engine.
fn remove(server: &mut Server, key: &str) {
    server.space.delete(&(0, key.into()));
    let now = server.space.now();
    server.engine.input(Input::Removed(name(key)), now);
}

fn tick(server: &mut Server) {
    server.tick();
    server.engine.audit().unwrap();
}

fn lock<'s>(server: &'s Server, key: &str) -> &'s Lock {
    server.space.lock(&(0, key.into()))
}

/// For a request for several locks, the engine asks the server about a key, which the server then expires without a
/// hook.
#[test]
fn sessions_of_others_stay_when_the_server_removes_a_key_that_it_is_asked_about() {
    let mut server = Server::new();
    bind(&mut server, "victim", 1, 900);
    bind(&mut server, "early", 2, 9000);
    assert!(is_granted(&server.acquire("first", 3, 1, Want::Exclusive)));
    assert!(is_granted(&server.acquire("last", 4, 1, Want::Exclusive)));
    waiter(ask_all(&mut server, &["first", "early", "last"], "w"));
    let end = server.space.ms() + 1;
    server.space.set_expiry(&(0, b"early".to_vec()), Some(end));
    server.pass_ms(2);
    server.release("first", 999, &owner("3")).unwrap();
    assert!(!server.space.has_expired(&(0, b"early".to_vec())), "the server was asked, and has removed it");
    server.engine.audit().unwrap();
    for _ in 0..100 {
        server.pass_ms(100);
        tick(&mut server);
        assert!(lock(&server, "victim").last_deadline() > Some(UnixMs::new(server.space.ms())), "the session was lost");
    }
}

#[test]
fn many_locks_that_are_removed_from_the_last_to_the_first_do_not_delay_the_renewals_of_others() {
    const MANY: usize = 1000;
    let mut server = Server::new();
    for n in 0..MANY {
        bind(&mut server, &format!("k{n}"), 1, 3000);
    }
    bind(&mut server, "victim", 2, 3000);
    let end = lock(&server, "victim").last_deadline();
    server.pass_ms(1500);
    for n in (0..MANY).rev() {
        remove(&mut server, &format!("k{n}"));
        server.engine.audit().unwrap();
    }
    // The tick ends before it has looked at all of them.
    server.space.us_per_open = 100;
    tick(&mut server);
    assert!(server.engine.wake_at().is_some_and(|at| at.get() <= server.space.ms() + 1), "all were looked at");
    assert!(lock(&server, "victim").last_deadline() > end, "the session has to wait for the others");
}

/// No event tells the engine of a key that expires while the engine asks the server whether it accepts writes.
#[test]
fn a_waiter_gets_in_when_the_watchdog_finds_that_the_key_is_gone() {
    let mut server = Server::new();
    bind(&mut server, "lock", 1, 60_000);
    server.wait("lock", 2, 1, Want::Exclusive);
    let end = server.space.ms() + 10_000;
    server.space.set_expiry(&(0, b"lock".to_vec()), Some(end));
    server.answers();
    server.pass_ms(20_000);
    tick(&mut server);
    assert_eq!(server.answers(), 1, "the waiter waits until the end of the lost lease");
}

/// A due lock counts for the client that is its head now: it does not wait behind the locks of an earlier head.
#[test]
fn a_lock_whose_head_leaves_does_not_wait_for_the_other_locks_of_that_client() {
    let mut server = Server::new();
    let keys: Vec<String> = (0..500).map(|n| format!("k{n}")).collect();
    for key in &keys {
        assert!(is_granted(&server.acquire(key, 1, 1, Want::Exclusive)));
        server.wait(key, 2, 1, Want::Exclusive);
    }
    assert!(is_granted(&server.acquire("lock", 1, 1, Want::Exclusive)));
    let head = waiter(server.acquire("lock", 2, 1, Want::Exclusive));
    server.wait("lock", 3, 1, Want::Exclusive);
    server.answers();
    let now = server.space.now();
    for key in &keys {
        server.engine.input(Input::Removed(name(key)), now);
    }
    remove(&mut server, "lock");
    server.engine.abandon(head);
    server.space.us_per_open = 100;
    tick(&mut server);
    assert_eq!(server.answers(), 1, "the lock is visited after those of the client that has left");
}

/// A request that is a deadlock joins the queues and leaves them again. The record of a waiter that left stays.
#[test]
fn a_deadlock_does_not_suppress_the_signal_that_the_last_waiter_has_left() {
    let mut server = Server::new();
    for (key, owner) in [("a", 1), ("b", 2)] {
        assert!(is_granted(&server.acquire(key, owner, 1, Want::Exclusive)));
    }
    server.wait("a", 2, 1, Want::Exclusive);
    // The last waiter of a free lock leaves, which shows in `INFO`.
    let deserter = waiter(ask_all(&mut server, &["free", "a"], "w"));
    server.engine.abandon(deserter);
    server.engine.take_outputs();
    assert!(matches!(ask_all(&mut server, &["free", "b"], "1"), Err(Fault::Deadlock(_))));
    tick(&mut server);
    let is_it = |output: &Output<()>| matches!(output, Output::Modified(0, key) if **key == *b"free");
    assert_eq!(server.engine.take_outputs().iter().filter(|output| is_it(output)).count(), 1);
}
