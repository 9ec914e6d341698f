//! Commands passed on to one server, to what Sentinel names, and to a cluster.

use std::process::Command;

use dlock_testkit::cluster::Cluster;
use dlock_testkit::redis::Value;
use dlock_testkit::sentinel::{NAME, Sentinels};
use dlock_testkit::{Client, Server, hold, list_of, soon};

use crate::process::{Agent, MOMENT, queued};

fn over(server: &Server) -> Agent {
    Agent::start(&["-s", &format!("redis://127.0.0.1:{}", server.port())])
}

#[test]
fn commands_of_the_module_are_passed_on_with_their_replies_and_errors() {
    let server = Server::start();
    let agent = over(&server);
    let (mut client, mut direct) = (agent.client(), server.client());
    let token = client.int("DLOCK.RACQUIRE k a PX 20000");
    assert_eq!(client.int("DLOCK.RACQUIRE k a"), token);
    assert_eq!(hold(&mut direct, "k", "a", "exclusive").expect("a hold").count, 2);
    assert_eq!(client.int("DLOCK.RELEASE k a"), 0);
    assert!(client.int(format!("DLOCK.CHECK k {token}")) > 0);
    client.int("DLOCK.SACQUIRE s a 3 PERMITS 2");
    client.int("DLOCK.MACQUIRE 2 m1 m2 a");
    assert_eq!(list_of(&client.run("DLOCK.LOG GET")).len(), 0);
    assert_eq!(client.int("EXISTS k s m1 m2"), 4);
    assert_eq!(client.text("TYPE k"), "distrlock");
    assert_eq!(client.int("DEL s"), 1);
    assert_eq!(client.int("WAIT 0 10"), 0);
    assert!(client.text("INFO").contains("agent_mode:passing"));
    assert!(client.text("INFO dlock").contains("dlock_grants:"));
    assert_eq!(client.text("PING"), "PONG");
    for request in ["DLOCK.ACQUIRE k b NX", "DLOCK.ACQUIRE k b SESSIONID x", "DLOCK.ACQUIRE k a BLOCK 10"] {
        assert_eq!(client.error(request), direct.error(request), "{request}");
    }
    let mut new = agent.client().resp3();
    assert!(matches!(new.run("DLOCK.INFO k FULL"), Value::Map(_)));
    assert!(matches!(client.run("DLOCK.INFO k FULL"), Value::Array(_)));
    assert!(client.error("SET a b").contains("unknown command"));
}

#[test]
fn a_client_that_waits_holds_up_nobody_and_leaves_with_its_connection() {
    let server = Server::start();
    let agent = over(&server);
    let mut client = agent.client();
    client.int("DLOCK.ACQUIRE k a");
    let mut waiter = agent.client();
    waiter.send("DLOCK.ACQUIRE k b BLOCK 0");
    queued([&server], 1, "k");
    assert_eq!(client.int("DLOCK.RENEW k a"), 1);
    drop(waiter);
    queued([&server], 0, "k");
    client.nil("DLOCK.ACQUIRE k b BLOCK 100");
}

#[test]
fn a_session_ends_with_either_side_of_its_connection() {
    let server = Server::start();
    let agent = over(&server);
    let mut direct = server.client();
    let mut client = agent.client();
    client.int("DLOCK.ACQUIRE k a SESSION");
    drop(client);
    soon("its lock is free", || direct.ask("DLOCK.INFO k") == Some(Value::Nil));
    let mut client = agent.client();
    client.int("DLOCK.ACQUIRE k a SESSION");
    let id = direct.session_of("k", "a", "exclusive").expect("a session");
    assert_eq!(client.int("CLIENT ID"), id);
    direct.int(format!("CLIENT KILL ID {id}"));
    assert_eq!(client.closes(), []);
    // A client without a session does not notice.
    let mut client = agent.client();
    client.int("DLOCK.ACQUIRE k a");
    let id = client.int("CLIENT ID");
    direct.int(format!("CLIENT KILL ID {id}"));
    assert_eq!(client.int("DLOCK.RENEW k a"), 1);
}

/// A restart is the shortest failover.
#[test]
fn a_request_that_waits_goes_on_waiting_after_a_restart_if_it_may_be_repeated() {
    let mut server = Server::start();
    let agent = over(&server);
    let mut client = agent.client();
    client.int("DLOCK.ACQUIRE k a PX 20000");
    let (mut repeatable, mut other) = (agent.client(), agent.client());
    repeatable.send("DLOCK.ACQUIRE k b BLOCK 0 REQUEST 1");
    other.send("DLOCK.ACQUIRE k c BLOCK 0");
    queued([&server], 2, "k");
    server.kill9();
    // The request without REQUEST is not repeated: nobody knows whether it was granted.
    assert_eq!(other.closes(), []);
    assert!(repeatable.poll(MOMENT).is_none());
    server.boot();
    assert!(repeatable.granted() > 0);
    assert_eq!(repeatable.int("DLOCK.RELEASE k b"), 1);
}

#[test]
fn an_outage_of_the_server_is_an_error() {
    let mut server = Server::start();
    let agent = over(&server);
    server.kill9();
    let error = agent.client().error("DLOCK.ACQUIRE k a BLOCK 300");
    assert!(error.starts_with("LOADING no server answers"), "{error}");
}

#[test]
fn a_list_of_locks_is_refused_by_the_agent_and_the_module_is_not_blamed() {
    let server = Server::start();
    let agent = over(&server);
    let url = format!("redis://127.0.0.1:{}", agent.port);
    let outcome = Command::new(env!("CARGO_BIN_EXE_dlock")).args(["ls", "-s", &url]).output().expect("dlock");
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status.code(), Some(69), "{said}");
    assert!(said.contains("the agent offers locks only") && !said.contains("module"), "{said}");
}

