//! `dlock info`, `ls`, `watch`, `graph`, `log` and `metrics` on real servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::{Outcome, Running, With, bare, dlock, outcome};
use dlock_testkit::cluster::Cluster;
use dlock_testkit::{Server, soon};

#[track_caller]
fn run(server: &Server, arguments: &[&str]) -> Outcome {
    outcome(dlock(server).with(arguments))
}

/// `dlock` with the URLs of several servers.
fn of_several(servers: &[Server], arguments: &[&str]) -> Command {
    let mut command = bare();
    for server in servers {
        command.arg("-s").arg(format!("redis://127.0.0.1:{}", server.port()));
    }
    command.args(arguments);
    command
}

/// A `dlock` that runs on, and a reader of its lines.
fn lines_of(mut command: Command) -> (Running, BufReader<std::process::ChildStdout>) {
    let mut running = Running::start({
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    });
    let output = BufReader::new(running.child().stdout.take().expect("a pipe"));
    (running, output)
}

#[track_caller]
fn next(output: &mut impl BufRead) -> Value {
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

#[test]
fn a_hold_of_a_named_session_is_shown_with_its_id() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.SESSION worker-1 PX 600000 NX");
    client.int("DLOCK.ACQUIRE job alice PX 600000 SESSIONID worker-1");
    let table = run(&server, &["info", "job", "--table"]);
    assert!(table.stdout.lines().any(|line| line.starts_with("alice ") && line.ends_with(" worker-1")), "{table:?}");
    let info: Value = serde_json::from_str(&run(&server, &["info", "job"]).stdout).expect("JSON");
    assert_eq!(info["holds"][0]["session"], "worker-1");
    assert_eq!(run(&server, &["ls"]).code, Some(0));
}

#[test]
fn info_shows_permits_and_the_number_of_locks() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.SACQUIRE pool a 3 PERMITS 2 PX 600000");
    let _one = server.waiter("DLOCK.SACQUIRE pool b 3 PERMITS 2 BLOCK 0");
    let _several = server.waiter("DLOCK.MACQUIRE 2 pool free c BLOCK 0");
    let info: Value = serde_json::from_str(&run(&server, &["info", "pool"]).stdout).expect("JSON");
    assert_eq!(info["count"], 2);
    let queue = ["permits", "limit", "keys"].map(|field| [&info["queue"][0][field], &info["queue"][1][field]]);
    assert_eq!(queue, [[&2.into(), &1.into()], [&3.into(), &Value::Null], [&1.into(), &2.into()]]);
    // A free lock has a waiter: the request waits for another lock, too.
    let free = run(&server, &["info", "free"]);
    let info: Value = serde_json::from_str(&free.stdout).expect("JSON");
    assert_eq!((free.code, &info["mode"], &info["token"]), (Some(1), &"free".into(), &Value::Null));
    assert_eq!(info["queue"][0]["owner"], "c");
}

#[test]
fn ls_prints_a_table_in_a_pipe_if_asked_for() {
    let server = Server::start();
    server.client().int("DLOCK.SACQUIRE pool a 3 PERMITS 2 PX 600000");
    let table = run(&server, &["ls", "--table"]);
    let words: Vec<Vec<&str>> = table.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["NAME", "MODE", "OWNER", "AGE", "TTL", "WAITERS", "WAIT", "PERMITS"]);
    assert_eq!((words[1][0], words[1][2], words[1][7]), ("pool", "a", "2"));
    assert_eq!(table.code, Some(0));
}

#[test]
fn ls_prints_the_rest_of_a_cluster_if_a_node_hangs() {
    let cluster = Cluster::start(3);
    let names = ["a", "b", "c"];
    for name in names {
        cluster.client(cluster.home_of(name)).int(format!("DLOCK.ACQUIRE {name} me PX 600000"));
    }
    let hung = cluster.home_of("a");
    let asked = &cluster.nodes[(hung + 1) % 3];
    cluster.nodes[hung].freeze();
    let rest = run(asked, &["ls"]);
    cluster.nodes[hung].thaw();
    assert_eq!(rest.code, Some(69), "{rest:?}");
    let found: Value = serde_json::from_str(&rest.stdout).expect("JSON");
    let found: Vec<_> = found.as_array().expect("a list").iter().map(|lock| lock["name"].clone()).collect();
    let expected: Vec<Value> =
        names.into_iter().filter(|name| cluster.home_of(name) != hung).map(Value::from).collect();
    assert_eq!(found, expected);
    let missing = format!("missing: 127.0.0.1:{}: ", cluster.nodes[hung].port());
    assert!(rest.stderr.contains(&missing), "{}", rest.stderr);
    assert_eq!(run(asked, &["ls"]).code, Some(0), "it is back");
}

