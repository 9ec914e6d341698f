//! Scrapes of `dlock metrics` and `dlock agent --metrics` beside connections that are silent, slow, or do not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a scrape may take beside other connections. Prometheus gives up after 10 s.
const SOON: Duration = Duration::from_secs(2);

/// How long a connection without a request may stay open: the server closes it after 1 s (`REQUEST` in http.rs).
const CLOSED: Duration = Duration::from_secs(4);

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(2 * CLOSED)).expect("a read timeout");
    stream
}

#[track_caller]
fn scrape(address: &str, path: &str) {
    let begin = Instant::now();
    let mut stream = connect(address);
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("a server that reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply:?}");
    assert!(begin.elapsed() < SOON, "a reply after {:?}", begin.elapsed());
}

/// Checks that scrapes are answered soon beside other connections, and that connections without a request are closed.
#[track_caller]
pub fn are_answered_beside_idle_connections(address: &str, path: &str) {
    dlock_testkit::soon("the server listens", || TcpStream::connect(address).is_ok());
    scrape(address, path);
    // The server keeps 64 connections without a request (`SILENT` in `crates/agent/src/http.rs`).
    for count in [16, 64, 300] {
        let idle: Vec<_> = (0..count).map(|_| connect(address)).collect();
        scrape(address, path);
        drop(idle);
    }
    // Half of these connections begin a request, the others never read the reply to theirs.
    let mut slow: Vec<_> = (0..64).map(|_| connect(address)).collect();
    slow.iter_mut().step_by(2).for_each(|stream| stream.write_all(b"GET /met").expect("a server that reads"));
    slow.iter_mut().skip(1).step_by(2).for_each(|stream| {
        stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("a server that reads");
    });
    scrape(address, path);
    drop(slow);
    closes(connect(address), |_| {});
    // Single bytes now and then do not keep a connection open.
    closes(connect(address), |stream| _ = stream.write_all(b"G"));
}

/// Waits for the other side to close the connection.
#[track_caller]
fn closes(mut stream: TcpStream, mut meanwhile: impl FnMut(&mut TcpStream)) {
    let begin = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a read timeout");
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
            Ok(_) => panic!("a reply without a request"),
        }
        assert!(begin.elapsed() < CLOSED, "the connection stays open");
        meanwhile(&mut stream);
    }
}
