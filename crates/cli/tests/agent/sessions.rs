//! Holds that are bound to a connection of the agent, or to a named session.

use std::time::Duration;

use dlock_testkit::redis::Value;
use dlock_testkit::{Server, Stopwatch, bytes_of, hold, list_of, soon};

use crate::process::{Agent, freed, queued, servers, trio};

#[test]
fn a_session_keeps_its_lock_beyond_the_lease_and_frees_it_at_once() {
    let (servers, agent, mut client) = trio();
    let mut holder = agent.client();
    let token = holder.int("DLOCK.ACQUIRE k a PX 2000 SESSION");
    let watch = Stopwatch::start();
    while watch.elapsed() < Duration::from_millis(3500) {
        assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
        std::thread::sleep(Duration::from_millis(50));
    }
    let number = holder.int("CLIENT ID");
    assert_eq!(hold(&mut client, "k", "a", "exclusive").expect("a hold").session, Value::Int(number));
    client.send("DLOCK.ACQUIRE k b BLOCK 0");
    queued(&servers, 1, "k");
    let watch = Stopwatch::start();
    drop(holder);
    assert!(client.granted() > token);
    watch.is_between(Duration::ZERO, Duration::from_millis(1200), "the end of a session");
}

#[test]
fn a_hold_can_be_bound_later_and_released_by_its_owner() {
    let (servers, agent, mut client) = trio();
    let mut holder = agent.client();
    client.int("DLOCK.ACQUIRE k a PX 2000");
    assert_eq!(holder.int("DLOCK.RENEW k a SESSION"), 1);
    let watch = Stopwatch::start();
    while watch.elapsed() < Duration::from_millis(3000) {
        assert!(hold(&mut client, "k", "a", "exclusive").is_some());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    client.int("DLOCK.ACQUIRE k b PX 20000");
    drop(holder);
    // The end of the session releases nothing, since its hold was released before.
    let mut other = agent.client();
    soon("it has ended", || other.text("INFO agent").contains("agent_connected_clients:2\r\n"));
    assert!(hold(&mut other, "k", "b", "exclusive").is_some());
    assert!(!servers[0].holders("k").is_empty());
}

#[test]
fn a_named_session_lives_by_its_heartbeats() {
    let (servers, _agent, mut client) = trio();
    assert!(client.error("DLOCK.SESSION s PX 1000 XX").starts_with("NOSESSION "));
    assert_eq!(client.int("DLOCK.SESSION s PX 1000 NX"), 0);
    client.nil("DLOCK.SESSION s PX 1000 NX");
    assert!(client.error("DLOCK.ACQUIRE k a SESSIONID s PX 1500").contains("twice the session's time"));
    let token = client.int("DLOCK.ACQUIRE k a SESSIONID s PX 3000");
    let listed = list_of(&client.run("DLOCK.SESSION s LIST"));
    let words: Vec<_> = list_of(&listed[0])[1..4].iter().map(bytes_of).collect();
    assert_eq!(words, [b"k".to_vec(), b"a".to_vec(), b"exclusive".to_vec()]);
    let watch = Stopwatch::start();
    while watch.elapsed() < Duration::from_millis(3500) {
        assert_eq!(client.int("DLOCK.SESSION s PX 1000 XX"), 1);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 1000);
    let watch = Stopwatch::start();
    soon("it ends", || client.ask(format!("DLOCK.CHECK k {token}")) == Some(Value::Nil));
    watch.is_between(Duration::from_millis(800), Duration::from_millis(2500), "the end of a session");
    freed(&servers, "k");
    assert!(client.error("DLOCK.SESSION s PX 1000 XX").starts_with("NOSESSION "));
    client.nil("DLOCK.SESSION s CLOSE");
}

#[test]
fn closing_a_session_ends_its_holds_and_its_waits() {
    let (servers, agent, mut client) = trio();
    client.int("DLOCK.SESSION s PX 5000");
    client.int("DLOCK.ACQUIRE k a SESSIONID s");
    let mut waiter = agent.client();
    waiter.send("DLOCK.ACQUIRE k b SESSIONID s BLOCK 0");
    queued(&servers, 1, "k");
    assert_eq!(client.int("DLOCK.SESSION s CLOSE"), 1);
    assert!(waiter.fails().starts_with("NOSESSION "));
    freed(&servers, "k");
}

/// A client relies on a session for the time of its last heartbeat. Without a majority, no heartbeat can promise that
/// time, and the client must learn so before that time is over.
#[test]
fn a_heartbeat_promises_nothing_that_the_servers_do_not_hold() {
    let mut servers = servers(3);
    let agent = Agent::over(&servers);
    let mut client = agent.client();
    client.int("DLOCK.SESSION s PX 1000");
    let token = client.int("DLOCK.ACQUIRE k a SESSIONID s PX 3000");
    servers[1].kill9();
    servers[2].kill9();
    let (mut error, mut promised) = (None, Duration::ZERO);
    let watch = Stopwatch::start();
    soon("the session is forgotten", || {
        let asked = watch.elapsed();
        match client.outcome("DLOCK.SESSION s PX 1000 XX").unwrap() {
            Ok(_) => promised = asked + Duration::from_millis(1000),
            Err(text) => error = Some(text),
        }
        std::thread::sleep(Duration::from_millis(50));
        error.is_some()
    });
    assert!(error.unwrap().starts_with("NOSESSION "));
    // The lease began before the servers were killed.
    assert!(promised < Duration::from_millis(3100), "{promised:?}");
    // The lock keeps its lease.
    soon("it is lost", || !matches!(client.outcome(format!("DLOCK.CHECK k {token}")).unwrap(), Ok(Value::Int(1..))));
}

/// The machine stalls for longer than the lease. The reply to the heartbeat that waited in the socket must say that the
/// session has ended.
#[test]
fn a_heartbeat_that_outlasts_the_lease_finds_no_session() {
    let (servers, agent, mut client) = trio();
    let other = Agent::over(&servers);
    let mut newcomer = other.client();
    for round in 0..4 {
        client.int(format!("DLOCK.SESSION s{round} PX 300"));
        client.int(format!("DLOCK.ACQUIRE k{round} a SESSIONID s{round} PX 2000"));
        // The agent is busy when it is stopped, so that it reads the waiting requests first when it continues.
        let busy = agent.flooded(1, "ECHO a");
        agent.signal(libc::SIGSTOP);
        client.send(format!("DLOCK.SESSION s{round} PX 300 XX"));
        newcomer.int(format!("DLOCK.ACQUIRE k{round} b PX 5000 BLOCK 5000"));
        agent.signal(libc::SIGCONT);
        assert!(client.fails().starts_with("NOSESSION "));
        drop(busy);
    }
}

#[test]
fn a_hold_that_moves_between_sessions_counts_once() {
    let (_servers, _agent, mut client) = trio();
    client.int("DLOCK.SESSION s PX 5000");
    client.int("DLOCK.SESSION t PX 5000");
    client.int("DLOCK.ACQUIRE k a SESSIONID s PX 10000");
    for _ in 0..3 {
        assert_eq!(client.int("DLOCK.RENEW k a SESSIONID t"), 1);
        assert_eq!(client.int("DLOCK.RENEW k a SESSIONID s"), 1);
    }
    assert_eq!(client.int("DLOCK.SESSION s PX 5000 XX"), 1);
    assert_eq!(list_of(&client.run("DLOCK.SESSION s LIST")).len(), 1);
    assert_eq!(client.int("DLOCK.SESSION t PX 5000 XX"), 0);
    assert_eq!(client.int("DLOCK.SESSION s CLOSE"), 1);
}

#[test]
fn a_connection_whose_lock_is_lost_is_closed() {
    let mut servers = servers(3);
    let agent = Agent::over(&servers);
    let mut client = agent.client();
    client.int("DLOCK.ACQUIRE k a PX 2000 SESSION");
    servers[0].kill9();
    servers[1].kill9();
    assert_eq!(client.closes(), []);
    agent.logged("lost 'k'");
}

#[test]
fn a_connection_whose_lock_is_lost_is_closed_even_while_it_waits_for_another() {
    let servers = servers(3);
    let agent = Agent::over(&servers);
    let (mut holder, mut client) = (agent.client(), agent.client());
    holder.int("DLOCK.ACQUIRE other b PX 25000");
    client.int("DLOCK.ACQUIRE k a PX 2000 SESSION");
    client.send("DLOCK.ACQUIRE other a PX 25000 BLOCK 0");
    queued(&servers, 1, "other");
    servers[..2].iter().for_each(Server::freeze);
    assert_eq!(client.closes(), []);
    agent.logged("lost 'k'");
}
