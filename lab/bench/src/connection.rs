//! A connection on this machine that sends batches and judges every reply.

use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::error::Error;
use crate::resp::{self, Reply, Request};

pub struct Connection {
    replies: BufReader<Counted>,
}

/// The stream with the number of bytes that came in.
struct Counted {
    stream: Box<dyn Stream>,
    bytes: u64,
}

trait Stream: Read + Write + Send {}

impl Stream for TcpStream {}

impl Stream for UnixStream {}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.bytes += u64::try_from(read).unwrap_or(0);
        Ok(read)
    }
}

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).map_err(Error::io("connecting to the server"))?;
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
            .map_err(Error::io("setting up the connection"))?;
        Ok(Self::of(stream))
    }

    /// Connects to the server's Unix socket, for which the kernel does less than for TCP: more of the cost is the
    /// server's.
    pub fn open_locally(socket: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(socket).map_err(Error::io("connecting to the server"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(Error::io("setting up the connection"))?;
        Ok(Self::of(stream))
    }

    fn of(stream: impl Stream + 'static) -> Self {
        Self { replies: BufReader::new(Counted { stream: Box::new(stream), bytes: 0 }) }
    }

    /// Sends one command and returns its reply, whatever it is.
    pub fn call(&mut self, args: &[&[u8]]) -> Result<Reply, Error> {
        self.send(&resp::request(args))?;
        self.receive()
    }

    /// Sends the batch in one write and reads one reply a request.
    ///
    /// The next batch goes out only then, so that the server sees every batch in one read, in one turn of its loop: the
    /// instruction count depends on nothing but the requests.
    pub fn exchange(&mut self, batch: &[&Request]) -> Result<(), Error> {
        let bytes: Vec<u8> = batch.iter().flat_map(|request| request.bytes.iter().copied()).collect();
        self.send(&bytes)?;
        for request in batch {
            let reply = self.receive()?;
            request.judge(&reply)?;
        }
        Ok(())
    }

    /// Makes sure that no reply is left over.
    pub fn settle(&mut self) -> Result<(), Error> {
        match self.call(&[b"PING"])? {
            Reply::Simple(text) if text == "PONG" => Ok(()),
            other => Err(Error::Reply(format!("more replies than requests: PING got {other:?}"))),
        }
    }

    /// Returns the text of one section of `INFO`.
    pub fn info(&mut self, section: &str) -> Result<String, Error> {
        match self.call(&[b"INFO", section.as_bytes()])? {
            Reply::Bulk(info) => Ok(String::from_utf8_lossy(&info).into_owned()),
            other => Err(Error::Reply(format!("INFO {section} got {other:?}"))),
        }
    }

    /// Returns a number of a section of `INFO`.
    pub fn info_number(&mut self, section: &str, field: &str) -> Result<f64, Error> {
        let info = self.info(section)?;
        info.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.parse().ok())
            .ok_or_else(|| Error::Reply(format!("INFO {section} has no number {field}")))
    }

    /// Seconds of processor that the server has used.
    pub fn cpu_seconds(&mut self) -> Result<f64, Error> {
        Ok(self.info_number("cpu", "used_cpu_user")? + self.info_number("cpu", "used_cpu_sys")?)
    }

    /// Seconds that the server's main thread was ready to run while others had the processors; 0 where the kernel does
    /// not tell.
    ///
    /// Subtract it from measured times: it is not the server's doing.
    pub fn seconds_held_up(&mut self) -> Result<f64, Error> {
        let process = self.info_number("server", "process_id")?;
        let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
        let nanoseconds = text.split_whitespace().nth(1).and_then(|field| field.parse::<f64>().ok());
        Ok(nanoseconds.unwrap_or(0.0) / 1e9)
    }

    /// Reads the reply to a request that was sent before.
    pub fn receive_for(&mut self, request: &Request) -> Result<(), Error> {
        let reply = self.receive()?;
        request.judge(&reply)
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.replies.get_mut().stream.write_all(bytes).map_err(Error::io("sending to the server"))
    }

    /// Returns how many bytes have come so far.
    pub fn received(&self) -> u64 {
        self.replies.get_ref().bytes
    }

    /// Reads a reply to what was sent before.
    pub fn receive(&mut self) -> Result<Reply, Error> {
        resp::read_reply(&mut self.replies).map_err(Error::io("reading a reply"))
    }
}

/// How long a reply may take. Under callgrind the server is about fifty times slower.
const PATIENCE: Duration = Duration::from_secs(60);
