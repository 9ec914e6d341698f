//! Clients that send or take too much: memory has its bounds, and others are served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Serve, soon, text_of};

use crate::process::{serve, with_clients};

/// The most memory that the server may take for the clients of a test, in bytes. A peak also contains what the server
/// takes at idle.
const MOST: u64 = 96 << 20;

fn raw(server: &Serve) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

#[track_caller]
fn others_are_served(server: &Serve) {
    let began = Instant::now();
    let mut client = server.client();
    client.int("DLOCK.ACQUIRE others a PX 60000");
    client.int("DLOCK.RELEASE others a");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn requests_that_are_too_large_or_malformed_are_refused() {
    let server = serve(&[]);
    for sent in [
        "*1\r\n$1073741824\r\n",
        "*1000000000\r\n",
        "*1\r\n$-1\r\n",
        "*99999999999999999999\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n",
    ] {
        let mut stream = raw(&server);
        stream.write_all(sent.as_bytes()).unwrap();
        let mut said = String::new();
        // The server closes the connection with bytes unread, which may reset it after the reply and fail this read.
        let _ = stream.read_to_string(&mut said);
        assert!(said.starts_with("-ERR"), "{sent:?}: {said:?}");
        others_are_served(&server);
    }
}

#[test]
fn endless_requests_whose_replies_nobody_reads_hold_up_nobody() {
    let server = serve(&[]);
    let before = server.memory();
    let floods: Vec<_> = (0..4).map(|_| raw(&server)).collect();
    for flood in &floods {
        let mut to = flood.try_clone().unwrap();
        to.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let lines = "DLOCK.HELP\r\n".repeat(1000);
        std::thread::spawn(move || while to.write_all(lines.as_bytes()).is_ok() {});
    }
    for _ in 0..10 {
        others_are_served(&server);
        std::thread::sleep(Duration::from_millis(50));
    }
    let taken = server.memory().saturating_sub(before);
    assert!(taken < MOST, "{taken} bytes");
}

#[test]
fn half_requests_take_little_more_memory_than_was_sent() {
    let server = serve(&[]);
    let before = server.memory();
    let half = [b"*2\r\n$4\r\nPING\r\n$100000\r\n".to_vec(), vec![b'x'; 60_000]].concat();
    let mut streams: Vec<_> = (0..300).map(|_| raw(&server)).collect();
    streams.iter_mut().for_each(|stream| stream.write_all(&half).unwrap());
    let sent = half.len() as u64 * 300;
    let mut client = server.client();
    soon("the server has read all", || number_of(&mut client, "client_buffers") >= sent);
    others_are_served(&server);
    let taken = server.memory().saturating_sub(before);
    assert!(taken < 2 * sent, "{taken} bytes for {sent}");
    drop((streams, client));
    soon("the clients are gone", || server.client().text("INFO clients").contains("connected_clients:1\r\n"));
}

#[test]
fn a_request_is_refused_when_its_words_exceed_256_kb() {
    let server = serve(&[]);
    let word = format!("$1000\r\n{}\r\n", "x".repeat(1000));
    let endless = format!("*1000\r\n{}", word.repeat(300));
    let mut stream = raw(&server);
    // Bytes that the server has not read might reset the connection before its reply, so none follow.
    stream.write_all(&endless.as_bytes()[..256 << 10]).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "-ERR Protocol error: the request is too long\r\n");
}

#[test]
fn clients_whose_requests_take_too_much_together_are_disconnected() {
    /// The most bytes of all clients together (`max_buffers` in crates/agent/src/serve/options.rs).
    const BUFFERS: u64 = 256 << 20;
    let (server, [mut client]) = with_clients();
    // A transaction of 840 kB and half a request of 120 kB, 400 times, are 384 MB.
    let echo = format!("*2\r\n$4\r\nECHO\r\n$70000\r\n{}\r\n", "x".repeat(70_000)).repeat(12);
    let much = format!("MULTI\r\n{echo}*2\r\n$4\r\nECHO\r\n$130000\r\n{}", "x".repeat(120_000));
    // The server may disconnect a client while it sends.
    let has_sent = |mut stream: TcpStream| stream.write_all(much.as_bytes()).is_ok().then_some(stream);
    let streams: Vec<_> = (0..400).filter_map(|_| has_sent(raw(&server))).collect();
    soon("clients are disconnected", || server.log().contains("too many bytes wait for their clients"));
    soon("the server has made room", || number_of(&mut client, "client_buffers") <= BUFFERS);
    let kept = number_of(&mut client, "client_buffers");
    assert!(kept > BUFFERS / 2, "{kept} bytes are left: more clients than necessary were disconnected");
    others_are_served(&server);
    assert!(peak(&server) < BUFFERS + MOST, "{} bytes", peak(&server));
    drop(streams);
    soon("the memory is given back", || number_of(&mut client, "client_buffers") == 0);
}

