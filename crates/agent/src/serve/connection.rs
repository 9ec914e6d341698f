//! A client's connection: its requests are carried out one after the other, and others have their turn in between.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dlock_core::doubt;
use tokio::io::{Interest, Ready};
use tokio::time::{sleep, timeout};

use super::client::Client;
use super::run;
use super::server::Server;
use crate::hello::{GUESS, LOGIN};
use crate::resp::{Bounds, ProtocolError, Request};
use crate::stats::Stats;

/// The connection of a client. When this is dropped, the connection has ended.
pub(super) struct Connection {
    server: Rc<RefCell<Server>>,
    client: Rc<Client>,
    /// The bytes that the client has sent, and how much of them was read.
    bytes: Vec<u8>,
    read: usize,
    /// The time since which the client has not read what it is sent, and how much it had taken by then.
    stuck: Option<(Instant, u64)>,
}

/// The connection ends.
struct Ended;

impl Connection {
    pub fn new(server: Rc<RefCell<Server>>, client: Rc<Client>) -> Self {
        server.borrow_mut().connect(&client);
        Self { server, client, bytes: Vec::new(), read: 0, stuck: None }
    }

    /// Serves the client until it leaves, or must be disconnected.
    pub async fn serve(mut self) {
        while self.turn().await.is_ok() {}
        self.client.flush();
        self.client.stream.say_end();
    }

    async fn turn(&mut self) -> Result<(), Ended> {
        let has_more = self.run_some()?;
        // The commands may have freed locks: their waiters are served in the same turn, once for all commands.
        if self.server.borrow().is_due() {
            self.server.borrow_mut().turn();
        }
        if self.client.has_guessed.take() {
            sleep(GUESS).await;
        }
        self.client.flush();
        if self.client.is_killed.get() {
            return Err(Ended);
        }
        self.compact();
        self.count();
        let unsent = self.client.unsent();
        if self.client.is_leaving.get() && unsent == 0 {
            return Err(Ended);
        }
        let taken = self.client.taken.get();
        self.stuck = match self.stuck {
            _ if unsent == 0 => None,
            Some((since, before)) if taken == before => Some((since, before)),
            _ => Some((Instant::now(), taken)),
        };
        // Checked in every turn: a client that keeps sending may never let `wait` time out.
        if self.is_out_of_patience() {
            return Err(Ended);
        }
        if has_more && unsent < MOST_UNSENT {
            // Other clients have their turn first.
            tokio::task::yield_now().await;
            return Ok(());
        }
        self.wait().await
    }

    /// Carries out requests that have come, `AT_ONCE` at most. Returns whether there may be more.
    fn run_some(&mut self) -> Result<bool, Ended> {
        for _ in 0..AT_ONCE {
            let client = &self.client;
            if client.is_waiting() || client.is_leaving.get() || client.is_killed.get() {
                return Ok(false);
            }
            // The turn goes on and sends what the client takes, which may make room for more replies.
            if client.unsent() >= MOST_UNSENT {
                return Ok(true);
            }
            let request = match self.next() {
                Ok(Some(request)) => request,
                Ok(None) => return Ok(false),
                Err(error) => {
                    Stats::count(&self.server.borrow().stats.protocol_errors);
                    self.client.out.borrow_mut().error(&error.to_string());
                    self.client.is_leaving.set(true);
                    return Ok(false);
                }
            };
            run::run(&mut self.server.borrow_mut(), &self.client, &request);
            if self.client.has_guessed.get() {
                break;
            }
        }
        Ok(true)
    }

    fn next(&mut self) -> Result<Option<Request>, ProtocolError> {
        loop {
            let rest = self.bytes.get(self.read..).unwrap_or_default();
            let Some((request, length)) = Request::parse(rest, self.bounds())? else { return Ok(None) };
            self.read += length;
            if !request.words().is_empty() {
                return Ok(Some(request));
            }
        }
    }

