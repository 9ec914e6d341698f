//! The promises of an agent over a quorum: no reply says that a lock is held for longer than the servers hold it.
//! `DLOCK_SERVER` and `DLOCK_MODULE` name the server and the module, as for the tests in `tests/server/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dlock_agent::{Agent, Listen, Options};
use dlock_client::Client as LockClient;
use dlock_testkit::process::free_port;
use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Server, Setup, soon};

const LONGEST: Duration = Duration::from_secs(30);

/// Starts three servers that keep their locks on disk, and an agent of their quorum in the background. Returns the
/// servers and the agent's port.
fn trio() -> (Vec<Server>, u16) {
    let setup = Setup::new().conf("appendonly yes\nappendfsync always");
    let servers: Vec<_> = (0..3).map(|_| setup.clone().start()).collect();
    let urls: Vec<_> = servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect();
    let quorum = LockClient::quorum(&urls, LONGEST).persistent().server_timeout(Duration::from_secs(1));
    let members: Vec<_> = urls.iter().map(|url| LockClient::open(url).expect("a URL")).collect();
    let port = free_port();
    let options = Options::new(vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))]);
    let agent = Agent::of_quorum(quorum.open().expect("a quorum"), &members, LONGEST, options, |_| {});
    tokio::spawn(agent.expect("an agent").run(std::future::pending()));
    soon("the agent listens", || Client::connect(port).is_ok());
    (servers, port)
}

fn client(port: u16) -> Client {
    Client::connect(port).expect("a connection")
}

/// Waits until nobody holds the lock on any server.
fn freed(servers: &[Server], key: &str) {
    servers.iter().for_each(|server| soon("the lock is free", || server.holders(key).is_empty()));
}

/// While a request waits, a heartbeat gives its session more time than its lease has. With the lock, the client would
/// rely on it for that time.
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_with_a_longer_time_binds_no_lock_that_ends_before() {
    let (servers, port) = trio();
    let (mut client, mut waiter) = (client(port), client(port));
    client.int("DLOCK.ACQUIRE k other PX 20000");
    client.int("DLOCK.SESSION s PX 5000 NX");
    waiter.send("DLOCK.ACQUIRE k a PX 10000 SESSIONID s BLOCK 0");
    soon("it waits", || servers.iter().any(|server| server.waiting() == 1));
    assert_eq!(client.int("DLOCK.SESSION s PX 20000 XX"), 0);
    assert_eq!(client.int("DLOCK.RELEASE k other"), 1);
    let told = waiter.read();
    assert!(told.as_ref().is_err_and(|error| error.contains("twice the session's time")), "{told:?}");
    freed(&servers, "k");
    assert_eq!(client.int("DLOCK.SESSION s PX 20000 XX"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_binds_no_lock_that_ends_before_the_sessions_time() {
    let (_servers, port) = trio();
    let mut client = client(port);
    client.int("DLOCK.SESSION s PX 10000 NX");
    let token = client.int("DLOCK.ACQUIRE short a PX 4000 REQUEST 1");
    let told = client.attempt("DLOCK.ACQUIRE short a PX 25000 REQUEST 1 SESSIONID s");
    assert!(told.as_ref().is_err_and(|error| error.contains("twice the session's time")), "{told:?}");
    assert!(client.int(format!("DLOCK.CHECK short {token}")) > 0, "the first grant stands");
    // A lease that is long enough is renewed first.
    client.int("DLOCK.SESSION t PX 2000 NX");
    let token = client.int("DLOCK.ACQUIRE long a PX 5000 REQUEST 2");
    let check = format!("DLOCK.CHECK long {token}");
    soon("less than the session's time is left", || {
        assert_eq!(client.int("DLOCK.SESSION t PX 2000 XX"), 0);
        client.int(&check) < 2000
    });
    assert_eq!(client.int("DLOCK.ACQUIRE long a PX 5000 REQUEST 2 SESSIONID t"), token);
    assert!(client.int(&check) >= 2000);
    assert_eq!(client.int("DLOCK.SESSION t PX 2000 XX"), 1);
}

/// A session is forgotten when one of its locks is lost. The client learns that with its next heartbeat, and relies on
/// its other locks until then, for the time of the last one.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_session_leaves_its_locks_the_time_of_the_last_heartbeat() {
    const TIME: Duration = Duration::from_secs(4);
    let (servers, port) = trio();
    let mut client = client(port);
    let heartbeat = format!("DLOCK.SESSION s PX {} XX", TIME.as_millis());
    client.int("DLOCK.SESSION s PX 4000 NX");
    client.int("DLOCK.ACQUIRE broken a PX 9000 SESSIONID s");
    let token = client.int("DLOCK.ACQUIRE k a PX 9000 SESSIONID s");
    assert_eq!(client.int("DLOCK.RENEW k a PX 500"), 1);
    for server in &servers {
        soon("it is held there", || server.client().int("DEL broken") == 1);
    }
    let mut relies_until = Instant::now();
    let error = loop {
        let asked = Instant::now();
        match client.attempt(&heartbeat) {
            Ok(_) => relies_until = asked + TIME,
            Err(error) => break error,
        }
        sleep(Duration::from_millis(100));
    };
    assert!(error.starts_with("NOSESSION "), "{error}");
    sleep(Duration::from_secs(1));
    let left = client.attempt(format!("DLOCK.CHECK k {token}"));
    assert!(Instant::now() < relies_until, "the machine is too slow for this test");
    assert!(matches!(left, Ok(Value::Int(1..))), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_says_how_many_servers_answer() {
    let (mut servers, port) = trio();
    let mut client = client(port);
    servers.drain(..2);
    for command in ["PING", "DLOCK.CHECK k 7", "DLOCK.INFO k"] {
        let error = client.error(command);
        assert!(error.starts_with("LOADING too few servers answer: 1 of 3, a majority is 2: "), "{command}: {error}");
    }
}
