//! Requests through the agent while its server is away, or the network delivers late. `DLOCK_SERVER` and `DLOCK_MODULE`
//! name the server and the module, as for the tests in `tests/server/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dlock_agent::{Agent, Listen, Options};
use dlock_client::{Acquire, Client, Error, Guard};
use dlock_testkit::cluster::Cluster;
use dlock_testkit::process::free_port;
use dlock_testkit::proxy::Proxy;
use dlock_testkit::redis::Value;
use dlock_testkit::skip::skipped;
use dlock_testkit::{Server, int_of, list_of, soon};
use tokio::task::JoinHandle;

/// How late the agent expects a command to arrive.
const LATEST: Duration = Duration::from_secs(1);

/// Starts an agent of this server in the background. Returns its port.
fn agent_of(url: &str) -> u16 {
    let port = free_port();
    let listen = Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], port)));
    let client = Client::open(url).expect("a URL");
    let agent = Agent::passing(client, Options::new(vec![listen]), |_| {}).expect("an agent");
    tokio::spawn(agent.run(std::future::pending()));
    port
}

/// Returns how many connections of clients the agent has.
fn connected(port: u16) -> usize {
    let Ok(mut client) = dlock_testkit::Client::connect(port) else { return 0 };
    let section = client.text("INFO agent");
    let count = section.lines().find_map(|line| line.strip_prefix("agent_connected_clients:"));
    count.expect("the number").parse().expect("a number")
}

fn wait_for(acquire: Acquire) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(acquire.into_future())
}

/// The client watches its server and repeats the request over the agent, which repeats it, too. The copy that reaches
/// the server second takes the place of the first, which gets nil.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_through_the_agent_outlasts_a_moment_without_the_server() {
    let mut server = Server::conf("appendonly yes\nappendfsync always");
    let port = agent_of(&format!("redis://127.0.0.1:{}", server.port()));
    soon("the agent listens", || dlock_testkit::Client::connect(port).is_ok());
    let client = Client::open(&format!("redis://127.0.0.1:{port}")).expect("a URL");
    let names: Vec<_> = (0..24).map(|number| format!("job:{number}")).collect();
    let mut direct = server.client();
    for name in &names {
        direct.int(format!("DLOCK.ACQUIRE {name} other PX 60000"));
    }
    let waits: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, name)| match number % 2 {
            0 => client.acquire(name).wait(Duration::from_secs(20)),
            _ => client.acquire(name).outage(Duration::from_secs(16)),
        })
        .map(wait_for)
        .collect();
    server.left_waiting(24);
    server.kill9();
    // 24 first connections, 24 of the repeats, and the one that asks.
    soon("each request was repeated by its client", || connected(port) >= 49);
    server.boot();
    server.left_waiting(24);
    // A wait that takes the nil of an earlier copy for a refusal ends now.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let ended: Vec<_> = waits.iter().enumerate().filter(|(_, wait)| wait.is_finished()).map(|(at, _)| at).collect();
    let mut direct = server.client();
    for name in &names {
        direct.int(format!("DLOCK.RELEASE {name} other"));
    }
    for wait in waits {
        let guard = wait.await.expect("a task");
        assert!(guard.is_ok(), "{guard:?}; ended before the release: {ended:?}");
    }
}

/// An earlier copy of the agent's request takes the place of the repeat. The agent sends the request once more.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_copy_of_the_agents_request_is_no_refusal() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let port = agent_of(&proxy.url());
    soon("the agent listens", || dlock_testkit::Client::connect(port).is_ok());
    let mut direct = server.client();
    direct.int("DLOCK.ACQUIRE k other PX 60000");
    let mut waiter = dlock_testkit::Client::connect(port).expect("a connection");
    waiter.send("DLOCK.ACQUIRE k a BLOCK 0 REQUEST 1");
    server.left_waiting(1);
    proxy.cut();
    server.left_waiting(0);
    // The agent has repeated the request.
    server.left_waiting(1);
    // The late request stands for the copy that was cut off.
    let mut late = server.client();
    late.send("DLOCK.ACQUIRE k a BLOCK 0 REQUEST 1");
    assert!(waiter.poll(Duration::from_secs(1)).is_none(), "a reply before the release");
    assert_eq!(direct.int("DLOCK.RELEASE k other"), 1);
    assert!(waiter.granted() > 0);
}