    /// Waits for something to do, and reads what comes.
    async fn wait(&mut self) -> Result<(), Ended> {
        let client = self.client.clone();
        let unsent = client.unsent();
        // Behind a request that waits, only a little is read, to notice the end of the connection.
        let is_held_up = client.is_waiting() || unsent >= MOST_UNSENT;
        let room = if is_held_up { BEHIND.saturating_sub(self.bytes.len()) } else { CHUNK };
        let mut interest = Interest::READABLE;
        if unsent > 0 {
            interest |= Interest::WRITABLE;
        }
        let patience = self.patience();
        let ready = async {
            if room == 0 && unsent == 0 {
                // The client's bytes stay in the socket, and the end of the connection cannot be seen behind them.
                sleep(LOOK).await;
            }
            match room > 0 && client.stream.has_read_ahead() {
                true => Ok(Ready::READABLE),
                false => client.stream.ready(interest).await,
            }
        };
        tokio::select! {
            biased;
            () = client.woken.notified() => Ok(()),
            ready = timeout(patience, ready) => match ready {
                Err(_) => Ok(()),
                Ok(Err(_)) => Err(Ended),
                Ok(Ok(ready)) if room == 0 && ready.is_read_closed() => Err(Ended),
                Ok(Ok(ready)) if room > 0 && ready.is_readable() => {
                    if self.client.stream.is_handshaking() { self.handshake(room).await } else { self.receive(room) }
                }
                Ok(Ok(ready)) if ready.is_writable() => Ok(()),
                Ok(Ok(_)) => {
                    sleep(LOOK).await;
                    Ok(())
                }
            }
        }
    }

    /// Goes on with the TLS handshake. Handshakes cost much CPU time: one client at a time works on its
    /// handshake, and clients that have finished theirs have their turn in between.
    async fn handshake(&mut self, room: usize) -> Result<(), Ended> {
        let one_at_a_time = self.server.borrow().handshake.clone();
        let _turn = one_at_a_time.lock().await;
        tokio::task::yield_now().await;
        if self.client.is_killed.get() || self.is_out_of_patience() {
            return Err(Ended);
        }
        self.receive(room)
    }

    fn receive(&mut self, room: usize) -> Result<(), Ended> {
        let mut chunk = [0; CHUNK];
        match self.client.stream.try_read(chunk.get_mut(..room.min(CHUNK)).unwrap_or_default()) {
            Ok(0) => Err(Ended),
            Ok(count) => {
                self.bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
                Ok(())
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {
                Ok(())
            }
            Err(_) => Err(Ended),
        }
    }

    /// Drops the bytes that were read, and gives back the memory of a large request.
    fn compact(&mut self) {
        self.bytes.drain(..self.read);
        self.read = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > CHUNK {
            self.bytes = Vec::new();
        }
    }

    /// Counts the memory that the client takes.
    fn count(&self) {
        let queued = self.client.transaction.borrow().as_ref().map_or(0, |transaction| transaction.bytes);
        let bytes = self.bytes.len() + self.client.unsent() + queued + self.client.subscribed_bytes();
        if bytes != self.client.counted.get() {
            self.server.borrow_mut().count(&self.client, bytes);
        }
    }

    fn bounds(&self) -> Bounds {
        if self.client.is_logged_in.get() {
            Bounds { request: 256 << 10, words: 1024, word: 128 << 10 }
        } else {
            Bounds::of_strangers()
        }
    }

    /// Returns how much longer the client may take to log in, to finish its TLS handshake, or to read its replies.
    fn patience(&self) -> Duration {
        let stranger =
            (!self.client.is_logged_in.get()).then(|| LOGIN.saturating_sub(self.client.stranger_since.get().elapsed()));
        let handshaking =
            self.client.stream.is_handshaking().then(|| LOGIN.saturating_sub(self.client.since.elapsed()));
        let stuck = self.stuck.map(|(since, _)| WRITE.saturating_sub(since.elapsed()));
        [stranger, handshaking, stuck].into_iter().flatten().min().unwrap_or(FOREVER)
    }

    fn is_out_of_patience(&self) -> bool {
        self.patience().is_zero()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A command that panicked may have left something undone.
            doubt::raise();
        }
        self.server.borrow_mut().disconnect(&self.client);
    }
}

/// How many requests of a client are carried out before others have their turn.
const AT_ONCE: usize = 32;
/// A client that has this number of bytes to read gets no more replies until it reads: its requests wait.
const MOST_UNSENT: usize = 64 << 10;
/// How many bytes are read behind a request that waits.
const BEHIND: usize = 16 << 10;
const CHUNK: usize = 16 << 10;
/// How often to check a client whose bytes stay in the socket.
const LOOK: Duration = Duration::from_millis(100);
/// How long a client may leave a reply unread.
const WRITE: Duration = Duration::from_secs(30);
const FOREVER: Duration = Duration::from_secs(3600);