#[test]
fn clients_over_the_limit_are_refused() {
    let server = serve(&["--max-clients", "3"]);
    let held: Vec<_> = (0..3).map(|_| server.client()).collect();
    let mut said = String::new();
    soon("one more is refused", || {
        said.clear();
        raw(&server).read_to_string(&mut said).is_ok() && said.contains("max number of clients")
    });
    drop(held);
    soon("there is room again", || server.client().attempt("PING").is_ok());
}

#[test]
fn clients_that_do_not_log_in_keep_nobody_out() {
    let (_home, server) = with_password(&["--max-clients", "3"]);
    let mut silent: Vec<_> = (0..3).map(|_| raw(&server)).collect();
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.ok("AUTH secret"));
    // Each client that finds no room takes the place of one that has not logged in.
    for stream in &mut silent {
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "a silent client gets nothing but the end");
    }
    let mut said = String::new();
    raw(&server).read_to_string(&mut said).unwrap();
    assert!(said.contains("max number of clients"), "{said}");
    clients.iter_mut().for_each(|client| assert_eq!(client.text("PING"), "PONG"));
}

#[test]
fn a_client_that_does_not_log_in_is_disconnected_whatever_it_sends() {
    let (_home, server) = with_password(&[]);
    let mut stranger = raw(&server);
    stranger.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    // The server stops reading the requests, because the client does not read the replies.
    while stranger.write_all(&b"PING\r\n".repeat(1000)).is_ok() {}
    let mut client = server.client();
    client.ok("AUTH secret");
    soon("the stranger is disconnected", || client.text("INFO clients").contains("connected_clients:1\r\n"));
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    let server = serve(&[]);
    let mut deaf = server.client();
    deaf.run("PSUBSCRIBE *");
    let mut client = server.client();
    let key = "k".repeat(60_000);
    let requests = [format!("DLOCK.ACQUIRE {key} a PX 60000"), format!("DLOCK.RELEASE {key} a")];
    soon("the subscriber is disconnected", || {
        (0..20).for_each(|_| drop(client.pipeline(&requests)));
        client.text("INFO clients").contains("connected_clients:1\r\n")
    });
}

#[test]
fn nothing_is_acquired_without_memory() {
    let server = serve(&["--max-memory", "1"]);
    let mut client = server.client();
    soon("the memory is full", || client.attempt("DLOCK.ACQUIRE job a").is_err_and(|error| error.starts_with("OOM")));
    // A release is not refused.
    client.nil("DLOCK.RELEASE job a ALL TOKEN 1");
}

#[test]
fn the_memory_of_a_killed_client_is_freed() {
    let (server, [mut holder, mut killer]) = with_clients();
    holder.int("DLOCK.ACQUIRE job holder");
    let mut behind = server.client();
    let id = behind.int("CLIENT ID");
    behind.send("DLOCK.ACQUIRE job other BLOCK 0");
    behind.send(format!("ECHO {}", "x".repeat(10_000)));
    soon("the waiting bytes are counted", || number_of(&mut killer, "client_buffers") >= 10_000);
    assert_eq!(killer.int(format!("CLIENT KILL ID {id}")), 1);
    assert!(behind.closes().is_empty());
    drop(behind);
    soon("the killed client is gone", || killer.text("INFO clients").contains("connected_clients:2\r\n"));
    assert_eq!(number_of(&mut killer, "client_buffers"), 0);
}

#[test]
fn the_memory_of_subscriptions_is_counted() {
    let (server, [mut client]) = with_clients();
    let mut subscriber = server.client();
    for number in 0..10 {
        subscriber.run(format!("PSUBSCRIBE {number}{}", "x".repeat(100_000)));
    }
    assert!(number_of(&mut client, "client_buffers") >= 1_000_000);
    drop(subscriber);
    soon("the memory is given back", || number_of(&mut client, "client_buffers") == 0);
}

#[test]
fn an_event_that_one_client_hears_a_thousand_times_is_bounded() {
    let (server, [mut client]) = with_clients();
    let mut deaf: Vec<_> = (0..4).map(|_| server.client()).collect();
    for subscriber in &mut deaf {
        for number in 0..1000 {
            subscriber.run(format!("PSUBSCRIBE __key[s{number}]pace*"));
        }
    }
    client.int(format!("DLOCK.ACQUIRE {} a PX 60000", "k".repeat(100_000)));
    others_are_served(&server);
    assert!(peak(&server) < MOST, "{} bytes", peak(&server));
}