/// Returns an agent that finds the primary by a Sentinel, and that Sentinel.
fn over_sentinel(primary: &Server) -> (Sentinels, Agent) {
    let sentinels = Sentinels::watch(primary, 1);
    let hosts: Vec<_> = sentinels.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let agent = Agent::start(&["-s", &format!("redis-sentinel://{}/{NAME}", hosts.join(","))]);
    (sentinels, agent)
}

#[test]
fn a_failover_by_sentinel_is_followed() {
    let (primary, replica) = Server::start().with_replica();
    let (_sentinels, agent) = over_sentinel(&primary);
    let mut client = agent.client();
    let token = client.int("DLOCK.ACQUIRE k a PX 60000");
    replica.wait_synced(&primary);
    let mut waiter = agent.client();
    waiter.send("DLOCK.ACQUIRE k b BLOCK 0 REQUEST 1");
    queued([&primary], 1, "k");
    let mut primary = primary;
    primary.kill9();
    soon("the replica is the primary", || replica.is_primary());
    let renewed = |client: &mut Client| matches!(client.outcome("DLOCK.RENEW k a"), Ok(Ok(Value::Int(1))));
    soon("the client is where its lock is", || renewed(&mut client));
    queued([&replica], 1, "k");
    assert_eq!(client.int("DLOCK.RELEASE k a"), 1);
    assert!(waiter.granted() > token);
}

#[test]
fn locks_and_sessions_reach_the_nodes_of_a_cluster() {
    let cluster = Cluster::start(3);
    let port = tcp_port(&mut cluster.client(0));
    let agent = Agent::start(&["-s", &format!("redis://127.0.0.1:{port},127.0.0.1:{port}")]);
    let mut client = agent.client();
    let keys: Vec<_> = (0..20).map(|number| format!("k{number}")).collect();
    assert_eq!(client.int("DLOCK.SESSION s PX 5000 NX"), 0);
    for key in &keys {
        client.int(format!("DLOCK.ACQUIRE {key} a SESSIONID s"));
        let home = cluster.home_of(key);
        assert!(hold(&mut cluster.client(home), key, "a", "exclusive").is_some(), "{key}");
    }
    assert_eq!(client.int("DLOCK.SESSION s PX 5000 XX"), 20);
    assert_eq!(list_of(&client.run("DLOCK.SESSION s LIST")).len(), 20);
    assert_eq!(client.int("DLOCK.SESSION s CLOSE"), 20);
    for key in &keys {
        soon("it is free", || client.ask(format!("DLOCK.INFO {key}")) == Some(Value::Nil));
    }
    // A session that is a connection has a connection to each server.
    client.int("DLOCK.ACQUIRE k1 a SESSION");
    client.int("DLOCK.ACQUIRE k2 a SESSION");
    drop(client);
    let mut client = agent.client();
    for key in ["k1", "k2"] {
        soon("it is free", || client.ask(format!("DLOCK.INFO {key}")) == Some(Value::Nil));
    }
}

fn tcp_port(client: &mut Client) -> u16 {
    dlock_testkit::replica::info_field(client, "server", "tcp_port").expect("a port").parse().expect("a port")
}

#[test]
fn a_request_that_waits_leaves_a_server_that_hangs() {
    let (primary, replica) = Server::start().with_replica();
    let (_sentinels, agent) = over_sentinel(&primary);
    let mut client = agent.client();
    let token = client.int("DLOCK.ACQUIRE k a PX 60000");
    replica.wait_synced(&primary);
    let (mut repeatable, mut other) = (agent.client(), agent.client());
    repeatable.send("DLOCK.ACQUIRE k b BLOCK 0 REQUEST 1");
    other.send("DLOCK.ACQUIRE k c BLOCK 0");
    queued([&primary], 2, "k");
    // A frozen server keeps its connections open.
    primary.freeze();
    soon("the replica is the primary", || replica.is_primary());
    queued([&replica], 1, "k");
    // The request without REQUEST is not repeated: nobody knows whether it was granted.
    assert_eq!(other.closes(), []);
    let mut direct = replica.client();
    assert_eq!(direct.int("DLOCK.RELEASE k a"), 1);
    assert!(repeatable.granted() > token);
}

#[test]
fn wait_confirms_no_write_of_a_connection_that_has_ended() {
    let server = Server::start();
    let agent = over(&server);
    let mut client = agent.client();
    client.int("DLOCK.ACQUIRE k a");
    assert_eq!(client.int("WAIT 0 10"), 0);
    let id = client.int("CLIENT ID");
    client.int("DLOCK.RENEW k a");
    server.client().int(format!("CLIENT KILL ID {id}"));
    client.send("WAIT 0 10");
    assert_eq!(client.closes(), []);
}

/// The server hangs up on the connection that the lock is bound to, but the request that waits may be repeated.
#[test]
fn the_end_of_a_session_closes_its_client_even_while_it_waits() {
    let server = Server::start();
    let agent = over(&server);
    let (mut client, mut holder, mut direct) = (agent.client(), agent.client(), server.client());
    holder.int("DLOCK.ACQUIRE other b");
    client.int("DLOCK.ACQUIRE k a SESSION");
    let id = client.int("CLIENT ID");
    client.send("DLOCK.ACQUIRE other a BLOCK 0 REQUEST 1");
    queued([&server], 1, "other");
    direct.int(format!("CLIENT KILL ID {id}"));
    assert_eq!(client.closes(), []);
}