#[test]
fn watch_prints_each_change_of_the_holder() {
    let (mut server, mut client) = Server::start().with_client();
    let first = client.int("DLOCK.ACQUIRE leader alice PX 600000");
    let (_running, mut output) = lines_of(dlock(&server).with(["watch", "leader"]));
    let seen = next(&mut output);
    assert_eq!((&seen["name"], &seen["state"]), (&"leader".into(), &"held".into()));
    assert_eq!((&seen["holders"][0]["owner"], &seen["holders"][0]["token"]), (&"alice".into(), &first.into()));
    assert_eq!(seen["holders"][0]["since"], first / 1000);
    // A renewal is no change: the next line is about bob.
    let mut bob = server.waiter("DLOCK.ACQUIRE leader bob PX 600000 BLOCK 0");
    client.int("DLOCK.RENEW leader alice PX 500000");
    client.int("DLOCK.RELEASE leader alice");
    bob.granted();
    assert_eq!(next(&mut output)["holders"][0]["owner"], "bob");
    client.int("DEL leader");
    assert_eq!(next(&mut output)["state"], "free");
    // The end of a lease that nobody waits for shows when the server removes the key, or its TTL has passed.
    client.int("DLOCK.ACQUIRE leader carol PX 100");
    assert_eq!(next(&mut output)["holders"][0]["owner"], "carol");
    assert_eq!(next(&mut output)["state"], "free");
    server.kill9();
    assert_eq!(next(&mut output)["state"], "unknown");
    server.boot();
    server.client().int("DLOCK.ACQUIRE leader dave PX 600000");
    let back = next(&mut output);
    let back = if back["state"] == "free" { next(&mut output) } else { back };
    assert_eq!(back["holders"][0]["owner"], "dave");
}

#[test]
fn watch_ends_on_a_key_of_another_type_or_without_a_server() {
    let server = Server::start();
    server.client().ok("SET text x");
    let wrong = run(&server, &["watch", "text"]);
    assert_eq!(wrong.code, Some(69));
    assert!(wrong.stderr.contains("WRONGTYPE"), "{}", wrong.stderr);
    let away = outcome(bare().with(["-s", "redis://127.0.0.1:1", "watch", "job"]));
    assert_eq!((away.code, away.stdout.as_str()), (Some(69), ""), "{}", away.stderr);
}

#[test]
fn graph_shows_who_waits_for_whom() {
    let server = Server::start();
    assert_eq!(run(&server, &["graph"]).stdout, "nobody waits\n");
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE job alice PX 600000");
    let _bob = server.waiter("DLOCK.ACQUIRE job bob BLOCK 0");
    let _carol = server.waiter("DLOCK.ACQUIRE job carol BLOCK 0");
    client.int("DLOCK.SACQUIRE pool dave 2 PERMITS 2 PX 600000");
    let mut erin = server.client();
    erin.ok("CLIENT SETNAME web-3");
    let id = erin.int("CLIENT ID");
    server.enters_queue(&mut erin, "DLOCK.SACQUIRE pool erin 2 BLOCK 0");
    let text = run(&server, &["graph"]).stdout;
    // Without times and addresses.
    let is_fixed = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit()) || word.ends_with('.') || *word == "2";
    let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().filter(is_fixed).collect::<Vec<_>>()).collect();
    let lines: Vec<_> = lines.iter().map(|words| words.join(" ")).collect();
    assert_eq!(
        lines,
        [
            "job",
            "├─ held by alice for",
            "├─ 1. bob waits client",
            "└─ 2. carol waits client",
            "pool",
            "├─ 2 permits of dave for",
            "└─ 1. erin waits wants of 2 client web-3",
        ]
    );
    assert!(text.contains(&format!("client {id} 127.0.0.1:")), "{text}");
    let info = run(&server, &["info", "pool", "--table"]).stdout;
    assert!(info.lines().last().is_some_and(|line| line.ends_with(" web-3") && line.contains(" 127.0.0.1:")), "{info}");
    let info: Value = serde_json::from_str(&run(&server, &["info", "pool"]).stdout).expect("JSON");
    assert_eq!((&info["queue"][0]["client"], &info["queue"][0]["client_name"]), (&id.into(), &"web-3".into()));
    let dot = run(&server, &["graph", "--format", "dot", "job"]).stdout;
    assert!(dot.starts_with("digraph waits {") && dot.contains("\"bob\" -> \"alice\" [label=\"job held "), "{dot}");
    assert!(!dot.contains("erin"), "{dot}");
    let mermaid = run(&server, &["graph", "-f", "mermaid"]).stdout;
    assert!(mermaid.starts_with("graph LR\n  o0[\"alice\"]\n"), "{mermaid}");
    assert!(mermaid.contains("  o1 -->|\"job held "), "{mermaid}");
}

