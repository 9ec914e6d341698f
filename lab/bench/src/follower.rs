//! A replica that reads the replication stream and drops it, so that the machine runs only one server.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::resp;
use crate::server::Server;

/// A replica of a server, until it is dropped.
pub struct Follower {
    over: Arc<AtomicBool>,
    /// The thread that follows, until the follower is dropped.
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Connects as a replica. Returns when the server counts the replica as online.
    pub fn attach(server: &Server) -> Result<Self, Error> {
        let stream = TcpStream::connect(server.address()).map_err(Error::io("connecting as a replica"))?;
        let mut stream = BufReader::new(stream);
        stream
            .get_ref()
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.get_mut().write_all(&resp::request(&[b"SYNC"])))
            .map_err(Error::io("connecting as a replica"))?;
        skip_snapshot(&mut stream)?;
        // The server is asked only once, because a measurement may count the instructions of each `INFO`.
        if !server.connect()?.info("replication")?.contains("state=online") {
            return Err(server.failure("the server does not take a replica"));
        }
        stream.get_ref().set_read_timeout(Some(LOOK_UP)).map_err(Error::io("connecting as a replica"))?;
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = Arc::clone(&over);
            move || swallow(stream.into_inner(), &over)
        });
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread does not matter any more: the thread only reads.
            let _ = thread.join();
        }
    }
}

/// Reads the snapshot of the data: empty lines while it is made, its length, and that number of bytes.
fn skip_snapshot(stream: &mut BufReader<TcpStream>) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let mut line = String::new();
        stream.read_line(&mut line).map_err(Error::io("waiting for the snapshot"))?;
        match line.trim() {
            "" => {}
            line => {
                let length = line.strip_prefix('$').and_then(|length| length.parse::<u64>().ok());
                let length = length.ok_or_else(|| Error::Reply(format!("SYNC got {line:?}")))?;
                let read = std::io::copy(&mut stream.take(length), &mut std::io::sink());
                return match read.map_err(Error::io("reading the snapshot"))? {
                    read if read == length => Ok(()),
                    _ => Err(Error::Reply("the snapshot is cut".into())),
                };
            }
        }
    }
    Err(Error::Reply("no snapshot".into()))
}

/// Reads the stream and drops it, until `over` is set or the connection ends.
fn swallow(mut stream: TcpStream, over: &AtomicBool) {
    let mut buffer = vec![0; 1 << 20];
    while !over.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

/// How long the server may take to answer: under callgrind, it is about fifty times slower.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the thread looks whether the follower was dropped.
const LOOK_UP: Duration = Duration::from_millis(100);
