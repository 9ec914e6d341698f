//! The end of an agent, its metrics, and what it tells systemd.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use dlock_testkit::process::free_port;
use dlock_testkit::{Server, Stopwatch};

use crate::process::{Agent, command, freed, queued, servers, trio};

#[test]
fn a_stop_releases_all_locks_and_ends_all_waits() {
    let (servers, mut agent, mut client) = trio();
    let mut holder = agent.client();
    client.int("DLOCK.ACQUIRE one a PX 20000");
    holder.int("DLOCK.ACQUIRE two a PX 20000 SESSION");
    let mut waiter = agent.client();
    waiter.send("DLOCK.ACQUIRE one b BLOCK 0");
    queued(&servers, 1, "one");
    let watch = Stopwatch::start();
    assert_eq!(agent.stop(), Some(0));
    assert!(watch.elapsed() < Duration::from_secs(8), "{:?}", watch.elapsed());
    freed(&servers, "one");
    freed(&servers, "two");
    queued(&servers, 0, "one");
    assert_eq!(waiter.closes(), []);
}

#[test]
fn with_keep_locks_are_left_to_their_leases() {
    let servers = servers(3);
    let mut agent = Agent::over_with(&servers, &["--keep"]);
    let (mut client, mut holder) = (agent.client(), agent.client());
    client.int("DLOCK.ACQUIRE one a PX 3000");
    holder.int("DLOCK.ACQUIRE two a PX 3000 SESSION");
    assert_eq!(agent.stop(), Some(0));
    for name in ["one", "two"] {
        assert!(servers.iter().filter(|server| !server.holders(name).is_empty()).count() >= 2, "{name}");
    }
    // A new agent does not know these locks. The servers free them when the leases end.
    let next = Agent::over(&servers);
    next.client().nil("DLOCK.RELEASE one a");
    freed(&servers, "one");
    freed(&servers, "two");
}

#[test]
fn counters_are_served_to_prometheus() {
    let servers = servers(3);
    let port = free_port();
    let agent = Agent::over_with(&servers, &["--metrics", &format!("127.0.0.1:{port}")]);
    agent.client().int("DLOCK.ACQUIRE k a PX 20000");
    // Connections without a request do not hold up the one with a request.
    let silent: Vec<_> = (0..10).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let watch = Stopwatch::start();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
    drop(silent);
    for line in ["dlock_agent_grants_total 1", "dlock_agent_holds 1", "# TYPE dlock_agent_lost_total counter"] {
        assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    }
}

#[test]
fn systemd_is_told_when_the_agent_is_ready_and_when_it_stops() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // No server answers at port 1: the agent is ready all the same.
    let port = free_port();
    let mut agent = command();
    agent.env("NOTIFY_SOCKET", &path).args(["--listen", &format!("127.0.0.1:{port}"), "-s", "redis://127.0.0.1:1"]);
    let mut agent = Agent::run(agent, port);
    let state = || {
        let mut bytes = [0; 64];
        let count = socket.recv(&mut bytes).expect("a state");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    assert_eq!(state(), "READY=1");
    assert_eq!(agent.stop(), Some(0));
    assert_eq!(state(), "STOPPING=1");
}

#[test]
fn silent_connections_do_not_hold_up_a_scrape() {
    let server = Server::start();
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("redis://127.0.0.1:{}", server.port());
    let _agent = Agent::start(&["-s", &url, "--metrics", &address]);
    crate::scrapes::are_answered_beside_idle_connections(&address, "/metrics");
}
