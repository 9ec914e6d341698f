//! A client that wants the lock.

use std::net::SocketAddr;
use std::sync::Arc;

use super::round::Round;
use crate::connection::Connection;
use crate::contenders::{COMPARE_AND_DELETE, script};
use crate::error::Error;
use crate::owners;
use crate::resp::{Expect, Reply, Request};
use crate::times::contended::way::{CHANNEL, KEY};

pub struct Client {
    connection: Connection,
    /// A second connection, opened for the first subscription: in RESP2, a connection that subscribes does nothing else.
    ears: Option<Connection>,
    address: SocketAddr,
    pub requests: Arc<Requests>,
    /// A number from 0 to 1, another one for each client, which spreads their pauses.
    pub phase: f64,
    has_joined: bool,
}

/// The requests of a client.
pub struct Requests {
    pub acquire: Request,
    pub take_permit: Request,
    pub release: Request,
    pub pop: Request,
    pub push: Request,
    pub set: Request,
    pub delete: Request,
    pub delete_and_publish: Request,
    subscribe: Request,
    unsubscribe: Request,
}

impl Client {
    pub fn connect(address: SocketAddr, number: usize, scripts: &Scripts) -> Result<Self, Error> {
        let connection = Connection::open(address)?;
        let requests = Arc::new(Requests::of(number, scripts));
        let phase = (number as f64 * GOLDEN_RATIO).fract();
        Ok(Self { connection, ears: None, address, requests, phase, has_joined: false })
    }

    /// Begins the next try to get the lock.
    pub fn begin(&mut self) {
        self.has_joined = false;
    }

    /// Tells the round that this client waits, the first time since [`begin`](Self::begin).
    pub fn join(&mut self, round: &Round) {
        if !self.has_joined {
            self.has_joined = true;
            round.note_join();
        }
    }

    /// Sends a request, and returns any reply.
    pub fn ask(&mut self, request: &Request, round: &Round) -> Result<Reply, Error> {
        exchange(&mut self.connection, request, round)
    }

    /// Sends a request that waits in the server's queue, and returns when its reply is there.
    pub fn wait(&mut self, request: &Request, round: &Round) -> Result<(), Error> {
        let received = self.connection.received();
        self.connection.send(&request.bytes)?;
        self.join(round);
        self.connection.receive_for(request)?;
        round.count(1, request.bytes.len(), self.connection.received() - received);
        Ok(())
    }

    pub fn subscribe(&mut self, round: &Round) -> Result<(), Error> {
        let requests = Arc::clone(&self.requests);
        let reply = exchange(self.ears()?, &requests.subscribe, round)?;
        requests.subscribe.judge(&reply)
    }

    /// Waits for a message.
    pub fn hear(&mut self, round: &Round) -> Result<(), Error> {
        let ears = self.ears()?;
        let received = ears.received();
        let reply = ears.receive()?;
        round.count(0, 0, ears.received() - received);
        match kind(&reply) {
            b"message" => Ok(()),
            _ => Err(Error::Reply(format!("a subscriber got {reply:?}"))),
        }
    }

    /// Unsubscribes, and drops the messages that came meanwhile.
    pub fn unsubscribe(&mut self, round: &Round) -> Result<(), Error> {
        let requests = Arc::clone(&self.requests);
        let ears = self.ears()?;
        let mut reply = exchange(ears, &requests.unsubscribe, round)?;
        while kind(&reply) == b"message" {
            reply = ears.receive()?;
        }
        requests.unsubscribe.judge(&reply)
    }

    fn ears(&mut self) -> Result<&mut Connection, Error> {
        match &mut self.ears {
            Some(ears) => Ok(ears),
            empty => Ok(empty.insert(Connection::open(self.address)?)),
        }
    }
}

fn exchange(connection: &mut Connection, request: &Request, round: &Round) -> Result<Reply, Error> {
    let received = connection.received();
    connection.send(&request.bytes)?;
    let reply = connection.receive()?;
    round.count(1, request.bytes.len(), connection.received() - received);
    Ok(reply)
}

/// The first word of what a subscriber gets.
fn kind(reply: &Reply) -> &[u8] {
    match reply {
        Reply::Array(parts) => match parts.first() {
            Some(Reply::Bulk(kind)) => kind,
            Some(_) | None => b"",
        },
        _ => b"",
    }
}

/// `KEYS`: lock, channel. `ARGV`: owner. Tells those who wait that the lock is free.
const COMPARE_DELETE_AND_PUBLISH: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then
  redis.call('del', KEYS[1])
  redis.call('publish', KEYS[2], 'free')
  return 1
end
return 0
";

/// Digests of scripts.
pub struct Scripts {
    delete: Vec<u8>,
    delete_and_publish: Vec<u8>,
}

impl Scripts {
    pub fn load(connection: &mut Connection) -> Result<Self, Error> {
        Ok(Self {
            delete: script(connection, COMPARE_AND_DELETE)?,
            delete_and_publish: script(connection, COMPARE_DELETE_AND_PUBLISH)?,
        })
    }
}

impl Requests {
    fn of(number: usize, scripts: &Scripts) -> Self {
        let owner = owners::owner(number);
        let eval = |digest: &[u8]| Request::new(&[b"EVALSHA", digest, b"2", KEY, CHANNEL, &owner], Expect::Integer(1));
        Self {
            acquire: Request::new(&[b"DLOCK.ACQUIRE", KEY, &owner, b"PX", LEASE, b"BLOCK", b"0"], Expect::Positive),
            take_permit: Request::new(
                &[b"DLOCK.SACQUIRE", KEY, &owner, b"1", b"PX", LEASE, b"BLOCK", b"0"],
                Expect::Positive,
            ),
            release: Request::new(&[b"DLOCK.RELEASE", KEY, &owner], Expect::Integer(1)),
            pop: Request::new(&[b"BLPOP", KEY, b"0"], Expect::Array(2)),
            push: Request::new(&[b"LPUSH", KEY, b"token"], Expect::Positive),
            set: Request::new(&[b"SET", KEY, &owner, b"NX", b"PX", LEASE], Expect::Ok),
            delete: Request::new(&[b"EVALSHA", &scripts.delete, b"1", KEY, &owner], Expect::Integer(1)),
            delete_and_publish: eval(&scripts.delete_and_publish),
            subscribe: Request::new(&[b"SUBSCRIBE", CHANNEL], Expect::Array(3)),
            unsubscribe: Request::new(&[b"UNSUBSCRIBE", CHANNEL], Expect::Array(3)),
        }
    }
}

/// The fractions of the multiples of this number are spread evenly from 0 to 1.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;

/// The lease in ms, longer than any round takes.
const LEASE: &[u8] = b"3600000";
