//! `make bench-agent`: times a lock through the agent beside the Rust client, and measures a thousand waiting clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dlock_testkit::{Client, Server};

use crate::process::{Agent, queued};

/// How often the Rust client and the agent take turns, so that both have the same machine.
const ROUNDS: usize = 15;
/// How often a turn acquires and releases the lock.
const PAIRS: usize = 200;
const WAITERS: usize = 1000;
/// For how long packets and the time of the processor are counted.
const LOOK: Duration = Duration::from_secs(5);
/// Short, so that the servers soon count after their start. The leases here are 2 s.
const LONGEST: &str = "3s";

#[test]
#[ignore = "timings: make bench-agent"]
fn figures() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let urls: Vec<_> = servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("dlock.sock");
    let mut options = vec!["--longest-lease".to_owned(), LONGEST.to_owned(), "--listen".to_owned()];
    options.push(format!("unix:{}", path.display()));
    urls.iter().for_each(|url| options.extend(["-s".to_owned(), url.clone()]));
    let agent = Agent::start(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let mut client = agent.client();
    // Servers that have just started count only after the longest lease.
    while client.outcome("DLOCK.ACQUIRE k a").unwrap().is_err() {
        sleep(Duration::from_millis(100));
    }
    // Two of three servers have granted. Uptimes are in whole seconds, so the third server may count a second later.
    sleep(Duration::from_secs(1));
    client.int("DLOCK.RELEASE k a");
    let ratio =
        latency(&urls, UnixStream::connect(&path).unwrap(), TcpStream::connect(("127.0.0.1", agent.port)).unwrap());
    let packets = waiters(&servers, &agent, client);
    assert!(ratio <= 1.5, "beside the Rust client: {ratio:.2}, at most 1.5");
    assert!(packets <= 1100.0, "packets a second of {WAITERS} waiters: {packets:.0}, at most 1,100");
}

/// Prints the medians of all rounds. Returns the time over the Unix socket, divided by that of the Rust client.
fn latency(urls: &[String], mut unix: UnixStream, mut tcp: TcpStream) -> f64 {
    tcp.set_nodelay(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rust = runtime.block_on(async { dlock_client::Client::quorum(urls, Duration::from_secs(3)).open().unwrap() });
    let (mut medians, mut ratios) = ([const { Vec::new() }; 3], Vec::new());
    for _ in 0..ROUNDS {
        let round = [
            median(|| runtime.block_on(async { rust_pair(&rust).await })),
            median(|| raw_pair(&mut unix)),
            median(|| raw_pair(&mut tcp)),
        ];
        ratios.push(round[1] / round[0]);
        medians.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("acquire and release, one client, three servers; load {load}");
    for (what, all) in ["the Rust client", "agent, Unix socket", "agent, TCP"].iter().zip(&mut medians) {
        println!("{what:24}{:8.0} µs   (rounds {:.0} to {:.0})", middle(all), all[0], all[all.len() - 1]);
    }
    let ratio = middle(&mut ratios);
    println!("{:24}{ratio:8.2}      (rounds {:.2} to {:.2})", "agent beside Rust", ratios[0], ratios[ratios.len() - 1]);
    ratio
}

async fn rust_pair(client: &dlock_client::Client) {
    let guard = client.try_acquire("k").lease(Duration::from_secs(2)).no_renewal().await.expect("it is free");
    guard.release().await.expect("it is held");
}

fn raw_pair(stream: &mut (impl Read + Write)) {
    for line in ["DLOCK.ACQUIRE k a PX 2000\r\n", "DLOCK.RELEASE k a\r\n"] {
        stream.write_all(line.as_bytes()).unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n") {
            let mut chunk = [0; 256];
            let count = stream.read(&mut chunk).unwrap();
            reply.extend_from_slice(&chunk[..count]);
        }
        assert!(reply.starts_with(b":"), "{}", reply.escape_ascii());
    }
}

/// Returns the median time of a pair in a turn, in µs.
fn median(mut pair: impl FnMut()) -> f64 {
    let took = |pair: &mut dyn FnMut()| {
        let began = Instant::now();
        pair();
        began.elapsed().as_secs_f64() * 1e6
    };
    middle(&mut (0..PAIRS).map(|_| took(&mut pair)).collect::<Vec<_>>())
}

fn middle(numbers: &mut [f64]) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Prints what a thousand clients that wait for one lock cost the agent. Returns the packets per second on the loopback
/// interface, which nothing else should use.
fn waiters(servers: &[Server], agent: &Agent, mut holder: Client) -> f64 {
    holder.int("DLOCK.ACQUIRE k a PX 2000 SESSION");
    let before = agent.memory();
    let idle = rates(agent);
    let mut waiters: Vec<Client> = (0..WAITERS).map(|_| agent.client()).collect();
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(format!("DLOCK.ACQUIRE k w{at} PX 2000 BLOCK 0"));
        // Each group is in the queue before the next one comes.
        if at % 50 == 49 {
            queued(servers, at + 1, "k");
        }
    }
    // The cost of joining the queue is not counted.
    sleep(Duration::from_secs(3));
    let waiting = rates(agent);
    let each = agent.memory().saturating_sub(before) as f64 / WAITERS as f64 / 1024.0;
    println!("{WAITERS} waiters        packets a second   % of a core   kB a waiter");
    println!("of the agent alone  {:19.0}{:14.1}", idle.0, idle.1);
    println!("with the waiters    {:19.0}{:14.1}{each:14.1}", waiting.0, waiting.1);
    waiting.0
}

/// Returns the packets of the loopback a second, and the time of the agent in percent of a core.
fn rates(agent: &Agent) -> (f64, f64) {
    let (packets, time) = (packets(), agent.cpu_time());
    sleep(LOOK);
    let seconds = LOOK.as_secs_f64();
    ((self::packets() - packets) / seconds, (agent.cpu_time() - time).as_secs_f64() / seconds * 100.0)
}

fn packets() -> f64 {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:")).expect("the loopback");
    // The first numbers are the received bytes and packets.
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
