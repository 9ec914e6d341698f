//! A fixed load: a ring of requests in wire form, each with the reply it must get.

use crate::connection::Connection;
use crate::error::Error;
use crate::resp::{self, Expect, Reply};

/// Requests on their way at the same time.
pub const PIPELINE: usize = 16;

pub struct Request {
    pub bytes: Vec<u8>,
    expect: Expect,
}

impl Request {
    pub fn new(args: &[&[u8]], expect: Expect) -> Self {
        Self { bytes: resp::request(args), expect }
    }

    pub fn judge(&self, reply: &Reply) -> Result<(), Error> {
        if self.expect.accepts(reply) {
            return Ok(());
        }
        let request = String::from_utf8_lossy(&self.bytes).replace("\r\n", " ");
        Err(Error::Reply(format!("expected {:?}, got {reply:?} to {request}", self.expect)))
    }
}

/// What one contender sends, over and over.
pub struct Load {
    ring: Vec<Request>,
    requests_per_operation: usize,
}

impl Load {
    /// Each operation is one request (`[a]`) or several that belong together (`[acquire, release]`).
    pub fn new<const N: usize>(operations: impl IntoIterator<Item = [Request; N]>) -> Self {
        Self { ring: operations.into_iter().flatten().collect(), requests_per_operation: N }
    }

    /// In one round of the ring.
    pub fn operations(&self) -> usize {
        self.ring.len() / self.requests_per_operation
    }

    /// Runs that many operations, starting again at the head of the ring when it is through.
    pub fn run(&self, connection: &mut Connection, operations: usize) -> Result<(), Error> {
        let requests = operations * self.requests_per_operation;
        let mut rest = self.ring.iter().cycle().take(requests);
        loop {
            let batch: Vec<&Request> = rest.by_ref().take(PIPELINE).collect();
            if batch.is_empty() {
                return connection.settle();
            }
            connection.exchange(&batch)?;
        }
    }
}
