//! The bytes that a client has sent and the agent has not read yet.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::listen::ClientReader;
use crate::resp::{Bounds, ProtocolError, Request};

/// Reads requests from a connection, and notices its end while one is carried out.
pub(crate) struct Inbox<R> {
    reader: R,
    bytes: Vec<u8>,
    /// How many of the bytes belong to requests that were returned.
    read: usize,
    pub bounds: Bounds,
}

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum NoRequest {
    /// The client has closed the connection, or it broke.
    Closed,
    /// The client was silent for too long.
    Idle,
    Wrong(ProtocolError),
}

impl<R: ClientReader> Inbox<R> {
    pub fn new(reader: R, bounds: Bounds) -> Self {
        Self { reader, bytes: Vec::new(), read: 0, bounds }
    }

    /// Returns whether the client has sent more than was read.
    pub fn has_more(&self) -> bool {
        self.read < self.bytes.len()
    }

    /// Returns the next request if all of it is here.
    pub fn ready(&mut self) -> Result<Option<Request>, ProtocolError> {
        loop {
            let rest = self.bytes.get(self.read..).unwrap_or_default();
            let Some((request, length)) = Request::parse(rest, self.bounds)? else { return Ok(None) };
            self.read += length;
            // An empty line is no request, and gets no reply.
            if !request.words().is_empty() {
                return Ok(Some(request));
            }
        }
    }

    /// Waits for the next request: without limit for its beginning if `idle` is `None`, and for a limited time for the
    /// rest of it. Empty lines are no request, and gain a silent client no time.
    pub async fn next(&mut self, idle: Option<Duration>) -> Result<Request, NoRequest> {
        let deadline = idle.and_then(|idle| Instant::now().checked_add(idle));
        loop {
            match self.ready() {
                Ok(Some(request)) => return Ok(request),
                Ok(None) => {}
                Err(error) => return Err(NoRequest::Wrong(error)),
            }
            self.compact();
            if !self.bytes.is_empty() {
                // The time is for the whole request, however slowly its bytes come.
                let rest = REST.min(idle.unwrap_or(REST));
                return timeout(rest, self.rest()).await.unwrap_or(Err(NoRequest::Idle));
            }
            let more = match deadline {
                Some(deadline) => timeout_at(deadline, self.receive()).await.map_err(|_| NoRequest::Idle)?,
                None => self.receive().await,
            };
            if !more {
                return Err(NoRequest::Closed);
            }
        }
    }

    /// Reads until a request is complete.
    async fn rest(&mut self) -> Result<Request, NoRequest> {
        loop {
            if !self.receive().await {
                return Err(NoRequest::Closed);
            }
            match self.ready() {
                Ok(Some(request)) => return Ok(request),
                Ok(None) => {}
                Err(error) => return Err(NoRequest::Wrong(error)),
            }
        }
    }

    /// Waits for the end of the connection while a request is carried out, and stores some of the bytes that follow it.
    /// The rest stays in the socket: a client that sends more than that has to wait, and takes no memory.
    pub async fn closed(&mut self) {
        self.compact();
        while self.bytes.len() < BEHIND {
            if !self.receive_up_to(BEHIND - self.bytes.len()).await {
                return;
            }
        }
        while !self.reader.has_hung_up().await {
            sleep(LOOK).await;
        }
    }

    /// Reads what there is. False: the connection has ended.
    async fn receive(&mut self) -> bool {
        self.receive_up_to(CHUNK).await
    }

    async fn receive_up_to(&mut self, most: usize) -> bool {
        let mut chunk = [0; CHUNK];
        match self.reader.read(chunk.get_mut(..most.min(CHUNK)).unwrap_or_default()).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
                true
            }
        }
    }

    /// Forgets what was read, and the memory of a large request.
    fn compact(&mut self) {
        self.bytes.drain(..self.read);
        self.read = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > CHUNK {
            self.bytes = Vec::new();
        } else if self.bytes.capacity() > 2 * BEHIND {
            self.bytes.shrink_to(CHUNK);
        }
    }
}

/// How long a request may take from its first byte to its last.
const REST: Duration = Duration::from_secs(30);

/// How many bytes are read behind a request that is being carried out.
const BEHIND: usize = 16 << 10;

/// How often to check for the end of a client whose bytes stay in the socket, where the end cannot be read.
const LOOK: Duration = Duration::from_millis(100);

const CHUNK: usize = 4096;
