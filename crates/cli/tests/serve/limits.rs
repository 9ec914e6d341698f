//! Clients that send or take too much: memory has its bounds, and others are served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use dlock_testkit::{Serve, soon};

use crate::process::serve;

/// The bytes that the server may take more than when it was idle.
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
fn what_is_too_large_is_refused() {
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
        // Bytes that were not read may reset the connection when it closes.
        let _ = stream.read_to_string(&mut said);
        assert!(said.starts_with("-ERR"), "{sent:?}: {said:?}");
        others_are_served(&server);
    }
}

#[test]
fn requests_without_end_that_nobody_reads_hold_up_nobody() {
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
fn half_requests_of_many_are_bounded() {
    let server = serve(&[]);
    let before = server.memory();
    let half = [b"*2\r\n$4\r\nPING\r\n$100000\r\n".to_vec(), vec![b'x'; 60_000]].concat();
    let mut streams: Vec<_> = (0..300).map(|_| raw(&server)).collect();
    streams.iter_mut().for_each(|stream| stream.write_all(&half).unwrap());
    others_are_served(&server);
    let taken = server.memory().saturating_sub(before);
    assert!(taken < MOST, "{taken} bytes");
    drop(streams);
    soon("they are gone", || server.client().text("INFO clients").contains("connected_clients:1\r\n"));
}

#[test]
fn more_clients_than_it_may_have_are_told() {
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
fn a_subscriber_that_does_not_read_has_to_go() {
    let server = serve(&[]);
    let mut deaf = server.client();
    deaf.run("PSUBSCRIBE *");
    let mut client = server.client();
    let key = "k".repeat(60_000);
    let requests = [format!("DLOCK.ACQUIRE {key} a PX 60000"), format!("DLOCK.RELEASE {key} a")];
    soon("it is closed", || {
        (0..20).for_each(|_| drop(client.pipeline(&requests)));
        client.text("INFO clients").contains("connected_clients:1\r\n")
    });
}

#[test]
fn nothing_is_acquired_without_memory() {
    let server = serve(&["--max-memory", "1"]);
    let mut client = server.client();
    soon("it is full", || client.attempt("DLOCK.ACQUIRE job a").is_err_and(|error| error.starts_with("OOM")));
    client.nil("DLOCK.RELEASE job a ALL TOKEN 1");
}
