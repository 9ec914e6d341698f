//! A replica that takes the stream and does nothing with it, so that the machine has only one server to run.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::resp;
use crate::server::Server;

/// Follows until dropped.
pub struct Follower {
    over: Arc<AtomicBool>,
    /// The thread that follows, until the follower is dropped.
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins to follow. Returns when the server counts the follower as a replica that is online.
    pub fn attach(server: &Server) -> Result<Self, Error> {
        let stream = TcpStream::connect(server.address()).map_err(Error::io("connecting as a replica"))?;
        let mut stream = BufReader::new(stream);
        stream
            .get_ref()
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.get_mut().write_all(&resp::request(&[b"SYNC"])))
            .map_err(Error::io("connecting as a replica"))?;
        skip_snapshot(&mut stream)?;
        // The server is asked only once: its instructions for each `INFO` would be counted.
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
            // The thread only reads; if it panicked, the server has noticed that nobody follows.
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

/// Under callgrind a server is about fifty times slower.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the thread looks whether the follower was dropped.
const LOOK_UP: Duration = Duration::from_millis(100);