#[test]
fn the_replies_of_a_transaction_are_bounded() {
    let (server, [mut client]) = with_clients();
    client.ok("MULTI");
    (0..1000).for_each(|_| client.queued(format!("ECHO {}", "x".repeat(700))));
    let Value::Array(replies) = client.run("EXEC") else { panic!("no replies") };
    assert_eq!(replies.len(), 1000);
    // More than 8 MB of replies end the connection (`MOST_UNREAD` in crates/agent/src/serve/client.rs).
    let mut greedy = server.client();
    (0..10).for_each(|number| _ = greedy.int(format!("DLOCK.ACQUIRE {number}{} a PX 60000", "k".repeat(30_000))));
    greedy.ok("MULTI");
    (0..999).for_each(|_| greedy.queued("SCAN 0 COUNT 100"));
    greedy.queued("DLOCK.ACQUIRE last a PX 60000");
    assert!(greedy.outcome("EXEC").is_err(), "the connection is closed");
    let info = client.run("DLOCK.INFO last");
    assert_ne!(info, Value::Nil, "the transaction ran as a whole");
    others_are_served(&server);
    assert!(peak(&server) < MOST, "{} bytes", peak(&server));
}

#[test]
fn a_transaction_has_at_most_1000_commands() {
    let (_server, [mut client]) = with_clients();
    client.ok("MULTI");
    (0..1000).for_each(|_| client.queued("PING"));
    assert!(client.error("PING").contains("too long"));
    assert!(client.error("EXEC").starts_with("EXECABORT"));
}

#[test]
fn the_name_of_an_unknown_command_is_not_kept() {
    let (_server, [mut client, mut other]) = with_clients();
    let name = format!("x\nid=7 name={}", "x".repeat(100_000));
    assert!(other.error([name.as_str()]).starts_with("ERR unknown command"));
    let list = client.text("CLIENT LIST");
    assert!(list.len() < 1000, "{} bytes", list.len());
    assert_eq!(list.lines().count(), 2);
    assert!(list.contains("cmd=client"));
}

#[test]
fn a_scan_of_long_names_is_bounded() {
    let (_server, [mut client]) = with_clients();
    for number in 0..100 {
        client.int(format!("DLOCK.ACQUIRE {number}{} a PX 60000", "k".repeat(30_000)));
    }
    let (mut cursor, mut found) = ("0".to_owned(), 0);
    loop {
        let bytes = client.exact(format!("SCAN {cursor} COUNT 10000"));
        assert!(bytes.len() < 1 << 20, "{} bytes", bytes.len());
        let Value::Array(parts) = client.run(format!("SCAN {cursor} COUNT 10000")) else { panic!("no scan") };
        let [next, Value::Array(keys)] = parts.as_slice() else { panic!("no keys") };
        found += keys.len();
        cursor = text_of(next);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, 100);
}

#[test]
fn a_pattern_that_almost_matches_takes_little_time() {
    let (server, [mut client]) = with_clients();
    for number in 0..100 {
        client.int(format!("DLOCK.ACQUIRE {}{number} a PX 60000", "k".repeat(20_000)));
    }
    client.run(format!("SCAN 0 MATCH *{}x COUNT 10000", "k".repeat(10_000)));
    others_are_served(&server);
    let mut subscriber = server.client();
    subscriber.run(format!("PSUBSCRIBE *{}x", "k".repeat(50_000)));
    let began = Instant::now();
    (0..5).for_each(|_| drop(client.run(format!("DLOCK.ACQUIRE {} a PX 60000", "k".repeat(100_000)))));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn each_guess_of_a_password_takes_time() {
    let (_home, server) = with_password(&[]);
    let mut client = server.client();
    let began = Instant::now();
    // The server delays the answer to each wrong password by 200 ms.
    let replies = client.pipeline(&["AUTH wrong"; 5]);
    assert!(replies.iter().all(Result::is_err));
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn a_client_that_logs_out_may_log_in_again() {
    let (_home, server) = with_password(&[]);
    let mut client = server.client();
    client.ok("AUTH secret");
    let age = |client: &mut Client| {
        let line = client.text("CLIENT INFO");
        line.split("age=").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    // A client has 10 s to log in. `RESET` logs out, and begins the 10 s again.
    while age(&mut client) < 11 {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(client.text("RESET"), "RESET");
    std::thread::sleep(Duration::from_millis(300));
    client.ok("AUTH secret");
}

fn with_password(options: &[&str]) -> (tempfile::TempDir, Serve) {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let server = serve(&[&["--password-file", file.to_str().unwrap()], options].concat());
    (home, server)
}

/// Returns the most resident memory that the server has had so far, in bytes.
fn peak(server: &Serve) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Returns a field of `INFO clients`, which is a number.
fn number_of(client: &mut Client, field: &str) -> u64 {
    let info = client.text("INFO clients");
    let line = info.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').parse().unwrap()
}
