//! The other clients of the server while a contender is measured.

use crate::connection::Connection;
use crate::error::Error;
use crate::load::Load;
use crate::owners;
use crate::resp::{Expect, Request};
use crate::server::Server;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Background {
    Nobody,
    /// A client holds a lock as long as its connection lives, and another one waits for that lock, as on a server where
    /// the module is in use.
    Locks,
    /// A client waits for an element of a list. No module is involved.
    List,
}

impl Background {
    /// Connects these clients, which stay as long as the returned connections.
    ///
    /// The server has the same number of keys whichever clients are there. At this number, its table does not grow or
    /// shrink when a contender adds and removes a key: otherwise the figures would include that.
    pub fn gather(self, server: &Server) -> Result<Vec<Connection>, Error> {
        let mut first = server.connect()?;
        let spare = match self {
            Self::Nobody | Self::List => KEYS,
            // The lock is a key, too.
            Self::Locks => KEYS - 1,
        };
        let keys = (0..spare).map(|n| {
            let key = format!("spare:{n:05}");
            [Request::new(&[b"SET", key.as_bytes(), &owners::owner(n), b"PX", LEASE], Expect::Ok)]
        });
        Load::new(keys).run(&mut first, spare)?;
        let mut second = server.connect()?;
        match self {
            Self::Nobody => return Ok(Vec::new()),
            Self::Locks => {
                let hold = [b"DLOCK.ACQUIRE", ELSEWHERE, b"holder", b"PX", LEASE, b"SESSION"];
                first.exchange(&[&Request::new(&hold, Expect::Positive)])?;
                second.send(
                    &Request::new(&[b"DLOCK.ACQUIRE", ELSEWHERE, b"waiter", b"BLOCK", b"0"], Expect::Nil).bytes,
                )?;
            }
            Self::List => second.send(&Request::new(&[b"BLPOP", ELSEWHERE, b"0"], Expect::Nil).bytes)?,
        }
        // The command that blocks has no reply, and under callgrind the server takes a while to read it.
        while first.info_number("clients", "blocked_clients")? < 1.0 {}
        Ok(vec![first, second])
    }
}

/// The key of these clients, which no contender uses.
const ELSEWHERE: &[u8] = b"spare:elsewhere";
/// The number of keys. Not close to a power of two, at which tables are resized.
const KEYS: usize = 600;
/// An hour in ms: longer than a measurement.
const LEASE: &[u8] = b"3600000";
