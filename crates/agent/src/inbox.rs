//! What a client has sent and nobody has read yet.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::resp::{Bounds, ProtocolError, Request};

/// Reads requests from a connection, and notices its end while one is carried out.
pub(crate) struct Inbox<R> {
    reader: R,
    bytes: Vec<u8>,
    /// How many of them were read.
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

impl<R: AsyncRead + Unpin> Inbox<R> {
    pub fn new(reader: R, bounds: Bounds) -> Self {
        Self { reader, bytes: Vec::new(), read: 0, bounds }
    }

    /// Whether the client has sent more than was read.
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
    /// rest of it.
    pub async fn next(&mut self, idle: Option<Duration>) -> Result<Request, NoRequest> {
        let mut limit = idle;
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
            let more = match limit.take() {
                Some(limit) => timeout(limit, self.receive()).await.map_err(|_| NoRequest::Idle)?,
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

    /// Waits for the end of the connection while a request is carried out, and stores what comes behind it. A client
    /// that sends more than a request may have is cut off: its end would not be noticed.
    pub async fn closed(&mut self) {
        self.compact();
        while self.bytes.len() < 2 * self.bounds.request {
            if !self.receive().await {
                return;
            }
        }
    }

    /// Reads what there is. False: the connection has ended.
    async fn receive(&mut self) -> bool {
        let mut chunk = [0; CHUNK];
        match self.reader.read(&mut chunk).await {
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
        }
    }
}

/// How long a request may take from its first byte to its last.
const REST: Duration = Duration::from_secs(30);

const CHUNK: usize = 4096;
