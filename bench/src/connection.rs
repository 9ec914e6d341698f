//! One loopback connection that sends batches and judges every reply.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::Error;
use crate::load::Request;
use crate::resp::{self, Reply};

pub struct Connection {
    replies: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).map_err(Error::io("connecting to the server"))?;
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
            .map_err(Error::io("setting up the connection"))?;
        Ok(Self { replies: BufReader::new(stream) })
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

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.replies.get_mut().write_all(bytes).map_err(Error::io("sending to the server"))
    }

    fn receive(&mut self) -> Result<Reply, Error> {
        resp::read_reply(&mut self.replies).map_err(Error::io("reading a reply"))
    }
}

/// How long a reply may take. Under callgrind the server is about fifty times slower.
const PATIENCE: Duration = Duration::from_secs(60);