/// The agent sends a command once more if its connection has ended. If it does not wait, nil is the client's reply.
#[tokio::test(flavor = "multi_thread")]
async fn a_nil_that_answers_a_repeat_without_a_wait_is_the_reply() {
    let server = Server::start();
    let mut direct = server.client();
    direct.int("DLOCK.ACQUIRE k other PX 60000");
    direct.run("DLOCK.SACQUIRE pool other 1 PX 60000");
    for command in [
        "DLOCK.ACQUIRE k a REQUEST 1",
        "DLOCK.RACQUIRE k a REQUEST 1",
        "DLOCK.RLOCK k a REQUEST 1",
        "DLOCK.WLOCK k a REQUEST 1",
        "DLOCK.SACQUIRE pool a 1 REQUEST 1",
        "DLOCK.MACQUIRE 2 k l a REQUEST 1",
        "DLOCK.RENEW k a TOKEN 7",
        "DLOCK.CHECK k 7",
        "DLOCK.INFO none",
    ] {
        let proxy = Proxy::to(&server);
        let port = agent_of(&proxy.url());
        soon("the agent listens", || dlock_testkit::Client::connect(port).is_ok());
        let mut client = dlock_testkit::Client::connect(port).expect("a connection");
        proxy.keep_from("DLOCK.");
        client.send(command);
        soon("the agent has sent the command", || proxy.kept() > 0);
        proxy.cut();
        soon("the agent has sent the command again", || proxy.kept() > 1);
        proxy.deliver();
        assert_eq!(client.poll(Duration::from_secs(20)), Some(Value::Nil), "{command}");
    }
}

/// The connection of a renewal breaks before the server has read the renewal. The late copy sets its lease, although
/// the client has set a longer one since.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_copy_of_a_renewal_never_shortens_a_lease_that_the_client_was_told_of() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let port = agent_of(&proxy.url());
    soon("the agent listens", || dlock_testkit::Client::connect(port).is_ok());
    let mut client = dlock_testkit::Client::connect(port).expect("a connection");
    client.int("DLOCK.ACQUIRE k a PX 60000");
    proxy.strand("DLOCK.RENEW", "DLOCK.RENEW");
    if let Ok(told) = client.outcome("DLOCK.RENEW k a PX 5000") {
        client.int("DLOCK.RENEW k a PX 60000");
        let mut watch = server.client();
        let before = watch.calls("dlock.renew");
        proxy.deliver();
        soon("the late one has arrived", || watch.calls("dlock.renew") > before);
        let left = watch.int("PTTL k");
        assert!(left > 10_000, "the client was told {told:?}, and {left} ms are left");
    }
}

/// The connection of a heartbeat breaks before the server has read the heartbeat. The late copy sets its time, although
/// the client has set a longer one since, or has opened the session again.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_copy_of_a_heartbeat_never_shortens_a_session_that_the_client_was_told_of() {
    for (before, heartbeat, after) in [
        (60_000, "PX 5000 XX", vec!["PX 60000 XX"]),
        (60_000, "PX 5000", vec!["PX 60000"]),
        (5000, "PX 5000 XX", vec!["PX 5000 XX", "PX 60000 XX"]),
        (5000, "PX 5000 XX", vec!["CLOSE", "PX 60000 NX"]),
        (5000, "CLOSE", vec!["PX 60000 NX", "PX 60000 XX"]),
    ] {
        // The network delivers for up to a second, but a late machine may take longer.
        if !(0..10).any(|_| after_a_late_copy(before, heartbeat, &after) < LATEST) {
            skipped(&format!("the late copy of {heartbeat}, {after:?}: in no run did the machine deliver in time"));
        }
    }
}

/// Sends these commands while a late copy of the heartbeat arrives. Returns how long after the heartbeat it arrived. If
/// it came within a second, checks that the session has its last time.
fn after_a_late_copy(before: u32, heartbeat: &str, after: &[&str]) -> Duration {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let port = agent_of(&proxy.url());
    soon("the agent listens", || dlock_testkit::Client::connect(port).is_ok());
    let connect = || dlock_testkit::Client::connect(port).expect("a connection");
    let mut client = connect();
    client.int(format!("DLOCK.SESSION s PX {before} NX"));
    proxy.strand("DLOCK.SESSION", "DLOCK.SESSION");
    let sent = Instant::now();
    let mut told = vec![client.outcome(format!("DLOCK.SESSION s {heartbeat}"))];
    if told[0].is_err() {
        // The client does not know whether it was executed, and goes on.
        client = connect();
    }
    let mut watch = server.client();
    let arrived = std::thread::scope(|scope| {
        let delivery = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            let before = watch.calls("dlock.session");
            proxy.deliver();
            soon("the late one has arrived", || watch.calls("dlock.session") > before);
            sent.elapsed()
        });
        for command in after {
            told.push(client.outcome(format!("DLOCK.SESSION s {command}")));
        }
        delivery.join().expect("it arrives")
    });
    let sessions = list_of(&server.client().run("DLOCK.SESSION LIST"));
    let left = sessions.first().map_or(0, |session| int_of(&list_of(session)[3]));
    let is_late = arrived >= LATEST;
    assert!(is_late || left > 50_000, "{heartbeat}, {after:?}: the client was told {told:?}, and {left} ms are left");
    arrived
}

