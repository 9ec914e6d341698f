//! A command, and the reply that it has to get.

use crate::error::Error;
use crate::resp::{self, Expect, Reply};

#[derive(Clone)]
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
