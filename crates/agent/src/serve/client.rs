//! A client that is connected, as the server knows it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use dlock_core::engine::WaiterId;
use tokio::sync::Notify;

use super::out::Out;
use super::stream::Stream;
use crate::resp::Request;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub id: u64,
    pub address: String,
    pub local: String,
    pub stream: Stream,
    pub since: Instant,
    pub last: Cell<Instant>,
    pub db: Cell<i32>,
    pub name: RefCell<Vec<u8>>,
    pub library: RefCell<(Vec<u8>, Vec<u8>)>,
    pub last_command: Cell<&'static str>,
    pub is_logged_in: Cell<bool>,
    /// The time since which the client has not been logged in.
    pub stranger_since: Cell<Instant>,
    pub out: RefCell<Out>,
    /// How many bytes of replies the connection has taken so far.
    pub taken: Cell<u64>,
    /// The request of the client that waits. Requests behind it are not carried out meanwhile.
    pub waiter: RefCell<Option<Rc<Waiter>>>,
    pub transaction: RefCell<Option<Transaction>>,
    pub channels: RefCell<BTreeSet<Vec<u8>>>,
    pub patterns: RefCell<BTreeSet<Vec<u8>>>,
    /// The connection ends once its replies are written.
    pub is_leaving: Cell<bool>,
    /// The client has sent a wrong password: guesses have to wait.
    pub has_guessed: Cell<bool>,
    /// The connection ends at once.
    pub is_killed: Cell<bool>,
    /// Wakes the client's task, which has something to do.
    pub woken: Notify,
    /// The memory that the client takes in the server, in bytes, as it was counted last.
    pub counted: Cell<usize>,
}

/// A request that waits, as the engine and its client share it.
#[derive(Debug)]
pub(super) struct Waiter {
    pub client: Rc<Client>,
    pub id: WaiterId,
    /// When the wait is over, by the uptime in ms.
    pub ends_at: Cell<Option<u64>>,
}

/// Commands between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub requests: Vec<Request>,
    pub bytes: usize,
    /// A command of the transaction was refused.
    pub is_broken: bool,
}

impl Client {
    pub fn new(id: u64, address: String, stream: Stream, is_logged_in: bool) -> Self {
        Self {
            id,
            address,
            local: stream.local(),
            stream,
            since: Instant::now(),
            last: Cell::new(Instant::now()),
            db: Cell::new(0),
            name: RefCell::default(),
            library: RefCell::default(),
            last_command: Cell::default(),
            is_logged_in: Cell::new(is_logged_in),
            stranger_since: Cell::new(Instant::now()),
            out: RefCell::new(Out::new()),
            taken: Cell::new(0),
            waiter: RefCell::default(),
            transaction: RefCell::default(),
            channels: RefCell::default(),
            patterns: RefCell::default(),
            is_leaving: Cell::new(false),
            has_guessed: Cell::new(false),
            is_killed: Cell::new(false),
            woken: Notify::new(),
            counted: Cell::new(0),
        }
    }

    /// Ends the connection at once. Replies that are not sent yet are discarded.
    pub fn kill(&self) {
        self.is_killed.set(true);
        self.woken.notify_one();
    }

    /// Kills a client that has more than `MOST_UNREAD` bytes still to be sent. A killed client loses what is not sent.
    pub fn bound(&self) {
        if self.unsent() > MOST_UNREAD {
            self.kill();
        }
        if self.is_killed.get() {
            self.out.borrow_mut().clear();
        }
    }

    /// Returns whether the client has not proved yet that it may use the server: it has not logged in, or not finished
    /// its TLS handshake.
    pub fn is_stranger(&self) -> bool {
        !self.is_logged_in.get() || self.stream.is_handshaking()
    }

    pub fn is_waiting(&self) -> bool {
        self.waiter.borrow().is_some()
    }

    /// Returns how many channels and patterns the client hears.
    pub fn subscriptions(&self) -> usize {
        self.channels.borrow().len() + self.patterns.borrow().len()
    }

    /// Returns the memory of the names of the client's channels and patterns, and of their copies in
    /// [`Channels`](super::channels).
    pub fn subscribed_bytes(&self) -> usize {
        let (channels, patterns) = (self.channels.borrow(), self.patterns.borrow());
        channels.iter().chain(patterns.iter()).map(|name| 2 * (name.len() + ENTRY)).sum()
    }

    /// Returns how many bytes are still to be sent to the client.
    pub fn unsent(&self) -> usize {
        self.out.borrow().rest().len() + self.stream.unsent()
    }

    /// Sends what the connection takes now. A killed client gets nothing: `bound` may have discarded earlier replies.
    pub fn flush(&self) {
        if self.is_killed.get() {
            return;
        }
        let mut out = self.out.borrow_mut();
        while !out.rest().is_empty() {
            match self.stream.try_write(out.rest()) {
                Ok(count @ 1..) => {
                    self.taken.set(self.taken.get() + count as u64);
                    out.has_sent(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return self.is_killed.set(true),
            }
        }
        if self.stream.push().is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
            self.is_killed.set(true);
        }
    }
}

/// How many bytes of messages, or of the replies of a transaction, wait for a client at most. Single commands stop much
/// earlier, at `MOST_UNSENT` in `connection.rs`.
const MOST_UNREAD: usize = 8 << 20;
/// The memory of a name in a table, beside its bytes.
const ENTRY: usize = 64;