/// The agent sends a heartbeat again whose connection broke, although it has not seen the one before.
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_of_each_session_outlasts_the_connection_of_the_agent() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let port = agent_of(&proxy.url());
    soon("the agent listens", || dlock_testkit::Client::connect(port).is_ok());
    let mut direct = server.client();
    for session in ["a", "b"] {
        direct.int(format!("DLOCK.SESSION {session} PX 60000 NX"));
    }
    let mut client = dlock_testkit::Client::connect(port).expect("a connection");
    for session in ["a", "b", "a", "b"] {
        proxy.strand("DLOCK.SESSION", "DLOCK.SESSION");
        client.int(format!("DLOCK.SESSION {session} PX 60000 XX"));
        proxy.deliver();
    }
}

/// The connection of a renewal breaks before the server has read the renewal. The late copy binds the lock to its
/// session, although the client has bound it to another one since.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_copy_of_a_renewal_never_binds_a_lock_back_to_another_session() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let port = agent_of(&proxy.url());
    soon("the agent listens", || dlock_testkit::Client::connect(port).is_ok());
    let mut client = dlock_testkit::Client::connect(port).expect("a connection");
    for session in ["first", "second"] {
        client.int(format!("DLOCK.SESSION {session} PX 60000 NX"));
    }
    client.int("DLOCK.ACQUIRE k a PX 60000");
    proxy.strand("DLOCK.RENEW", "DLOCK.RENEW");
    if let Ok(told) = client.outcome("DLOCK.RENEW k a SESSIONID first") {
        client.int("DLOCK.RENEW k a SESSIONID second");
        let mut watch = server.client();
        let before = watch.calls("dlock.renew");
        proxy.deliver();
        soon("the late one has arrived", || watch.calls("dlock.renew") > before);
        watch.int("DLOCK.SESSION first CLOSE");
        assert_eq!(server.holders("k"), ["a"], "the client was told {told:?}");
    }
}

/// The connection of a command with `SESSION` breaks before the server has read the command. The late copy binds the
/// lock to that connection, whose end releases it. A reply to another copy would be followed by a second owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_copy_never_ends_a_session_that_the_client_was_told_of() {
    for (before, command) in [
        (None, "DLOCK.ACQUIRE k a PX 60000 SESSION REQUEST 1"),
        (None, "DLOCK.ACQUIRE k a PX 60000 BLOCK 9000 SESSION REQUEST 1"),
        (Some("DLOCK.ACQUIRE k a PX 60000"), "DLOCK.RENEW k a SESSION"),
    ] {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        let port = agent_of(&proxy.url());
        soon("the agent listens", || dlock_testkit::Client::connect(port).is_ok());
        let mut client = dlock_testkit::Client::connect(port).expect("a connection");
        if let Some(before) = before {
            client.int(before);
        }
        proxy.strand("SESSION", "SESSION");
        let told = client.outcome(command);
        proxy.deliver();
        if let Ok(told) = told {
            let second = server.client().outcome("DLOCK.ACQUIRE k b PX 60000 BLOCK 3000");
            panic!("{command}: the client was told {told:?}, and another one {second:?}");
        }
    }
}

/// A node has forgotten the session, and the client opens it again. The client counts the session's time from that
/// command, on all nodes.
#[tokio::test(flavor = "multi_thread")]
async fn opening_a_session_on_one_node_of_a_cluster_keeps_it_on_the_others() {
    const MS: i64 = 30_000;
    let cluster = Cluster::start(2);
    let node = cluster.nodes[0].port();
    let port = agent_of(&format!("redis://127.0.0.1:{node},127.0.0.1:{node}"));
    soon("the agent listens", || dlock_testkit::Client::connect(port).is_ok());
    let mut client = dlock_testkit::Client::connect(port).expect("a connection");
    let open = format!("DLOCK.SESSION s PX {MS} NX");
    assert_eq!(client.int(&open), 0);
    client.nil(&open);
    cluster.client(1).int("DLOCK.SESSION s CLOSE");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let asked = std::time::Instant::now();
    assert_eq!(client.int(&open), 0);
    for at in 0..2 {
        let sessions = list_of(&cluster.client(at).run("DLOCK.SESSION LIST"));
        let left = int_of(&list_of(&sessions[0])[3]);
        let passed = i64::try_from(asked.elapsed().as_millis()).expect("a short time");
        assert!(left + passed >= MS, "{left} ms are left on the node {at}, {passed} ms after the command");
    }
}