#[test]
fn graph_marks_a_deadlock_across_servers() {
    let servers = [Server::start(), Server::start()];
    for (server, owner) in servers.iter().zip(["alice", "bob"]) {
        server.client().int(format!("DLOCK.ACQUIRE job {owner} PX 600000"));
    }
    let _bob = servers[0].waiter("DLOCK.ACQUIRE job bob BLOCK 0");
    let _alice = servers[1].waiter("DLOCK.ACQUIRE job alice BLOCK 0");
    assert!(!run(&servers[0], &["graph"]).stdout.contains("DEADLOCK"), "one server does not see it");
    let both = outcome(of_several(&servers, &["graph"]));
    assert!(
        both.stdout.contains("DEADLOCK: bob -> alice -> bob\n")
            || both.stdout.contains("DEADLOCK: alice -> bob -> alice\n")
    );
    assert_eq!(both.stdout.matches("(cycle)").count(), 2, "{}", both.stdout);
    let dot = outcome(of_several(&servers, &["graph", "-f", "dot"])).stdout;
    assert_eq!(dot.matches("color=red").count(), 2, "{dot}");
    let mermaid = outcome(of_several(&servers, &["graph", "-f", "mermaid"])).stdout;
    assert!(mermaid.contains("linkStyle 0,1 stroke:red"), "{mermaid}");
    // Without one server the graph is not complete, and an error says so.
    servers[1].freeze();
    let half = outcome(of_several(&servers, &["graph"]));
    servers[1].thaw();
    assert_eq!(half.code, Some(69));
    assert!(half.stdout.contains("bob waits") && half.stderr.contains("missing: "), "{half:?}");
}

#[test]
fn log_shows_what_happened_and_follows() {
    let (server, mut client) = Server::conf("dlock.log-hold 0").with_client();
    client.int("DLOCK.ACQUIRE job alice PX 600000");
    client.int("DLOCK.RELEASE job alice");
    let entries: Value = serde_json::from_str(&run(&server, &["log"]).stdout).expect("JSON");
    let entry = &entries[0];
    assert_eq!([&entry["event"], &entry["key"], &entry["owner"]], ["hold", "job", "alice"]);
    assert_eq!(
        (entry["server"].as_str(), &entry["waited"]),
        (Some(&*format!("127.0.0.1:{}", server.port())), &Value::Null)
    );
    let table = run(&server, &["log", "--table"]).stdout;
    assert!(table.starts_with("TIME (UTC)") && table.contains("  hold   job   alice  -  "), "{table}");
    assert_eq!(run(&server, &["log", "--event", "lapse,deadlock"]).stdout, "[]\n");
    let (_running, mut output) = lines_of(dlock(&server).with(["log", "--follow", "--event", "deadlock,delete"]));
    client.int("DLOCK.ACQUIRE job alice PX 600000");
    client.error("DLOCK.ACQUIRE job alice BLOCK 0");
    assert_eq!(next(&mut output)["event"], "deadlock");
    client.int("DEL job");
    let entry = next(&mut output);
    assert_eq!([&entry["event"], &entry["owner"]], ["delete", "alice"]);
}

#[test]
fn log_finds_rare_events_behind_frequent_ones() {
    let (server, mut client) = Server::conf("dlock.log-hold 0").with_client();
    client.int("DLOCK.ACQUIRE gone alice");
    client.int("DEL gone");
    for _ in 0..12 {
        client.int("DLOCK.ACQUIRE other bob");
        client.int("DLOCK.RELEASE other bob");
    }
    let count = |arguments: &[&str]| {
        let entries: Value = serde_json::from_str(&run(&server, arguments).stdout).expect("JSON");
        entries.as_array().expect("a list").len()
    };
    assert_eq!([count(&["log"]), count(&["log", "-n", "3"]), count(&["log", "-e", "delete", "-n", "3"])], [10, 3, 1]);
}

#[test]
fn logs_of_several_servers_are_merged() {
    let servers = [0, 1].map(|_| Server::conf("dlock.log-hold 0"));
    // The server that is named last has the oldest entry.
    for (server, owner) in servers.iter().rev().zip(["a", "b"]) {
        let mut client = server.client();
        client.int(format!("DLOCK.ACQUIRE job {owner}"));
        client.int(format!("DLOCK.RELEASE job {owner}"));
        // The entries have different times, in ms.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let log = outcome(of_several(&servers, &["log"]));
    let entries: Value = serde_json::from_str(&log.stdout).expect("JSON");
    let owners: Vec<_> = entries.as_array().expect("a list").iter().map(|entry| entry["owner"].clone()).collect();
    assert_eq!(owners, ["a", "b"], "the newest last");
}

/// The reply to a request, such as `GET /metrics`.
fn get(address: &str, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

#[test]
fn metrics_are_served_for_prometheus() {
    let (mut server, mut client) = Server::start().with_client();
    let _waiters: Vec<_> = (0..20)
        .map(|n| {
            client.int(format!("DLOCK.ACQUIRE job:{n} me PX 600000"));
            server.waiter(format!("DLOCK.ACQUIRE job:{n} you BLOCK 0"))
        })
        .collect();
    let _more = server.waiter("DLOCK.ACQUIRE job:7 they BLOCK 0");
    let once = run(&server, &["metrics"]).stdout;
    let at = format!("{{server=\"127.0.0.1:{}\"", server.port());
    for line in [
        format!("dlock_up{at}}} 1"),
        format!("dlock_grants_total{at}}} 20"),
        format!("dlock_waiters{at}}} 21"),
        format!("dlock_max_waiters{at}}} 10000"),
        format!("dlock_lock_waiters{at},lock=\"job:7\"}} 2"),
    ] {
        assert!(once.lines().any(|found| found == line), "{line} in\n{once}");
    }
    assert!(once.contains("dlock_wait_seconds{") && once.contains("quantile=\"0.999\""), "{once}");
    assert_eq!(once.lines().filter(|line| line.starts_with("dlock_lock_")).count(), 48);
    assert!(!run(&server, &["metrics", "--locks", "0"]).stdout.contains("dlock_lock_"));
    assert_eq!(run(&server, &["metrics", "--locks", "17"]).code, Some(64));

    let address = format!("127.0.0.1:{}", dlock_testkit::process::free_port());
    let _running = lines_of(dlock(&server).with(["metrics", "--listen", &address]));
    soon("it listens", || TcpStream::connect(&address).is_ok());
    // A silent client holds up nobody.
    let _silent = TcpStream::connect(&address).expect("a connection");
    let reply = get(&address, "GET /metrics").expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{reply}");
    assert!(reply.contains(&format!("dlock_grants_total{at}}} 20")), "{reply}");
    assert!(get(&address, "GET /other").expect("a reply").starts_with("HTTP/1.1 404 "));
    assert!(get(&address, "POST /metrics").expect("a reply").starts_with("HTTP/1.1 405 "));
    server.kill9();
    let reply = get(&address, "GET /metrics").expect("a reply");
    assert!(reply.contains(&format!("dlock_up{at}}} 0")), "{reply}");
    server.boot();
    soon("it is seen again", || {
        get(&address, "GET /metrics").is_ok_and(|reply| reply.contains(&format!("dlock_up{at}}} 1")))
    });
}

#[test]
fn silent_connections_do_not_hold_up_a_scrape() {
    let server = Server::start();
    let address = format!("127.0.0.1:{}", dlock_testkit::process::free_port());
    let _running = lines_of(dlock(&server).with(["metrics", "--listen", &address]));
    crate::scrapes::are_answered_beside_idle_connections(&address, "/metrics");
}
